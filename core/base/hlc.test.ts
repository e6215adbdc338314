import { expect, test } from "bun:test";
import fc from "fast-check";
import { compareHlc, type Hlc, HlcClock, logicalMax, packHlc, unpackHlc } from "#core/base";
import golden from "../../tests/golden/cockroach-hlc.json";

const now = ({ timeMs, logical }: Hlc): [number, number] => [timeMs, logical];

test("the published figures come out: sends, receives, a slow clock", () => {
  const clock = new HlcClock();
  for (const { wall, event, input, expected } of golden.steps) {
    clock.tick(wall);
    if (event === "RECV") {
      const [timeMs = 0, logical = 0] = input as number[];
      clock.witness({ timeMs, logical });
      clock.tick(wall);
    }
    expect(now(clock)).toEqual(expected as [number, number]);
  }
});

test("time strictly increases whatever the physical clock does, and nextMs() foretells it", () => {
  const wall = fc.oneof(fc.nat(50), fc.integer({ min: 0, max: 2 ** 47 }));
  const seen = fc.record({ timeMs: wall, logical: fc.nat(logicalMax) });
  fc.assert(
    fc.property(fc.array(fc.oneof(wall, seen), { maxLength: 60 }), (steps) => {
      const clock = new HlcClock();
      for (const step of steps) {
        const before = { timeMs: clock.timeMs, logical: clock.logical };
        if (typeof step === "object") {
          clock.witness(step);
          expect(compareHlc(clock, before)).toBeGreaterThanOrEqual(0);
          expect(compareHlc(clock, step)).toBeGreaterThanOrEqual(0);
          continue;
        }
        const nextMs = clock.nextMs(step);
        clock.tick(step);
        expect(clock.timeMs).toBe(nextMs);
        expect(clock.timeMs).toBeGreaterThanOrEqual(step);
        expect(clock.logical).toBeLessThanOrEqual(logicalMax);
        expect(compareHlc(clock, before)).toBeGreaterThan(0);
      }
    }),
  );
});

test("a full counter moves the milliseconds on", () => {
  const clock = new HlcClock();
  clock.witness({ timeMs: 10, logical: logicalMax });
  clock.tick(10);
  expect(now(clock)).toEqual([11, 0]);
  clock.tick(3);
  expect(now(clock)).toEqual([11, 1]);
});

test("packed times keep their order and come back", () => {
  const hlc = fc.record({ timeMs: fc.integer({ min: 0, max: 2 ** 47 }), logical: fc.nat(logicalMax) });
  fc.assert(
    fc.property(hlc, hlc, (a, b) => {
      expect(unpackHlc(packHlc(a))).toEqual(a);
      const order = packHlc(a) < packHlc(b) ? -1 : packHlc(a) > packHlc(b) ? 1 : 0;
      expect(Math.sign(compareHlc(a, b))).toBe(order);
    }),
  );
});
