/**
 * How much of each shard waits for object storage: an outage of it stops nothing until a shard's
 * tail has grown to its bound, and then only what would bring new work.
 */
import type { Rejection, ShardId } from "#core/base";

/** Kinds of commands that bring new work; what ends or repairs a run goes on. */
const producing: ReadonlySet<string> = new Set(["start", "signal", "call"]);
const retryAfterMs = 1000;

export class HotTails {
  private readonly bytesMax: number;
  private readonly bytes = new Map<ShardId, number>();

  constructor(bytesMax: number) {
    this.bytesMax = bytesMax;
  }

  /** So much of the shard's log is not sealed, about. */
  note(shard: ShardId, bytes: number): void {
    if (bytes > this.bytesMax) this.bytes.set(shard, bytes);
    else this.bytes.delete(shard);
  }

  /** Why the shard can't take a command of this kind now, or undefined. Cheap: it is asked for each command. */
  refusal(shard: ShardId, kind: string): Rejection | undefined {
    if (this.bytes.size === 0 || !producing.has(kind)) return undefined;
    const bytes = this.bytes.get(shard);
    if (bytes === undefined) return undefined;
    const mib = (count: number) => `${(count / (1 << 20)).toFixed(1)} MiB`;
    const message =
      `Cannot take the request: ${mib(bytes)} of shard ${shard} wait for object storage, at most ${mib(this.bytesMax)} may; ` +
      "it goes on by itself when object storage answers again";
    return { reject: "BUFFER_FULL", message, retryAfterMs };
  }
}
