/**
 * Requests for votes in shards that this node does not have yet: the split that gives birth to one may be
 * carried out here a moment later than where its first leader is. They are kept for that moment,
 * so that the candidate need not ask again: who asks anew before the answers are there throws them away.
 */
import type { ShardId } from "#core/base";
import { asksForVote, type Message } from "#core/raft";

/** Longer than replicas that keep up are apart; older ones are asked anew by then. */
const keptMs = 300;
/** Of all shards together. */
const requestsMax = 64;

interface Early {
  readonly shard: ShardId;
  readonly message: Message;
  readonly atMs: number;
}

export class EarlyVotes {
  private readonly nowMs: () => number;
  private kept: Early[] = [];

  constructor(nowMs: () => number) {
    this.nowMs = nowMs;
  }

  /** Keeps the newest request of each candidate; anything else is not for later. */
  keep(shard: ShardId, message: Message): void {
    if (!asksForVote(message)) return;
    const others = this.fresh().filter((each) => each.shard !== shard || each.message.from !== message.from);
    this.kept = [...others.slice(1 - requestsMax), { shard, message, atMs: this.nowMs() }];
  }

  /** Those for the shard, which is there now. */
  take(shard: ShardId): Message[] {
    const all = this.fresh();
    this.kept = all.filter((each) => each.shard !== shard);
    return all.filter((each) => each.shard === shard).map(({ message }) => message);
  }

  private fresh(): Early[] {
    const fromMs = this.nowMs() - keptMs;
    return this.kept.filter(({ atMs }) => atMs >= fromMs);
  }
}
