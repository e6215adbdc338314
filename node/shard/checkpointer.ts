/**
 * Saves changed states off the commit path, a few at a time, and lets idle ones leave memory.
 *
 * A state is saved only when the events it folds are committed and durable here. A checkpoint that
 * can't be saved costs a longer replay after a restart, nothing else.
 */
import { assert, errorText } from "#core/base";
import type { Checkpoint } from "#core/shard";
import type { Timing } from "../timing.ts";

/** What is checkpointed: a shard's machine, or placement's. */
export interface Checkpointed {
  figures(): { readonly dirtyRuns: number };
  capture(limit: number): Checkpoint;
  saved(): void;
  putBack(checkpoint: Checkpoint): void;
}

export interface CheckpointerParts {
  readonly machine: Checkpointed;
  readonly timing: Timing;
  readonly note: (level: "info" | "warn" | "error", what: string, fields?: Record<string, string | number>) => void;
  /** What it folds is committed and durable here. */
  readonly isSettled: (taken: Checkpoint) => boolean;
  /** Asks that what was appended becomes durable. */
  readonly hurry: () => void;
  /** Stores it; throws where it can't. */
  readonly save: (checkpoint: Checkpoint) => void;
  readonly evict: () => void;
}

const intervalMs = 200;
/** While nothing changes: what does then is saved that much later, and replayed after a crash. */
const idleMsMax = 1600;
/** After a save that failed. */
const failedMs = 1000;
/** Between saves when many states wait: what is saved then keeps up with what changes. */
const intervalMsMin = 10;
/** Keeps one pause of the node's thread at a few milliseconds. */
const rowsMin = 64;
const rowsMax = 256;
const evictEveryMs = 1000;
/** Between looks whether a captured state is durable yet, where nobody says so: twice that after each, as it may wait for a majority that is away. */
const settleMs = 2;
const settleMsMax = 32;

export class Checkpointer {
  private readonly parts: CheckpointerParts;
  private stopTimer = () => {};
  private evictedMs: number;
  private isStopped = false;
  private idleMs = intervalMs;
  private taken: Checkpoint | undefined;
  private flushes: { readonly isEnough: (saved: Checkpoint) => boolean; readonly done: () => void }[] = [];
  /** The last save failed. It is told once, however long a full disk lasts. */
  private isFailing = false;

  constructor(parts: CheckpointerParts) {
    this.parts = parts;
    this.evictedMs = parts.timing.monotonicMs();
    this.schedule();
  }

  stop(): void {
    this.isStopped = true;
    this.stopTimer();
  }

  /** Saves without pause until a checkpoint is enough, then calls `done`. */
  flush(isEnough: (saved: Checkpoint) => boolean, done: () => void): void {
    this.flushes.push({ isEnough, done });
    if (this.taken !== undefined) return;
    this.stopTimer();
    this.round();
  }

  /** What was captured may have become durable, or committed: it is saved now where it did. */
  look(): void {
    if (this.taken === undefined || this.isStopped || !this.parts.isSettled(this.taken)) return;
    this.stopTimer();
    this.finishWhenSettled();
  }

  private schedule(): void {
    // What is called on the way here may have begun one, which goes on by itself, or ended one, which has its timer.
    if (this.isStopped || this.taken !== undefined) return;
    this.stopTimer();
    const backlog = this.parts.machine.figures().dirtyRuns / rowsMax;
    const pause = this.flushes.length > 0 ? 0 : backlog <= 1 ? this.idleMs : Math.max(intervalMs / backlog, intervalMsMin);
    this.stopTimer = this.parts.timing.after(this.isFailing ? failedMs : pause, () => this.round());
  }

  private round(): void {
    if (this.isStopped) return;
    const { machine, timing, evict } = this.parts;
    const dirty = machine.figures().dirtyRuns;
    const isIdle = dirty === 0 && this.flushes.length === 0;
    this.idleMs = isIdle ? Math.min(this.idleMs * 2, idleMsMax) : intervalMs;
    if (!isIdle) return this.begin(this.flushes.length > 0 ? rowsMax : Math.min(Math.max(Math.ceil(dirty / 10), rowsMin), rowsMax));
    if (timing.monotonicMs() - this.evictedMs >= evictEveryMs) {
      evict();
      this.evictedMs = timing.monotonicMs();
    }
    this.schedule();
  }

  private begin(limit: number): void {
    assert(this.taken === undefined, "one checkpoint is taken at a time: what is captured twice is saved once");
    this.taken = this.parts.machine.capture(limit);
    if (!this.parts.isSettled(this.taken)) this.parts.hurry();
    this.finishWhenSettled();
  }

  private finishWhenSettled(nextMs = settleMs): void {
    const { taken } = this;
    if (this.isStopped || taken === undefined) return;
    if (!this.parts.isSettled(taken)) {
      this.stopTimer();
      this.stopTimer = this.parts.timing.after(nextMs, () => this.finishWhenSettled(Math.min(nextMs * 2, settleMsMax)));
      return;
    }
    this.taken = undefined;
    this.save(taken);
    // Whoever waited for it may have begun the next one.
    if (this.flushes.length > 0 && !this.isFailing && this.taken === undefined) return this.round();
    this.schedule();
  }

  private finishFlushes(saved: Checkpoint): void {
    const done = this.flushes.filter((flush) => flush.isEnough(saved));
    if (done.length === 0) return;
    this.flushes = this.flushes.filter((flush) => !done.includes(flush));
    for (const flush of done) flush.done();
  }

  private save(taken: Checkpoint): void {
    const { machine, note } = this.parts;
    try {
      this.parts.save(taken);
      machine.saved();
      this.finishFlushes(taken);
      if (this.isFailing) note("info", "checkpoint saved again");
      this.isFailing = false;
    } catch (error) {
      machine.putBack(taken);
      if (!this.isFailing)
        note("warn", "checkpoint not saved, and tried again until it is", {
          error: errorText(error),
        });
      this.isFailing = true;
    }
  }
}
