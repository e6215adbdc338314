/**
 * Brings blobs into object storage, a few at a time, and believes that one is there only when it
 * has been read back. Only blobs that events name are brought there, and those stay for good: so
 * what is known to be there once needs no second look.
 */
import { bytesEqual, fromHex, HopError } from "#core/base";
import { blobKey, type ObjectStore } from "#store";
import { storeObject } from "./object-put.ts";

export interface BlobUploadsParts {
  readonly cluster: string;
  readonly objects: ObjectStore;
  /** Bytes of a blob, wherever in the cluster they are. */
  readonly blob: (sha256: Uint8Array) => Promise<Uint8Array>;
}

/** Blobs in memory at one time, and asked about at one time. */
const lanesCount = 4;
/** Blobs that are known to be uploaded, in memory: asking for one again costs a round trip. */
const knownMax = 100_000;

export class BlobUploads {
  private readonly parts: BlobUploadsParts;
  private readonly known = new Set<string>();
  private readonly underWay = new Map<string, Promise<void>>();
  private readonly queue: (() => void)[] = [];
  private free = lanesCount;
  /** Blobs that this node put into object storage, and their bytes. */
  uploadedCount = 0;
  uploadedBytes = 0;

  constructor(parts: BlobUploadsParts) {
    this.parts = parts;
  }

  /** Blobs that are asked for and not there yet. */
  get waitingCount(): number {
    return this.underWay.size;
  }

  /** Each of the blobs (hashes in hex) is in object storage when it resolves. One that can't be brought there does not hold up the rest. */
  async ensure(wanted: Iterable<string>): Promise<void> {
    const outcomes = await Promise.allSettled([...wanted].filter((name) => !this.known.has(name)).map((name) => this.one(name)));
    for (const outcome of outcomes) if (outcome.status === "rejected") throw outcome.reason;
  }

  private one(name: string): Promise<void> {
    const already = this.underWay.get(name);
    if (already !== undefined) return already;
    const work = this.inLane(name).finally(() => this.underWay.delete(name));
    this.underWay.set(name, work);
    return work;
  }

  private async inLane(name: string): Promise<void> {
    if (this.free > 0) this.free--;
    else await new Promise<void>((resolve) => this.queue.push(resolve));
    try {
      await this.upload(name);
    } finally {
      const next = this.queue.shift();
      if (next !== undefined) next();
      else this.free++;
    }
    this.known.add(name);
    if (this.known.size > knownMax) this.known.delete(this.known.values().next().value as string);
  }

  private async upload(name: string): Promise<void> {
    const { cluster, objects, blob } = this.parts;
    const sha256 = fromHex(name);
    if (sha256 === undefined) throw new HopError("INTERNAL", `Cannot upload blob ${name}: that is no hash`);
    const key = blobKey(cluster, sha256);
    if (await isIntact(objects, key, sha256)) return;
    const bytes = await blob(sha256);
    await storeObject(objects, { key, bytes, sha256 });
    this.uploadedCount++;
    this.uploadedBytes += bytes.length;
  }
}

/** Whether the blob is there as it should be: by what the store recorded of it where it does that, else by reading it. */
async function isIntact(objects: ObjectStore, key: string, sha256: Uint8Array): Promise<boolean> {
  const head = await objects.head(key);
  if (head === undefined) return false;
  if (head.sha256 !== undefined) return bytesEqual(head.sha256, sha256);
  try {
    return (await objects.download(key, () => {}, { sha256 })) !== undefined;
  } catch (error) {
    if (error instanceof HopError && error.reason === "HASH_MISMATCH") return false;
    throw error;
  }
}
