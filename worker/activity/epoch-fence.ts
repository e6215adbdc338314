/**
 * Refuses tasks of leaders that were deposed: a node that was cut off may still dispatch what it
 * no longer leads. The epochs of a shard's leadership leases only grow, so a task whose epoch is
 * below the highest one seen comes from such a node.
 */
export class EpochFence {
  /** Highest epoch seen, by shard. */
  private readonly highest = new Map<number, number>();

  /** The highest epoch seen of the shard, where the task's is below it; undefined = the task may run. */
  refuses(shard: number, epoch: number): number | undefined {
    const highest = this.highest.get(shard) ?? 0;
    if (epoch < highest) return highest;
    if (epoch > highest) this.highest.set(shard, epoch);
    return undefined;
  }
}
