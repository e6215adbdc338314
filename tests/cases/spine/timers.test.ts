/** vercel/workflow#823, medusa#16280: a sleep beyond 24.8 days fired at once. temporal#7030: a clock that went back dropped a timer. */
import { describe, expect, test } from "bun:test";
import { EventKind } from "#proto";
import { checkDuration } from "#sdk/runtime/checks";
import { PhysicalClock } from "../../../node/shard/physical-clock.ts";

import { type PastEvent, VirtualShard } from "./virtual-shard.ts";

const dayMs = 86_400_000;
const yearMs = 365.25 * dayMs;
const lengths: [string, number][] = [
  ["0 ms", 0],
  ["1 ms", 1],
  ["2^31 − 1 ms", 2 ** 31 - 1],
  ["2^31 ms", 2 ** 31],
  ["2^31 + 1 ms", 2 ** 31 + 1],
  ["30 days", 30 * dayMs],
  ["2^32 ms", 2 ** 32],
  ["1 year", yearMs],
  ["100 years", 100 * yearMs],
];

const fired = (shard: VirtualShard): PastEvent[] => shard.events("sleeper").filter(({ event }) => event.kind === EventKind.timerFired);

describe("a sleep", () => {
  test.each(lengths)("of %s fires once, at its time and not before", (_, ms) => {
    const shard = new VirtualShard({ programs: { nap: { kind: "sleep", ms } } });
    shard.join();
    shard.start("sleeper", "nap");
    const [started] = shard.events("sleeper").filter(({ event }) => event.kind === EventKind.timerStarted);
    if (started === undefined || started.event.kind !== EventKind.timerStarted) throw new Error("No timer was started");
    expect(started.event.body.durationMs).toBe(ms);
    // The logical clock may be ahead of the physical one by what a start adds.
    shard.nowMs = started.timeMs;
    if (ms > 0) {
      shard.leap(ms - 1);
      expect(fired(shard)).toEqual([]);
    }
    shard.advance(1);
    expect(fired(shard).map(({ timeMs }) => timeMs - started.timeMs)).toEqual([ms]);
    expect(shard.events("sleeper").at(-1)?.event.kind).toBe(EventKind.runCompleted);
    shard.leap(2 ** 32);
    expect(fired(shard)).toHaveLength(1);
  });

  test.each(lengths)("of %s, with a restart half-way and one behind its time, still fires once", (_, ms) => {
    const shard = new VirtualShard({ programs: { nap: { kind: "sleep", ms } } });
    shard.join();
    shard.start("sleeper", "nap");
    shard.leap(Math.floor(ms / 2));
    shard.crash();
    shard.join();
    shard.nowMs += ms;
    shard.crash();
    shard.join();
    shard.advance(1);
    expect(fired(shard)).toHaveLength(1);
    shard.crash();
    shard.join();
    shard.leap(ms);
    expect(fired(shard)).toHaveLength(1);
  });
});

test("what is no length of time is refused at the call, before a timer exists; the past is a timer of 0 ms", () => {
  const check = (ms: unknown) => {
    try {
      return checkDuration("sleep()", ms);
    } catch (error) {
      return `${(error as Error).name}: ${(error as Error).message}`;
    }
  };
  expect([-1, -1e300, 0, 0.2, 1.5, 2 ** 31, 100 * yearMs].map(check)).toEqual([0, 0, 0, 1, 2, 2 ** 31, 100 * yearMs]);
  expect(check(Number.NaN)).toBe("TypeError: sleep() must be a number of milliseconds, got NaN");
  expect(check("1000")).toBe('TypeError: sleep() must be a number of milliseconds, got "1000"');
  expect(check(Number.POSITIVE_INFINITY)).toBe("RangeError: sleep() must be finite, got Infinity");
  expect(check(Number.NEGATIVE_INFINITY)).toBe("RangeError: sleep() must be finite, got -Infinity");
  expect(check(101 * yearMs)).toStartWith("RangeError: sleep() is ");
});

describe("a wall clock that jumps", () => {
  const jumps = [3_600_000, -3_600_000, 1000, -1000, -1000, 1000, 7_200_000, -86_400_000];

  test("neither drops, repeats nor hastens a timer, and logical time never goes back", () => {
    const sources = { wall: 1_800_000_000_000, monotonic: 5 };
    const clock = new PhysicalClock(0, { wallMs: () => sources.wall, monotonicMs: () => sources.monotonic });
    const shard = new VirtualShard({
      programs: { nap: { kind: "seq", of: Array.from({ length: 8 }, () => ({ kind: "sleep" as const, ms: 1000 })) } },
    });
    shard.nowMs = clock.nowMs();
    shard.join();
    shard.start("sleeper", "nap");
    for (let step = 0; step < 400; step++) {
      sources.monotonic += 50;
      sources.wall += 50 + (step % 20 === 7 ? (jumps[((step / 20) % jumps.length) | 0] as number) : 0);
      const before = shard.nowMs;
      const now = clock.nowMs();
      expect(now).toBeGreaterThanOrEqual(before);
      // Time never runs at more than twice its speed, but for the half second that is followed at once.
      expect(now - before).toBeLessThanOrEqual(50 * 2 + 500);
      shard.advance(now - before);
    }
    expect(fired(shard)).toHaveLength(8);
    const times = shard.events("sleeper").map(({ timeMs, logical }) => BigInt(timeMs) * 65_536n + BigInt(logical));
    for (const [i, time] of times.entries()) if (i > 0) expect(time).toBeGreaterThan(times[i - 1] as bigint);
    const started = shard.events("sleeper").filter(({ event }) => event.kind === EventKind.timerStarted);
    expect(fired(shard).map(({ timeMs }, i) => timeMs - (started[i] as PastEvent).timeMs >= 1000)).toEqual(
      Array.from({ length: 8 }, () => true),
    );
  });

  test("back over a restart: logical time goes on from the log's, and a timer that was due fires", () => {
    const shard = new VirtualShard({ programs: { nap: { kind: "sleep", ms: 60_000 } } });
    shard.join();
    shard.start("sleeper", "nap");
    shard.advance(59_000);
    shard.nowMs -= 3_600_000;
    const floor = Math.max(...shard.events().map(({ timeMs }) => timeMs));
    shard.crash();
    const clock = new PhysicalClock(floor, { wallMs: () => shard.nowMs, monotonicMs: () => 0 });
    shard.nowMs = clock.nowMs();
    expect(shard.nowMs).toBe(floor);
    shard.join();
    shard.advance(60_000);
    expect(fired(shard)).toHaveLength(1);
  });
});
