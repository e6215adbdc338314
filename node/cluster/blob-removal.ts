/**
 * A node's part in collecting blobs: which of its blobs are old, which blobs its log names, and
 * the removal of those that nothing names.
 *
 * A blob is old when nobody put or claimed it for the grace period, by this node's clock. It is
 * looked at again when it is removed: one that was claimed meanwhile stays. A node that has just
 * begun, or whose clock was set, has no old blobs until commands from before are certainly over.
 */
import { fromHex, toHex } from "#core/base";
import { decodeBlobHashes, decodeBlobRequest, encodeBlobHashes, encodeOldBlobs, fromBytes, toBytes } from "#proto";
import type { BlobStore, LogStore } from "#store";
import type { PeerNet } from "../peer/peer-net.ts";
import type { Timing } from "../timing.ts";
import { namedBy } from "./blob-names.ts";

export const removalCalls = { old: "blob.old", named: "blob.named", forget: "blob.forget" } as const;

export interface BlobRemovalParts {
  readonly net: Pick<PeerNet, "serve">;
  readonly store: Pick<BlobStore, "kept" | "remove">;
  readonly log: Pick<LogStore, "shards" | "scan" | "released">;
  readonly timing: Pick<Timing, "wallMs" | "monotonicMs">;
  readonly graceMs: number;
}

/** A command that was admitted is decided, or given up, long before this is over. */
const commandMsMax = 600_000;
/** The two clocks of a machine part by no more than this unless one was set. */
const clockStepMs = 60_000;
const answeredMax = 50_000;

export class BlobRemoval {
  private readonly parts: BlobRemovalParts;
  private steadySinceMs: number;
  private offsetMs: number;
  /** What this node removed in this life. */
  removedCount = 0;
  removedBytes = 0;

  constructor(parts: BlobRemovalParts) {
    this.parts = parts;
    const { net, log, timing } = parts;
    this.steadySinceMs = timing.monotonicMs();
    this.offsetMs = timing.wallMs() - timing.monotonicMs();
    net.serve(removalCalls.old, async (_, body) => {
      const hasReleased = log.shards().some((shard) => log.released(shard) > 0);
      return toBytes(encodeOldBlobs, { sha256: await this.old(fromBytes(decodeBlobRequest, body).sha256), hasReleased });
    });
    net.serve(removalCalls.named, async (_, body) => {
      const asked = new Set(fromBytes(decodeBlobHashes, body).sha256.map(toHex));
      const named = await namedBy(log, asked);
      return toBytes(encodeBlobHashes, { sha256: [...named].map((name) => fromHex(name) as Uint8Array) });
    });
    net.serve(removalCalls.forget, async (_, body) => {
      const asked = fromBytes(decodeBlobHashes, body).sha256.map((each) => each.slice());
      return toBytes(encodeBlobHashes, { sha256: await this.forget(asked) });
    });
  }

  /** As many as one pass takes, from `start` on. */
  private async old(start: Uint8Array): Promise<Uint8Array[]> {
    const before = this.oldBeforeMs();
    const old: Uint8Array[] = [];
    for await (const { sha256, touchedMs } of this.parts.store.kept(start)) {
      if (touchedMs <= before) old.push(sha256);
      if (old.length === answeredMax) break;
    }
    return old;
  }

  private async forget(asked: readonly Uint8Array[]): Promise<Uint8Array[]> {
    const before = this.oldBeforeMs();
    const removed: Uint8Array[] = [];
    for (const sha256 of asked) {
      const bytes = await this.parts.store.remove(sha256, before);
      if (bytes === undefined) continue;
      removed.push(sha256);
      this.removedCount++;
      this.removedBytes += bytes;
    }
    return removed;
  }

  /** Wall-clock time at which a blob must have been touched last to be old. */
  private oldBeforeMs(): number {
    const { timing, graceMs } = this.parts;
    const [wallMs, nowMs] = [timing.wallMs(), timing.monotonicMs()];
    if (Math.abs(wallMs - nowMs - this.offsetMs) > clockStepMs) {
      this.offsetMs = wallMs - nowMs;
      this.steadySinceMs = nowMs;
    }
    const isSteady = nowMs - this.steadySinceMs >= Math.min(graceMs, commandMsMax);
    return isSteady ? wallMs - graceMs : Number.NEGATIVE_INFINITY;
  }
}
