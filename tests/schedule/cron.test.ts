/** Tables that others made: robfig/cron's own tests, and a year of four zones by Python's zoneinfo. */
import { expect, test } from "bun:test";
import { join } from "node:path";
import { fires, nextFire, parseCron } from "#core/schedule";
import { zones } from "#node";
import { RepeatedTime, type ScheduleSpec, SkippedTime } from "#proto";

const vectors = join(import.meta.dir, "..", "vectors", "cron");
const empty: ScheduleSpec = {
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
};

interface Robfig {
  readonly activation: readonly { readonly time: string; readonly spec: string; readonly expected: boolean }[];
  readonly next: readonly { readonly after: string; readonly spec: string; readonly next: string | null }[];
  readonly next_tz: readonly { readonly after: string; readonly spec: string; readonly next: string }[];
  readonly errors: readonly string[];
}
const robfig = (await Bun.file(join(vectors, "robfig.json")).json()) as Robfig;

/** `2012-03-11T00:00:00-0500` or `Mon Jul 9 14:45 2012`, which is UTC. */
function instantOf(text: string): number {
  const iso = /^(.*)([+-]\d\d)(\d\d)$/.exec(text);
  if (iso !== null) return Date.parse(`${iso[1]}${iso[2]}:${iso[3]}`);
  const [, month, day, time, year] = /^\w+ (\w+) (\d+) ([\d:]+) (\d+)$/.exec(text) ?? [];
  return Date.parse(`${day} ${month} ${year} ${time} UTC`);
}

/** The tables write the zone before the expression, or before the time. */
function zoned(text: string): { zone: string; rest: string } {
  const [, zone = "", rest = text] = /^(?:CRON_)?TZ=(\S+) (.*)$/.exec(text) ?? [];
  return { zone, rest };
}

test("29 expressions name the times that robfig/cron has them name", () => {
  for (const { time, spec, expected } of robfig.activation) {
    const atMs = instantOf(time);
    expect([spec, time, nextFire({ ...empty, cron: [spec] }, zones, atMs - 1)?.atMs === atMs]).toEqual([spec, time, expected]);
  }
});

test("58 expressions come next when robfig/cron has them come: left-out times never, doubled ones twice", () => {
  for (const { after, spec, next } of robfig.next) {
    const [one, other] = [zoned(after), zoned(spec)];
    const policy = { zone: other.zone || one.zone, skipped: SkippedTime.skip, repeated: RepeatedTime.both };
    const found = nextFire({ ...empty, ...policy, cron: [other.rest] }, zones, instantOf(one.rest));
    expect([after, spec, found?.atMs ?? null]).toEqual([after, spec, next === null ? null : instantOf(next)]);
  }
});

test("a zone of a fixed half hour", () => {
  for (const { after, spec, next } of robfig.next_tz) {
    const found = nextFire({ ...empty, zone: "Asia/Kolkata", cron: [spec] }, zones, instantOf(after));
    expect([after, found?.atMs]).toEqual([after, instantOf(next)]);
  }
});

test("what robfig/cron refuses is refused", () => {
  for (const text of robfig.errors) expect([text, "problem" in parseCron(text)]).toEqual([text, true]);
});

interface Case {
  readonly zone: string;
  readonly cron: string;
  readonly skipped: "next" | "skip";
  readonly repeated: "first" | "last" | "both";
  readonly first: string;
  readonly count: number;
  /** Seconds since the instant before, and how many times in a row. */
  readonly runs: readonly (readonly [number, number])[];
}
const year = (await Bun.file(join(vectors, "zones.json")).json()) as { from: string; to: string; cases: readonly Case[] };

for (const zone of ["Europe/Berlin", "America/New_York", "Australia/Lord_Howe", "America/Santiago"]) {
  test(`${zone} over a year, by each policy`, () => {
    const cases = year.cases.filter((one) => one.zone === zone);
    expect(cases.length).toBe(22);
    for (const { cron, skipped, repeated, first, count, runs } of cases) {
      const spec = {
        ...empty,
        cron: [cron],
        zone,
        skipped: SkippedTime[skipped],
        repeated: RepeatedTime[repeated],
        untilMs: Date.parse(year.to),
      };
      const want = [Date.parse(first)];
      for (const [seconds, times] of runs) for (let i = 0; i < times; i++) want.push((want.at(-1) as number) + seconds * 1000);
      const got = fires(spec, zones, Date.parse(year.from) - 1, 100_000).map(({ atMs }) => atMs);
      expect(want.length).toBe(count);
      expect([cron, skipped, repeated, got]).toEqual([cron, skipped, repeated, want]);
    }
  }, 60_000);
}
