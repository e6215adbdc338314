/** Whether a replica is over because its group, as far as this node or placement heard of it, has none on this node. */
import { inRange } from "#core/base";
import { holders, type ShardEntry } from "#core/placement";
import { membersOf } from "#core/raft";
import type { ShardReplica } from "./shard-replica.ts";
import type { ReplicaSurroundings } from "./surroundings.ts";

/** Looks at what placement wants, at least a tenth of a second apart. */
const silentLooksMax = 15;

export class Departure {
  private readonly own: ShardReplica;
  private readonly around: ReplicaSurroundings;
  private receivedBefore = 0;
  private silentLooks = 0;

  constructor(own: ShardReplica, around: ReplicaSurroundings) {
    this.own = own;
    this.around = around;
  }

  /** Looks whether it is over: that nobody talks to it shows in a few looks in a row. */
  isDue(): boolean {
    if (this.mayBeForgotten()) {
      const { received } = this.own.group;
      this.silentLooks = received === this.receivedBefore ? this.silentLooks + 1 : 0;
      this.receivedBefore = received;
    }
    return this.isOver();
  }

  /** Whether it is, as of the last look. */
  isOver(): boolean {
    const entry = this.around.placement.entry(this.own.shard);
    // It was merged away after it had left this node, whose replica would be in the way of its neighbour's.
    if (entry === undefined) return this.isTold() || this.isLeftOver();
    if (this.isExpected(entry)) return false;
    return this.isTold() || (this.mayBeForgotten() && this.silentLooks >= silentLooksMax);
  }

  /** Placement wants it here, or was told that it is. */
  private isExpected(entry: ShardEntry): boolean {
    const { self } = this.around;
    return entry.wanted.includes(self) || holders(entry).includes(self);
  }

  /** The group itself says that it is no member. */
  private isTold(): boolean {
    const { conf } = this.own.replica;
    return conf.voters.length > 0 && !membersOf(conf).includes(this.around.self);
  }

  /** The group goes on without it and does not talk to it any more: what placement was told of a later membership says so. */
  private mayBeForgotten(): boolean {
    const entry = this.around.placement.entry(this.own.shard);
    if (entry === undefined || this.isExpected(entry) || this.isTold()) return false;
    return entry.configIndex > this.own.replicaSet().configIndex;
  }

  /** The shard was merged away, and no replica here will ever take this one in. */
  private isLeftOver(): boolean {
    const { placement, shards, log } = this.around;
    const gone = placement.retired(this.own.shard);
    if (gone === undefined) return false;
    // Each of its members had all of its log then: this one was none any more.
    if (this.own.group.lastIndex < gone.through) return true;
    const absorber = shards.replica(gone.into);
    if (absorber === undefined) return log.isRemoved(gone.into) || !log.shards().includes(gone.into);
    // It came here later, or comes: with the keys of this one in its snapshot.
    return absorber.isBlank || inRange(absorber.range, this.own.range.first);
  }
}
