/**
 * What a node does again and again, one round after the other: the next one begins a while after the
 * last one has ended, however long that took. After one that failed the while grows, where it is to.
 */
import type { Timing } from "./timing.ts";

export interface RoundsParts {
  readonly timing: Timing;
  /** From the start, and from the end of each round, to the next one. */
  readonly everyMs: number;
  readonly round: () => void | Promise<void>;
  /** Is told what a round threw, and when the next one is. Left out: nothing is caught, as only a bug throws. */
  readonly failed?: (error: unknown, inMs: number) => void;
  /** Pause after a round that failed, doubled with each that follows it up to the other. Left out: none but `everyMs`. */
  readonly pauseMs?: { readonly min: number; readonly max: number };
}

export class Rounds {
  private readonly parts: RoundsParts;
  private stopTimer = () => {};
  private pauseMs = 0;
  /** A round that is under way looks here whether to go on. */
  isStopped = false;

  constructor(parts: RoundsParts) {
    this.parts = parts;
  }

  start(): void {
    const { timing, everyMs } = this.parts;
    this.stopTimer = timing.after(Math.max(everyMs, this.pauseMs), () => void this.run());
  }

  stop(): void {
    this.isStopped = true;
    this.stopTimer();
  }

  private async run(): Promise<void> {
    const { round, failed, everyMs, pauseMs } = this.parts;
    try {
      await round();
      this.pauseMs = 0;
    } catch (error) {
      if (failed === undefined) throw error;
      if (pauseMs !== undefined) this.pauseMs = Math.min(Math.max(this.pauseMs * 2, pauseMs.min), pauseMs.max);
      failed(error, Math.max(everyMs, this.pauseMs));
    } finally {
      if (!this.isStopped) this.start();
    }
  }
}
