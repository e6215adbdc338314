/**
 * How a replica ends: another shard takes its keys in, or its group goes on without it.
 *
 * Before either, what it saved outlives a loss of power: whoever has its keys then, and shards that it gave
 * birth to, rest on that.
 */
import { type Index, ifAvailable } from "#core/base";
import { Departure } from "./departure.ts";
import type { ShardReplica } from "./shard-replica.ts";
import type { ReplicaSurroundings } from "./surroundings.ts";

export class Ending {
  private readonly own: ShardReplica;
  private readonly around: ReplicaSurroundings;
  private readonly departure: Departure;
  /** Everything through this index is being saved. */
  private finishing = 0;
  /** What was saved through this index outlives a loss of power. */
  private syncedThrough = 0;
  private isSyncing = false;

  constructor(own: ShardReplica, around: ReplicaSurroundings) {
    this.own = own;
    this.around = around;
    this.departure = new Departure(own, around);
  }

  /** The machine is built anew: what it was waited for comes again. */
  restart(): void {
    this.finishing = 0;
  }

  /** As `ShardReplica.finish`. */
  finish(through: Index): boolean {
    const { replica, shard } = this.own;
    replica.applyThrough(through);
    if (replica.appliedIndex < through) return false;
    if (this.syncedThrough >= through) return true;
    if ((ifAvailable(() => this.around.checkpoint.meta(shard))?.appliedIndex ?? 0) >= through) {
      this.sync(() => {
        this.syncedThrough = through;
      });
      return false;
    }
    if (this.finishing !== through) this.own.flushThrough(through);
    this.finishing = through;
    return false;
  }

  /** Ends the replica where its group goes on without it. */
  look(): void {
    if (!this.departure.isDue()) return;
    this.sync(() => {
      if (this.departure.isOver()) this.around.shards.removed(this.own.shard);
    });
  }

  /** Calls `done` when what is saved now outlives a loss of power, unless that can't be had, or somebody else waits for it. */
  private sync(done: () => void): void {
    if (this.isSyncing) return;
    this.isSyncing = true;
    this.around.checkpoint.syncAside((isSynced) => {
      this.isSyncing = false;
      if (isSynced && !this.own.gone.signal.aborted) done();
    });
  }
}
