/**
 * Saves changed states off the commit path, a few at a time, and lets idle runs leave memory.
 *
 * A state is saved only when the events it folds are durable. A checkpoint that can't be saved
 * costs a longer replay after a restart, nothing else.
 */
import type { ShardId } from "#core/base";
import type { Checkpoint, ShardMachine } from "#core/shard";
import type { CheckpointStore, LogStore } from "#store";

export interface CheckpointerParts {
  readonly shard: ShardId;
  readonly machine: ShardMachine;
  readonly log: LogStore;
  readonly checkpoint: CheckpointStore;
  readonly note: (level: "info" | "warn" | "error", what: string, fields?: Record<string, string | number>) => void;
  settled(): Promise<void>;
  evict(): void;
}

const intervalMs = 200;
/** After a save that failed. */
const failedMs = 1000;
/** Between saves when many runs wait: what is saved then keeps up with what changes. */
const intervalMsMin = 10;
/** Keeps one pause of the node's thread at a few milliseconds. */
const rowsMin = 64;
const rowsMax = 256;
const evictEveryMs = 1000;

export class Checkpointer {
  private readonly parts: CheckpointerParts;
  private timer: ReturnType<typeof setTimeout> | undefined;
  private evictedMs = performance.now();
  private isStopped = false;
  /** The last save failed. It is told once, however long a full disk lasts. */
  private isFailing = false;

  constructor(parts: CheckpointerParts) {
    this.parts = parts;
    this.schedule();
  }

  /** Saves everything that changed. */
  async close(): Promise<void> {
    this.stop();
    while (this.parts.machine.figures().dirtyRuns > 0) if (!(await this.save(rowsMax))) return;
  }

  stop(): void {
    this.isStopped = true;
    clearTimeout(this.timer);
  }

  private schedule(): void {
    if (this.isStopped) return;
    if (this.isFailing) {
      this.timer = setTimeout(() => void this.round(), failedMs);
      return;
    }
    const backlog = this.parts.machine.figures().dirtyRuns / rowsMax;
    this.timer = setTimeout(() => void this.round(), backlog <= 1 ? intervalMs : Math.max(intervalMs / backlog, intervalMsMin));
  }

  private async round(): Promise<void> {
    const dirty = this.parts.machine.figures().dirtyRuns;
    if (dirty > 0) await this.save(Math.min(Math.max(Math.ceil(dirty / 10), rowsMin), rowsMax));
    if (!this.isStopped && performance.now() - this.evictedMs >= evictEveryMs) {
      this.parts.evict();
      this.evictedMs = performance.now();
    }
    this.schedule();
  }

  private async save(limit: number): Promise<boolean> {
    const { shard, machine, checkpoint, note } = this.parts;
    let taken: Checkpoint | undefined;
    try {
      taken = machine.capture(limit);
      await this.parts.settled();
      checkpoint.save(taken.rows, { shard, appliedIndex: taken.appliedIndex, clockMs: machine.clockMs });
      machine.saved();
      if (this.isFailing) note("info", "checkpoint saved again");
      this.isFailing = false;
      return true;
    } catch (error) {
      if (taken !== undefined) machine.putBack(taken);
      if (!this.isStopped && !this.isFailing)
        note("warn", "checkpoint not saved, and tried again until it is", {
          error: error instanceof Error ? error.message : String(error),
        });
      this.isFailing = true;
      return false;
    }
  }
}
