/** Time in a workflow: the logical time of the event that resumed it, never a wall clock. */
import { checkDuration, describe } from "./checks.ts";
import { engine } from "./engine.ts";

/**
 * Waits without holding a thread or memory, for up to 100 years, across restarts.
 *
 * Takes milliseconds, or the moment as `{ until: Date | millisecondsSince1970 }`. Fractions are
 * rounded up. Nothing or less (a moment in the past) is a durable timer of 0 ms. Throws
 * `TypeError` for NaN and for what is not a number, `RangeError` for an infinite time and for
 * more than 100 years. Rejects with `CancelledError` when the run is cancelled meanwhile.
 */
export function sleep(time: number | { readonly until: Date | number }): Promise<void> {
  return engine("sleep()").timer(typeof time === "object" && time !== null ? msUntil(time.until) : checkDuration("sleep()", time));
}

function msUntil(until: unknown): number {
  const at = until instanceof Date ? until.getTime() : until;
  if (typeof at !== "number" || Number.isNaN(at)) {
    throw new TypeError(`sleep({ until }) must be a valid Date or a number of milliseconds since 1970, got ${describe(until)}`);
  }
  return checkDuration("sleep({ until })", at - now());
}

/** Logical time in milliseconds since 1970. `Date.now()` is the same in a workflow. */
export function now(): number {
  return engine("now()").nowMs();
}
