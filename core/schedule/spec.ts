/** What a schedule says of its instants: which is the next, and whether it says anything sensible. */
import { limits, Prng, seedOf, type ZoneReader } from "#core/base";
import { RepeatedTime, type ScheduleSpec, SkippedTime } from "#proto";
import { type Cron, parseCron } from "./cron.ts";
import { type Instant, knowsZone, nextInstant } from "./local-time.ts";

const parsed = (text: string): Cron => {
  const cron = parseCron(text);
  if ("problem" in cron) throw new RangeError(`Cannot use cron expression "${text}": ${cron.problem}`);
  return cron;
};

/** A specification is asked for many instants in a row, and reading an expression costs more than its next time does. */
const known = new WeakMap<ScheduleSpec, readonly Cron[]>();

function cronsOf(spec: ScheduleSpec): readonly Cron[] {
  let crons = known.get(spec);
  if (crons === undefined) {
    crons = spec.cron.map(parsed);
    known.set(spec, crons);
  }
  return crons;
}

/** The first instant after `afterMs` at which the schedule fires, without jitter. Undefined: it never does again. */
export function nextFire(spec: ScheduleSpec, zones: ZoneReader, afterMs: number): Instant | undefined {
  const after = Math.max(afterMs, spec.fromMs - 1);
  const found = [intervalAfter(spec, after), onceAfter(spec, after)];
  for (const cron of cronsOf(spec)) found.push(nextInstant(cron, { ...spec, zones }, after));
  const first = found.reduce((a, b) => (a === undefined || (b !== undefined && b.atMs < a.atMs) ? b : a), undefined);
  return first === undefined || (spec.untilMs > 0 && first.atMs >= spec.untilMs) ? undefined : first;
}

function intervalAfter({ everyMs, offsetMs }: ScheduleSpec, after: number): Instant | undefined {
  if (everyMs === 0) return undefined;
  return { atMs: (Math.floor((after - offsetMs) / everyMs) + 1) * everyMs + offsetMs };
}

function onceAfter({ atMs }: ScheduleSpec, after: number): Instant | undefined {
  const next = Math.min(...atMs.filter((one) => one > after));
  return next === Number.POSITIVE_INFINITY ? undefined : { atMs: next };
}

/** Up to `count` instants after `afterMs`, in order. */
export function fires(spec: ScheduleSpec, zones: ZoneReader, afterMs: number, count: number): Instant[] {
  const found: Instant[] = [];
  for (let after = afterMs; found.length < count; ) {
    const next = nextFire(spec, zones, after);
    if (next === undefined) break;
    found.push(next);
    after = next.atMs;
  }
  return found;
}

/**
 * By how much the start for instant `atMs` of schedule `id` is put off, in milliseconds: always the
 * same, less than the jitter, and less than what is between it and the next instant.
 */
export function jitterOf(spec: ScheduleSpec, id: string, atMs: number, nextMs: number | undefined): number {
  const bound = Math.min(spec.jitterMs, nextMs === undefined ? spec.jitterMs : nextMs - atMs);
  return bound <= 0 ? 0 : new Prng(seedOf(`${id}@${atMs}`)).below(bound);
}

/** What is wrong with it, or undefined. A spec without problem fires at least once after `nowMs`. */
export function specProblem(spec: ScheduleSpec, zones: ZoneReader, nowMs: number): string | undefined {
  const { cron, zone, everyMs, offsetMs, atMs, jitterMs, fromMs, untilMs } = spec;
  if (cron.length === 0 && everyMs === 0 && atMs.length === 0) return "it says no time: give a cron expression, an interval or an instant";
  if (cron.length > limits.scheduleTimesMax || atMs.length > limits.scheduleTimesMax) {
    return `it has ${Math.max(cron.length, atMs.length)} times, at most ${limits.scheduleTimesMax} are allowed`;
  }
  for (const text of cron) {
    const found = parseCron(text);
    if ("problem" in found) return `cron expression "${text}" can't be used: ${found.problem}`;
  }
  if (!knowsZone(zones, zone, nowMs)) return `there is no time zone ${zone}; want an IANA name, such as Europe/Berlin`;
  if (everyMs > 0 && everyMs < limits.scheduleIntervalMsMin) {
    return `its interval has ${everyMs} ms, at least ${limits.scheduleIntervalMsMin} are needed`;
  }
  if (offsetMs > 0 && offsetMs >= everyMs) return `its offset of ${offsetMs} ms is not below its interval of ${everyMs} ms`;
  if (jitterMs > limits.scheduleJitterMsMax) return `its jitter has ${jitterMs} ms, at most ${limits.scheduleJitterMsMax} are allowed`;
  if (untilMs > 0 && untilMs <= fromMs) return "it ends before it begins";
  if (spec.skipped > SkippedTime.skip || spec.repeated > RepeatedTime.both)
    return "this version does not know its policy for changes of the clock";
  return nextFire(spec, zones, nowMs) === undefined ? "it never fires: no instant that it names is still to come" : undefined;
}
