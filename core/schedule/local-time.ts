/**
 * From local times to instants, also on the days on which a zone's clocks change.
 *
 * Between two changes a zone's clocks are a constant ahead of UTC, so instants are looked for
 * within one such stretch at a time. Where clocks go forward, local times are left out; where they
 * go back, some come twice, and the policy says what fires. An expression for every hour of the
 * day counts hours that pass and not the clock's: no policy applies, none is left out or doubled.
 */
import type { ZoneReader } from "#core/base";
import { RepeatedTime, SkippedTime } from "#proto";
import { type Cron, dayMs, nextWall } from "./cron.ts";

export interface Place {
  readonly zones: ZoneReader;
  readonly zone: string;
  readonly skipped: number;
  readonly repeated: number;
}

/** Why an instant is not simply what the clock shows once: its local time was left out, or comes twice. */
export type ClockChange = "skipped" | "repeated";

export interface Instant {
  readonly atMs: number;
  readonly change?: ClockChange;
}

/** The first instant after `afterMs` at which the expression fires. Undefined where there is none in nine years. */
export function nextInstant(cron: Cron, place: Place, afterMs: number): Instant | undefined {
  const everyHour = cron.hour.length === 24;
  let after = Math.floor(afterMs / 1000) * 1000;
  let offset = offsetAt(place, after);
  const endMs = after + 9 * 366 * dayMs;
  while (after < endMs) {
    const wall = nextWall(cron, after + offset + 1000);
    if (wall === undefined) return undefined;
    const atMs = wall - offset;
    const changeMs = nextChange(place, { after, until: atMs, offset });
    if (changeMs !== undefined) {
      const behind = offsetAt(place, changeMs);
      if (!everyHour && place.skipped === SkippedTime.next) {
        const left = nextWall(cron, changeMs + offset);
        if (left !== undefined && left < changeMs + behind) return { atMs: changeMs, change: "skipped" };
      }
      after = changeMs - 1000;
      offset = behind;
      continue;
    }
    const twin = twinOf(place, atMs, offset);
    if (twin === undefined || everyHour) return { atMs };
    if (isWanted(place.repeated, twin)) return { atMs, change: "repeated" };
    after = atMs;
  }
  return undefined;
}

/** Whether the same local time comes again later, or came before, by another offset. */
function twinOf(place: Place, atMs: number, offset: number): "later" | "earlier" | undefined {
  for (const near of [atMs - dayMs, atMs + dayMs]) {
    const other = offsetAt(place, near);
    const twin = atMs + offset - other;
    if (twin !== atMs && offsetAt(place, twin) === other) return twin > atMs ? "later" : "earlier";
  }
  return undefined;
}

function isWanted(repeated: number, twin: "later" | "earlier"): boolean {
  return repeated === RepeatedTime.both || (repeated === RepeatedTime.first) === (twin === "later");
}

interface Stretch {
  readonly after: number;
  readonly until: number;
  readonly offset: number;
}

/** The first instant in (after, until] with another offset. Rules that hold for less than a day are not seen. */
function nextChange(place: Place, { after, until, offset }: Stretch): number | undefined {
  if (isFixed(place.zone)) return undefined;
  for (let from = after; from < until; from += dayMs) {
    let to = Math.min(from + dayMs, until);
    if (offsetAt(place, to) === offset) continue;
    let low = from;
    while (to - low > 1000) {
      const middle = low + Math.floor((to - low) / 2000) * 1000;
      if (offsetAt(place, middle) === offset) low = middle;
      else to = middle;
    }
    return to;
  }
  return undefined;
}

const isFixed = (zone: string) => zone === "" || zone === "UTC";

/** Whether this machine can tell the time in it. */
export const knowsZone = (zones: ZoneReader, zone: string, atMs: number) => isFixed(zone) || zones.offsetMs(zone, atMs) !== undefined;

function offsetAt({ zones, zone }: Place, atMs: number): number {
  const offset = isFixed(zone) ? 0 : zones.offsetMs(zone, atMs);
  if (offset === undefined) throw new RangeError(`Cannot tell the time in zone ${zone}: this machine does not know it`);
  return offset;
}
