import { describe, expect, test } from "bun:test";
import { type HopError, InvariantError } from "#core/base";
import { AttemptError, ObjectRefusal } from "./object-error.ts";
import { type Attempt, Retry, type RetryPolicy } from "./retry.ts";
import { VirtualTime } from "./virtual-time-fixture.ts";

const policy: RetryPolicy = { triesMax: 5, pauseMsMin: 100, pauseMsMax: 500, tryMs: 1000, bytesPerSecondMin: 1000 };

/** Chance that is always the same, so that times can be said. */
class FixedTime extends VirtualTime {
  private readonly chance: number;

  constructor(chance: number) {
    super();
    this.chance = chance;
  }

  override fraction(): number {
    return this.chance;
  }
}

function failing(time: VirtualTime, error: () => Error, times = Number.POSITIVE_INFINITY) {
  const at: number[] = [];
  const work = async () => {
    at.push(time.nowMs());
    if (at.length <= times) throw error();
    return "done";
  };
  return { at, work };
}

const down = () => new AttemptError("unavailable", "the server answered 503");

function caught(run: () => unknown): Error {
  try {
    run();
  } catch (error) {
    return error as Error;
  }
  throw new Error("It did not throw");
}

describe("a request to object storage", () => {
  test("is tried a bounded number of times, with pauses that double up to a bound", () => {
    const time = new FixedTime(1 - 1e-9);
    const { at, work } = failing(time, down);
    const error = caught(() => time.finish(new Retry(policy, time).run({ attempt: "put a to s3://b" }, work))) as HopError;
    expect(at).toEqual([0, 99, 298, 697, 1196]);
    expect([error.reason, error.message]).toEqual(["STORE_UNAVAILABLE", "Cannot put a to s3://b: the server answered 503 (tried 5 times)"]);
    expect(error.cause).toBeInstanceOf(AttemptError);
  });

  test("waits a random part of each pause", () => {
    const pauses = Array.from({ length: 200 }, (_, seed) => {
      const time = new VirtualTime(seed);
      const { at, work } = failing(time, down, 1);
      time.finish(new Retry(policy, time).run({ attempt: "get" }, work));
      return at[1] as number;
    });
    expect(Math.min(...pauses)).toBeLessThan(10);
    expect(Math.max(...pauses)).toBeGreaterThan(90);
    expect(Math.max(...pauses)).toBeLessThan(100);
  });

  test("that succeeds at last gives its result", () => {
    const time = new VirtualTime();
    const { at, work } = failing(time, down, 4);
    expect(time.finish(new Retry(policy, time).run({ attempt: "get" }, work))).toBe("done");
    expect(at.length).toBe(5);
  });

  test("that no second try would change is tried once, and says what to do", () => {
    const time = new VirtualTime();
    const { at, work } = failing(time, () => new AttemptError("clock", "the server answered 403", { advice: "set this machine's clock" }));
    const error = caught(() => time.finish(new Retry(policy, time).run({ attempt: "get a" }, work))) as ObjectRefusal;
    expect(error).toBeInstanceOf(ObjectRefusal);
    expect([error.problem, error.reason, error.message]).toEqual([
      "clock",
      "UNAUTHENTICATED",
      "Cannot get a: the server answered 403; set this machine's clock",
    ]);
    expect(at.length).toBe(1);
  });

  test("passes a bug on as it is", () => {
    const time = new VirtualTime();
    const { at, work } = failing(time, () => new InvariantError("broken"));
    expect(caught(() => time.finish(new Retry(policy, time).run({ attempt: "get" }, work)))).toBeInstanceOf(InvariantError);
    expect(at.length).toBe(1);
  });

  test("has time by its size, and its signal aborts when that is over", () => {
    const time = new FixedTime(0);
    const attempts: { readonly attempt: Attempt; readonly atMs: number }[] = [];
    const hanging = (attempt: Attempt) => {
      attempts.push({ attempt, atMs: time.nowMs() });
      return new Promise<never>(() => {});
    };
    const error = caught(() => time.finish(new Retry(policy, time).run({ attempt: "put a", bytes: 2500 }, hanging))) as HopError;
    expect(error.message).toBe("Cannot put a: there was no whole answer within 3500 ms (tried 5 times)");
    expect(attempts.map(({ atMs }) => atMs)).toEqual([0, 3500, 7000, 10_500, 14_000]);
    expect(attempts.every(({ attempt }) => attempt.signal.aborted)).toBe(true);
  });

  test("has time anew for a body whose size the answer tells", () => {
    const time = new FixedTime(0);
    const work = (attempt: Attempt) =>
      new Promise<string>((resolve) => {
        time.after(900, () => attempt.allow(4000));
        time.after(5800, () => resolve("body"));
      });
    expect(time.finish(new Retry(policy, time).run({ attempt: "get" }, work))).toBe("body");
    expect(time.nowMs()).toBe(5800);
  });

  test("ends with the caller's signal, in a try and in a pause", () => {
    for (const abortAtMs of [500, 1050]) {
      const time = new FixedTime(0.9);
      const abort = new AbortController();
      time.after(abortAtMs, () => abort.abort(new Error("stop")));
      const hanging = () => new Promise<never>(() => {});
      expect(() => time.finish(new Retry(policy, time).run({ attempt: "get", signal: abort.signal }, hanging))).toThrow("stop");
      expect(time.nowMs()).toBe(abortAtMs);
    }
  });
});
