/**
 * Snapshots on their way to other nodes, at the node that gives them.
 *
 * One whose stream breaks, or whose reader falls silent, is kept for a while with the chunks that
 * may not have arrived: whoever comes back goes on where it stopped, in the same states.
 */
import { bytesEqual, type NodeId, type ShardId } from "#core/base";
import type { Timing } from "../timing.ts";
import { type SnapshotStores, snapshotChunks } from "./snapshot.ts";

/** What is kept behind the newest chunk: more than a stream carries unread. */
const keptBytesMin = 4 << 20;

export class OpenSnapshot {
  readonly transfer: Uint8Array;
  private readonly chunks: Generator<Uint8Array>;
  private readonly kept: Uint8Array[] = [];
  private keptBytes = 0;
  /** Number of the first chunk that is kept. */
  private first = 0;
  private at = 0;

  constructor(stores: SnapshotStores, shard: ShardId, transfer: Uint8Array) {
    this.transfer = transfer;
    this.chunks = snapshotChunks(stores, shard);
  }

  /** Goes on at chunk `from`; false where that is not to be had any more. */
  goOnAt(from: number): boolean {
    if (from < this.first || from > this.first + this.kept.length) return false;
    this.at = from;
    return true;
  }

  /** The next chunk, or undefined behind the last one. Throws `HopError` STORE_UNAVAILABLE where there is no checkpoint. */
  next(): Uint8Array | undefined {
    const known = this.kept[this.at - this.first];
    if (known !== undefined) {
      this.at++;
      return known;
    }
    const { value, done } = this.chunks.next();
    if (done === true) return undefined;
    this.keep(value);
    this.at++;
    return value;
  }

  close(): void {
    this.chunks.return(undefined);
  }

  private keep(chunk: Uint8Array): void {
    this.kept.push(chunk);
    this.keptBytes += chunk.length;
    for (let oldest = this.kept[0]; oldest !== undefined && this.keptBytes - oldest.length >= keptBytesMin; oldest = this.kept[0]) {
      this.kept.shift();
      this.keptBytes -= oldest.length;
      this.first++;
    }
  }
}

export class OpenSnapshots {
  private readonly timing: Pick<Timing, "after">;
  private readonly keptMs: number;
  /** By node and shard: those that nobody reads just now. */
  private readonly waiting = new Map<string, { readonly snapshot: OpenSnapshot; readonly stopTimer: () => void }>();

  constructor(timing: Pick<Timing, "after">, keptMs: number) {
    this.timing = timing;
    this.keptMs = keptMs;
  }

  /** The transfer that broke off, at chunk `from`; undefined where it can't be gone on with. Any other one to the node is over. */
  take(node: NodeId, shard: ShardId, asked: { readonly transfer: Uint8Array; readonly from: number }): OpenSnapshot | undefined {
    const found = this.waiting.get(keyOf(node, shard));
    if (found === undefined) return undefined;
    this.waiting.delete(keyOf(node, shard));
    found.stopTimer();
    const { snapshot } = found;
    if (asked.transfer.length > 0 && bytesEqual(snapshot.transfer, asked.transfer) && snapshot.goOnAt(asked.from)) return snapshot;
    snapshot.close();
    return undefined;
  }

  /** Its reader may come back. */
  keep(node: NodeId, shard: ShardId, snapshot: OpenSnapshot): void {
    const key = keyOf(node, shard);
    const older = this.waiting.get(key);
    older?.stopTimer();
    older?.snapshot.close();
    const stopTimer = this.timing.after(this.keptMs, () => {
      this.waiting.delete(key);
      snapshot.close();
    });
    this.waiting.set(key, { snapshot, stopTimer });
  }

  close(): void {
    for (const { snapshot, stopTimer } of this.waiting.values()) {
      stopTimer();
      snapshot.close();
    }
    this.waiting.clear();
  }
}

const keyOf = (node: NodeId, shard: ShardId) => `${node} ${shard}`;
