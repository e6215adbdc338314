/** Partitions changed since their last checkpoint. */
import type { Partition } from "#core/base";

export interface PlacementRow {
  readonly partition: Partition;
  readonly state: Uint8Array;
  /** Infinity: nothing of placement needs attention by itself. */
  readonly dueMs: number;
  /** Log index that the state is the fold of. */
  readonly index: number;
  /** Index of the first change that this row saves. */
  readonly changedFrom: number;
}

/** Shaped like a shard's, so that one thing saves both. */
export interface PlacementCheckpoint {
  readonly rows: PlacementRow[];
  /** With these rows saved, every partition is saved as of this index or later. */
  readonly appliedIndex: number;
  /** May be saved once the log is durable through this index. */
  readonly durableIndex: number;
}

export class UnsavedParts {
  /** Oldest first, with the index of the first change. */
  private readonly changes = new Map<Partition, number>();

  get count(): number {
    return this.changes.size;
  }

  changed(partition: Partition, index: number): void {
    if (!this.changes.has(partition)) this.changes.set(partition, index);
  }

  capture(lastIndex: number, limit: number, encode: (partition: Partition) => Uint8Array): PlacementCheckpoint {
    const rows: PlacementRow[] = [];
    for (const [partition, changedFrom] of this.changes) {
      if (rows.length >= limit) break;
      this.changes.delete(partition);
      rows.push({ partition, state: encode(partition), dueMs: Number.POSITIVE_INFINITY, index: lastIndex, changedFrom });
    }
    const [oldest] = this.changes.values();
    return { rows, appliedIndex: oldest === undefined ? lastIndex : oldest - 1, durableIndex: lastIndex };
  }

  putBack(checkpoint: PlacementCheckpoint): void {
    const changes = new Map(this.changes);
    for (const row of checkpoint.rows) changes.set(row.partition, row.changedFrom);
    // The oldest change comes first again: the low-water mark is read there.
    this.changes.clear();
    for (const [partition, index] of [...changes].sort((a, b) => a[1] - b[1])) this.changes.set(partition, index);
  }
}
