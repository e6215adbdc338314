/** Schedules: when they fire, and what becomes of an instant. */
export { type CaughtUp, type Clockwork, type Coming, catchUp, coming, type Missed } from "./catch-up.ts";
export { parseCron } from "./cron.ts";
export type { ClockChange, Instant } from "./local-time.ts";
export { type Ahead, decideOverlap, type Overlap } from "./overlap.ts";
export { fires, jitterOf, nextFire, specProblem } from "./spec.ts";
