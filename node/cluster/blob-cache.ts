/**
 * Makes space on a disk that fills: of blobs that object storage has, a node's copy is a cache, and
 * those that were stored longest ago go first, each when the one in object storage has been read. No
 * other blob is touched.
 */
import { errorText, HopError } from "#core/base";
import type { BlobStore, KeptBlob } from "#store";
import { Rounds } from "../rounds.ts";
import type { Timing } from "../timing.ts";
import type { StoredBlobs } from "./cluster-blobs.ts";

export interface DiskSpace {
  readonly freeBytes: number;
  readonly totalBytes: number;
}

export interface BlobCacheParts {
  readonly store: Pick<BlobStore, "kept" | "remove">;
  readonly stored: Pick<StoredBlobs, "download">;
  readonly space: () => Promise<DiskSpace>;
  readonly timing: Timing;
  readonly note: (level: "info" | "warn", what: string, fields?: Record<string, string | number>) => void;
}

const lookMs = 30_000;
/** Copies go when less of the disk than the first is free, until as much as the second is. */
const freeShareMin = 0.1;
const freeShareWanted = 0.15;
/** What was put or claimed since then stays: whoever did is about to use it. */
const idleMs = 600_000;

export class BlobCache {
  private readonly parts: BlobCacheParts;
  private readonly rounds: Rounds;

  constructor(parts: BlobCacheParts) {
    this.parts = parts;
    this.rounds = new Rounds({
      timing: parts.timing,
      everyMs: lookMs,
      round: () => this.lookAndTell(),
      failed: (error) => parts.note("warn", "the disk fills, and copies of blobs could not be removed", { reason: errorText(error) }),
    });
  }

  start(): void {
    this.rounds.start();
  }

  close(): void {
    this.rounds.stop();
  }

  private async lookAndTell(): Promise<void> {
    const bytes = await this.look();
    if (bytes > 0) this.parts.note("info", "the disk fills: copies of blobs that object storage has were removed", { bytes });
  }

  /** Returns the bytes that it freed. Rejects with `HopError` where it can't be known what object storage has. */
  async look(): Promise<number> {
    const { store, stored, space, timing } = this.parts;
    const { freeBytes, totalBytes } = await space();
    if (freeBytes >= totalBytes * freeShareMin) return 0;
    const wanted = totalBytes * freeShareWanted - freeBytes;
    const idleBefore = timing.wallMs() - idleMs;
    const idle: KeptBlob[] = [];
    for await (const blob of store.kept()) if (blob.touchedMs <= idleBefore) idle.push(blob);
    let freed = 0;
    for (const { sha256 } of idle.sort((a, b) => a.touchedMs - b.touchedMs)) {
      if (freed >= wanted) break;
      if (await isStored(stored, sha256)) freed += (await store.remove(sha256, idleBefore)) ?? 0;
    }
    return freed;
  }
}

/** Whether the blob is there, and its bytes are right. Rejects with `HopError` where that can't be known. */
async function isStored(stored: BlobCacheParts["stored"], sha256: Uint8Array): Promise<boolean> {
  try {
    return (await stored.download(sha256, () => {})) !== undefined;
  } catch (error) {
    if (error instanceof HopError && error.reason === "HASH_MISMATCH") return false;
    throw error;
  }
}
