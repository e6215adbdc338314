/** Checkpointed states on a simulated disk: saved whole or not at all. */
import type { Partition, StateReader } from "#core/base";
import type { Checkpoint, CheckpointRow } from "#core/shard";

export class StateDisk implements StateReader {
  readonly rows = new Map<Partition, CheckpointRow>();
  appliedIndex = 0;
  clockMs = 0;

  load(partition: Partition): Uint8Array | undefined {
    return this.rows.get(partition)?.state;
  }

  dueBefore(beforeMs: number, limit: number): Partition[] {
    const due = [...this.rows.values()].filter((row) => row.dueMs < beforeMs);
    due.sort((a, b) => a.dueMs - b.dueMs || (a.partition < b.partition ? -1 : 1));
    return due.slice(0, limit).map((row) => row.partition);
  }

  save(checkpoint: Checkpoint, clockMs: number): void {
    for (const row of checkpoint.rows) this.rows.set(row.partition, row);
    this.appliedIndex = checkpoint.appliedIndex;
    this.clockMs = clockMs;
  }
}
