/** What outlives the users of object storage in memory: objects, and how listings looked before. */

export interface MemoryObject {
  readonly bytes: Uint8Array;
  readonly sha256: Uint8Array;
  readonly version: string;
}

interface Change {
  readonly atMs: number;
  readonly key: string;
  readonly object: MemoryObject | undefined;
}

interface MemoryUpload {
  readonly key: string;
  readonly sha256: Uint8Array;
  readonly parts: Map<number, Uint8Array>;
}

export class MemoryBucket {
  readonly objects = new Map<string, MemoryObject>();
  readonly uploads = new Map<string, MemoryUpload>();
  private readonly changes: Change[] = [];
  private counter = 0;

  nextId(): string {
    return String(++this.counter);
  }

  set(key: string, content: { readonly bytes: Uint8Array; readonly sha256: Uint8Array }, atMs: number): void {
    const object = { bytes: content.bytes.slice(), sha256: content.sha256, version: this.nextId() };
    this.objects.set(key, object);
    this.changes.push({ atMs, key, object });
  }

  remove(key: string, atMs: number): void {
    if (this.objects.delete(key)) this.changes.push({ atMs, key, object: undefined });
  }

  /** Keys and sizes as they were at a time, in key order. */
  listingAt(atMs: number): { key: string; bytes: number }[] {
    const seen = new Map<string, number>();
    for (const change of this.changes) {
      if (change.atMs > atMs) break;
      if (change.object === undefined) seen.delete(change.key);
      else seen.set(change.key, change.object.bytes.length);
    }
    return [...seen].map(([key, bytes]) => ({ key, bytes })).sort((a, b) => (a.key < b.key ? -1 : 1));
  }

  /** Flips one bit of what is stored. */
  damage(key: string): void {
    const bytes = this.objects.get(key)?.bytes;
    if (bytes?.[0] !== undefined) bytes[0] ^= 1;
  }
}
