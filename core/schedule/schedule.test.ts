import { expect, test } from "bun:test";
import type { ZoneReader } from "#core/base";
import { OverlapPolicy, RepeatedTime, type ScheduleSpec, SkippedTime } from "#proto";
import { catchUp, coming } from "./catch-up.ts";
import { parseCron } from "./cron.ts";
import { decideOverlap } from "./overlap.ts";
import { fires, jitterOf, nextFire, specProblem } from "./spec.ts";

const hourMs = 3600_000;
const dayMs = 24 * hourMs;
/** Clocks go forward an hour after ten days of 1970, and back after twenty. */
const zones: ZoneReader = {
  offsetMs: (zone, atMs) => (zone === "Test/Zone" ? (atMs >= 10 * dayMs && atMs < 20 * dayMs ? hourMs : 0) : undefined),
};
const spec = (part: Partial<ScheduleSpec>): ScheduleSpec => ({
  cron: [],
  zone: "",
  skipped: SkippedTime.next,
  repeated: RepeatedTime.first,
  everyMs: 0,
  offsetMs: 0,
  atMs: [],
  fromMs: 0,
  untilMs: 0,
  jitterMs: 0,
  ...part,
});
const times = (part: Partial<ScheduleSpec>, afterMs: number, count: number) =>
  fires(spec(part), zones, afterMs, count).map(({ atMs }) => atMs);

test("intervals count from 1970 and their offset, whatever the time they are asked at", () => {
  expect(times({ everyMs: 10_000, offsetMs: 3000 }, 0, 3)).toEqual([3000, 13_000, 23_000]);
  expect(times({ everyMs: 10_000, offsetMs: 3000 }, 13_000, 1)).toEqual([23_000]);
  expect(times({ everyMs: 10_000, offsetMs: 3000 }, 12_999, 1)).toEqual([13_000]);
});

test("single instants fire once each, in order, and then nothing does", () => {
  expect(times({ atMs: [5000, 7000] }, 0, 9)).toEqual([5000, 7000]);
  expect(nextFire(spec({ atMs: [5000, 7000] }), zones, 7000)).toBeUndefined();
});

test("what is said several times at once fires once", () => {
  expect(times({ cron: ["@hourly", "0 */2 * * *"], everyMs: 2 * hourMs, atMs: [hourMs] }, 0, 3)).toEqual([hourMs, 2 * hourMs, 3 * hourMs]);
});

test("nothing fires before the first bound, or at the second", () => {
  expect(times({ everyMs: 10_000, fromMs: 20_000, untilMs: 40_000 }, 0, 9)).toEqual([20_000, 30_000]);
});

test("seconds are the first of six fields", () => {
  expect(times({ cron: ["*/20 * * * * *"] }, 59_000, 3)).toEqual([60_000, 80_000, 100_000]);
});

test("an expression for every hour counts hours that pass: a change of clocks neither adds nor takes any", () => {
  const hourly = times({ cron: ["30 * * * *"], zone: "Test/Zone" }, 9 * dayMs, 24 * 12);
  expect(hourly.every((at, i) => i === 0 || at - (hourly[i - 1] as number) === hourMs)).toBe(true);
});

test("a left-out time says so, and so does a doubled one", () => {
  const daily = (more: Partial<ScheduleSpec>, afterMs: number) =>
    fires(spec({ cron: ["30 0 * * *"], zone: "Test/Zone", ...more }), zones, afterMs, 2);
  expect(daily({}, 10 * dayMs - 1000)).toEqual([{ atMs: 10 * dayMs, change: "skipped" }, { atMs: 11 * dayMs - hourMs / 2 }]);
  expect(daily({ skipped: SkippedTime.skip }, 10 * dayMs - 1000)[0]).toEqual({ atMs: 11 * dayMs - hourMs / 2 });
  const both = daily({ repeated: RepeatedTime.both }, 20 * dayMs - hourMs);
  expect(both).toEqual([
    { atMs: 20 * dayMs - hourMs / 2, change: "repeated" },
    { atMs: 20 * dayMs + hourMs / 2, change: "repeated" },
  ]);
});

test("jitter is the same each time, below its bound, and below the distance to the next instant", () => {
  const jittered = spec({ everyMs: 10_000, jitterMs: 60_000 });
  const put = Array.from({ length: 200 }, (_, i) => jitterOf(jittered, "default:a", i * 10_000, (i + 1) * 10_000));
  expect(put).toEqual(Array.from({ length: 200 }, (_, i) => jitterOf(jittered, "default:a", i * 10_000, (i + 1) * 10_000)));
  expect(put.every((ms) => ms >= 0 && ms < 10_000)).toBe(true);
  expect(new Set(put).size).toBeGreaterThan(150);
  expect(put).not.toEqual(Array.from({ length: 200 }, (_, i) => jitterOf(jittered, "default:b", i * 10_000, (i + 1) * 10_000)));
  expect(jitterOf(spec({ everyMs: 10_000 }), "default:a", 0, 10_000)).toBe(0);
});

test("what was due longer ago than the window is missed, and the rest is still to be dealt with", () => {
  const clockwork = { spec: spec({ everyMs: 10_000 }), zones, id: "default:a" };
  const from = coming(clockwork, 0);
  expect(from).toEqual({ atMs: 10_000, dueMs: 10_000 });
  const caught = catchUp(clockwork, from as NonNullable<typeof from>, { nowMs: 100_000, windowMs: 25_000 });
  expect(caught).toEqual({ missed: { firstMs: 10_000, lastMs: 70_000, count: 7 }, next: { atMs: 80_000, dueMs: 80_000 } });
  expect(catchUp(clockwork, { atMs: 80_000, dueMs: 80_000 }, { nowMs: 100_000, windowMs: 25_000 }).missed).toBeUndefined();
});

test("however long nobody led, one step looks at a bounded number of instants", () => {
  const clockwork = { spec: spec({ cron: ["* * * * * *"] }), zones, id: "default:a" };
  const { missed, next } = catchUp(clockwork, { atMs: 1000, dueMs: 1000 }, { nowMs: 365 * dayMs, windowMs: 0 });
  expect(missed?.count).toBe(1000);
  expect(next?.atMs).toBe((missed?.lastMs ?? 0) + 1000);
});

test("overlap policies", () => {
  const { skip, bufferOne, bufferAll, cancelOther, terminateOther, allowAll } = OverlapPolicy;
  const at = (live: number, waiting: number) =>
    [skip, bufferOne, bufferAll, cancelOther, terminateOther, allowAll].map((policy) => decideOverlap(policy, { live, waiting }));
  expect(at(0, 0)).toEqual(["start", "start", "start", "start", "start", "start"]);
  expect(at(1, 0)).toEqual(["skip", "wait", "wait", "replace", "replace", "start"]);
  expect(at(1, 1)).toEqual(["skip", "skip", "wait", "replace", "replace", "start"]);
  expect(at(1, 1000)[2]).toBe("skip");
});

test("what can't be used is refused with what to do instead", () => {
  const problem = (part: Partial<ScheduleSpec>) => specProblem(spec(part), zones, dayMs) ?? "";
  expect(problem({})).toContain("give a cron expression");
  expect(problem({ cron: ["* * *"] })).toContain("it has 3 fields; want 5");
  expect(problem({ cron: ["61 * * * *"] })).toContain('minute field "61" is out of 0–59');
  expect(problem({ cron: ["0 0 * * Fri-Mon"] })).toContain("ends before it begins");
  expect(problem({ cron: ["*/0 * * * *"] })).toContain("step of 0");
  expect(problem({ cron: ["0 0 30 2 *"] })).toContain("never fires");
  expect(problem({ cron: ["TZ=UTC 0 0 * * *"] })).toContain("time zone");
  expect(problem({ cron: ["@often"] })).toContain("@hourly");
  expect(problem({ cron: ["0 0 * * *"], zone: "Mars/Olympus" })).toContain("no time zone Mars/Olympus");
  expect(problem({ everyMs: 10 })).toContain("at least 1000");
  expect(problem({ everyMs: 2000, offsetMs: 2000 })).toContain("not below its interval");
  expect(problem({ atMs: [1000] })).toContain("never fires");
  expect(problem({ everyMs: 2000, fromMs: 5, untilMs: 5 })).toContain("ends before it begins");
  expect(problem({ everyMs: 2000, jitterMs: 2 * dayMs })).toContain("jitter");
  expect(problem({ cron: ["0 0 * * 7"], zone: "Test/Zone" })).toBe("");
});

test("values, ranges, steps, names and 7 for Sunday", () => {
  expect(parseCron("0/15 8-10,20 * jan,Mar-may sun")).toMatchObject({
    minute: [0, 15, 30, 45],
    hour: [8, 9, 10, 20],
    month: [1, 3, 4, 5],
    weekday: [0],
    anyDay: true,
    anyWeekday: false,
  });
  expect(parseCron("0 0 * * 5-7")).toMatchObject({ weekday: [0, 5, 6] });
  expect(parseCron("0 0 * * Mon/2")).toMatchObject({ weekday: [1, 3, 5] });
});
