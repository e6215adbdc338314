/** Which instants are due, and which of them are too late: nobody led while they passed. */
import { limits, type ZoneReader } from "#core/base";
import type { ScheduleSpec } from "#proto";
import { jitterOf, nextFire } from "./spec.ts";

/** An instant that is still to come or to be dealt with. */
export interface Coming {
  /** As the specification has it. */
  readonly atMs: number;
  /** With its jitter. */
  readonly dueMs: number;
}

export interface Clockwork {
  readonly spec: ScheduleSpec;
  readonly zones: ZoneReader;
  /** Of the schedule: the jitter's seed. */
  readonly id: string;
}

/** The first instant after `afterMs`. */
export function coming(clockwork: Clockwork, afterMs: number): Coming | undefined {
  const next = nextFire(clockwork.spec, clockwork.zones, afterMs);
  if (next === undefined) return undefined;
  return { atMs: next.atMs, dueMs: dueMsOf(clockwork, next.atMs) };
}

/** When the start for instant `atMs` is due: with its jitter, which ends before the next instant. */
export function dueMsOf({ spec, zones, id }: Clockwork, atMs: number): number {
  const following = spec.jitterMs > 0 ? nextFire(spec, zones, atMs)?.atMs : undefined;
  return atMs + jitterOf(spec, id, atMs, following);
}

/** Instants in a row that were missed. */
export interface Missed {
  readonly firstMs: number;
  readonly lastMs: number;
  readonly count: number;
}

export interface CaughtUp {
  /** Undefined: none was. */
  readonly missed: Missed | undefined;
  /** The first one that was not missed, be it due or not; undefined: there is none. */
  readonly next: Coming | undefined;
}

/**
 * Steps over what was due longer than `windowMs` ago. Bounded: where more was missed than one step may look at,
 * `next` is another one that was.
 */
export function catchUp(clockwork: Clockwork, from: Coming, at: { readonly nowMs: number; readonly windowMs: number }): CaughtUp {
  const lateMs = at.nowMs - at.windowMs;
  let next: Coming | undefined = from;
  let last = from;
  let count = 0;
  while (next !== undefined && next.dueMs < lateMs && count < limits.scheduleMissedMax) {
    count++;
    last = next;
    next = coming(clockwork, next.atMs);
  }
  return { missed: count === 0 ? undefined : { firstMs: from.atMs, lastMs: last.atMs, count }, next };
}
