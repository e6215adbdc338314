import { expect, test } from "bun:test";
import fc from "fast-check";
import { limits } from "#core/base";
import { defaultRetry, mayRetry, retryDelayMs } from "#core/policy";
import type { Failure, RetryPolicy } from "#proto";

const failure = (type: string, nonRetryable = false): Failure => ({
  type,
  message: "",
  stack: "",
  details: undefined,
  nonRetryable,
  cause: undefined,
});
const policy = (part: Partial<RetryPolicy>): RetryPolicy => ({ ...defaultRetry, jitterMilli: 0, ...part });

test("waits double from the first one up to the ceiling", () => {
  const doubling = policy({ initialMs: 100, backoffMilli: 2000, intervalMsMax: 1000 });
  expect([1, 2, 3, 4, 5, 6, 500].map((attempt) => retryDelayMs(doubling, attempt, 7))).toEqual([100, 200, 400, 800, 1000, 1000, 1000]);
});

test("edges: no first wait, a factor below one, no ceiling, absurd figures", () => {
  expect(retryDelayMs(policy({ initialMs: 0 }), 9, 1)).toBe(0);
  expect(retryDelayMs(policy({ initialMs: 100, backoffMilli: 0 }), 9, 1)).toBe(100);
  expect(retryDelayMs(policy({ initialMs: 100, backoffMilli: 999 }), 9, 1)).toBe(100);
  expect(retryDelayMs(policy({ initialMs: 1000, intervalMsMax: 0 }), 60, 1)).toBe(limits.retryIntervalMsMax);
  expect(
    retryDelayMs(
      policy({ initialMs: Number.MAX_SAFE_INTEGER, intervalMsMax: Number.MAX_SAFE_INTEGER, backoffMilli: 2 ** 32 - 1 }),
      2 ** 32 - 1,
      1,
    ),
  ).toBe(limits.retryIntervalMsMax);
});

test("jitter stays within its share and depends on the seed alone", () => {
  const retry = fc.record({
    initialMs: fc.nat(100_000),
    intervalMsMax: fc.nat(200_000),
    backoffMilli: fc.nat(5000),
    jitterMilli: fc.nat(2000),
  });
  fc.assert(
    fc.property(retry, fc.integer({ min: 1, max: 100 }), fc.nat(), (part, attempt, seed) => {
      const wait = retryDelayMs(policy({ ...part, jitterMilli: 0 }), attempt, seed);
      const jittered = retryDelayMs(policy(part), attempt, seed);
      const share = (Math.min(part.jitterMilli, 1000) / 1000) * wait;
      expect(jittered).toBe(retryDelayMs(policy(part), attempt, seed));
      expect(Math.abs(jittered - wait)).toBeLessThanOrEqual(share + 1);
      expect(jittered).toBeGreaterThanOrEqual(0);
    }),
  );
});

test("mayRetry() counts executions, and obeys what forbids another", () => {
  const three = policy({ attemptsMax: 3, nonRetryable: ["BadInput"] });
  expect([1, 2, 3, 4].map((attempt) => mayRetry(three, attempt, failure("Error")))).toEqual([true, true, false, false]);
  expect(mayRetry(policy({ attemptsMax: 1 }), 1, failure("Error"))).toBe(false);
  expect(mayRetry(policy({ attemptsMax: 0 }), 1_000_000, failure("Error"))).toBe(true);
  expect(mayRetry(three, 1, failure("BadInput"))).toBe(false);
  expect(mayRetry(three, 1, failure("Error", true))).toBe(false);
});
