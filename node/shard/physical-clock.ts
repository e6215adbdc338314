/**
 * Physical time for the hybrid logical clock: monotonic, near the wall clock.
 *
 * A step back of the wall clock changes nothing. A step forward of up to `clockJumpMsMax` is
 * followed at once; a larger one is caught up with at no more than twice the speed of time, so
 * that a wrong clock can't fire every timer at once.
 */
import { limits } from "#core/base";

export interface TimeSources {
  /** Milliseconds since 1970 by the wall clock. */
  wallMs(): number;
  /** Milliseconds that only ever grow. */
  monotonicMs(): number;
}

export const systemTime: TimeSources = { wallMs: () => Date.now(), monotonicMs: () => performance.now() };

export class PhysicalClock {
  private readonly sources: TimeSources;
  private atMs: number;
  private monotonicMs: number;

  /** Starts at the wall clock, or at `floorMs` where the log has seen a later time. */
  constructor(floorMs: number, sources: TimeSources = systemTime) {
    this.sources = sources;
    this.atMs = Math.max(sources.wallMs(), floorMs);
    this.monotonicMs = sources.monotonicMs();
  }

  /** Whole milliseconds since 1970. */
  nowMs(): number {
    const monotonicMs = this.sources.monotonicMs();
    const elapsed = Math.max(monotonicMs - this.monotonicMs, 0);
    this.monotonicMs = monotonicMs;
    this.atMs += elapsed;
    const behind = this.sources.wallMs() - this.atMs;
    if (behind > 0) this.atMs += behind <= limits.clockJumpMsMax ? behind : Math.min(behind, elapsed);
    return Math.floor(this.atMs);
  }
}
