/** What shards take of a node's log, looked up now and then: to count it takes time with segments and shards. */
import type { ShardId } from "#core/base";
import type { LogStore } from "#store";
import type { Timing } from "../timing.ts";

const lookMs = 2000;

export class LogBytes {
  private readonly log: LogStore;
  private readonly timing: Pick<Timing, "monotonicMs">;
  private shards: ReadonlyMap<ShardId, number> = new Map();
  private lookedMs = Number.NEGATIVE_INFINITY;

  constructor(log: LogStore, timing: Pick<Timing, "monotonicMs">) {
    this.log = log;
    this.timing = timing;
  }

  /** Bytes of the shard's records that are not released, as of at most two seconds ago. */
  of(shard: ShardId): number {
    const nowMs = this.timing.monotonicMs();
    if (nowMs - this.lookedMs >= lookMs) {
      this.shards = this.log.usage().shards;
      this.lookedMs = nowMs;
    }
    return this.shards.get(shard) ?? 0;
  }
}
