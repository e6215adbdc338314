/** A machine's clocks: a wall clock that is set wrong, jumps and drifts, and a monotonic one that only drifts. */
import type { TimeSources } from "../../node/shard/physical-clock.ts";
import type { Schedule } from "./schedule.ts";

/** 2026-01-01, in milliseconds since 1970. */
const epochMs = 1_767_225_600_000;

export class SimulatedTime implements TimeSources {
  private readonly schedule: Schedule;
  /** How much faster than true time both clocks run. */
  readonly rate: number;
  /** Sum of all jumps of the wall clock, and what it was set wrong by at first. */
  jumpedMs: number;

  constructor(schedule: Schedule, driftPpm: number, offsetMs = 0) {
    this.schedule = schedule;
    this.rate = 1 + driftPpm / 1e6;
    this.jumpedMs = offsetMs;
  }

  wallMs(): number {
    return epochMs + this.monotonicMs() + this.jumpedMs;
  }

  monotonicMs(): number {
    // While nothing happens for long, clocks are kept right by others.
    const { nowMs, skippedMs } = this.schedule;
    return nowMs + (nowMs - skippedMs) * (this.rate - 1);
  }
}
