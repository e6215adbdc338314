/** Schedules: when they fire, and what becomes of an instant. */
export { type CaughtUp, type Clockwork, type Coming, catchUp, coming, dueMsOf, type Missed } from "./catch-up.ts";
export { parseCron } from "./cron.ts";
export { type ClockChange, type Instant, knowsZone } from "./local-time.ts";
export { type Ahead, decideOverlap, type Overlap } from "./overlap.ts";
export { fires, nextFire, specProblem } from "./spec.ts";
