import { expect, test } from "bun:test";
import fc from "fast-check";
import { Prng, seedOf } from "#core/base";

test("the sequence of a seed is fixed: recorded waits depend on it", () => {
  const prng = new Prng(42);
  expect([prng.next(), prng.next(), prng.next(), prng.next()]).toEqual([2581720956, 1925393290, 3661312704, 2876485805]);
  expect(seedOf("")).toBe(0x811c9dc5);
  expect(seedOf("a")).toBe(0xe40c292c);
  expect(seedOf("default:order-1#1")).toBe(seedOf("default:order-1#1"));
});

test("draws stay within their bounds, and equal seeds draw alike", () => {
  fc.assert(
    fc.property(fc.integer(), fc.integer({ min: 1, max: 2 ** 31 }), (seed, bound) => {
      const a = new Prng(seed);
      const b = new Prng(seed);
      for (let i = 0; i < 20; i++) {
        const drawn = a.below(bound);
        expect(drawn).toBe(b.below(bound));
        expect(drawn >= 0 && drawn < bound && Number.isInteger(drawn)).toBe(true);
      }
      expect([a.chance(0), a.chance(1)]).toEqual([false, true]);
    }),
  );
});
