/** Time that a test turns by hand. */
import type { Timing } from "../timing.ts";

export class VirtualTiming implements Timing {
  private nowMs = 1000;
  private timers: { atMs: number; run: () => void }[] = [];

  wallMs(): number {
    return this.nowMs;
  }

  monotonicMs(): number {
    return this.nowMs;
  }

  after(ms: number, run: () => void): () => void {
    const timer = { atMs: this.nowMs + ms, run };
    this.timers.push(timer);
    return () => {
      this.timers = this.timers.filter((each) => each !== timer);
    };
  }

  /** Lets `ms` pass, and runs what is due in its order. */
  pass(ms: number): void {
    const untilMs = this.nowMs + ms;
    for (;;) {
      const next = this.timers.filter((each) => each.atMs <= untilMs).sort((a, b) => a.atMs - b.atMs)[0];
      if (next === undefined) break;
      this.timers = this.timers.filter((each) => each !== next);
      this.nowMs = Math.max(this.nowMs, next.atMs);
      next.run();
    }
    this.nowMs = untilMs;
  }
}
