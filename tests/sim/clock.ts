/** The machine's clocks: a wall clock that jumps and drifts, and a monotonic one that only drifts. */
import type { TimeSources } from "../../node/shard/physical-clock.ts";
import type { Schedule } from "./schedule.ts";

/** 2026-01-01, in milliseconds since 1970. */
const epochMs = 1_767_225_600_000;

export class SimulatedTime implements TimeSources {
  private readonly schedule: Schedule;
  /** How much faster than true time both clocks run. */
  private readonly drift: number;
  /** Sum of all jumps of the wall clock. */
  jumpedMs = 0;

  constructor(schedule: Schedule, driftPpm: number) {
    this.schedule = schedule;
    this.drift = 1 + driftPpm / 1e6;
  }

  wallMs(): number {
    return epochMs + this.schedule.nowMs * this.drift + this.jumpedMs;
  }

  monotonicMs(): number {
    return this.schedule.nowMs * this.drift;
  }
}
