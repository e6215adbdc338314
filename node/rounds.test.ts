import { expect, test } from "bun:test";
import { VirtualTiming } from "./cluster/virtual-timing-fixture.ts";
import { Rounds, type RoundsParts } from "./rounds.ts";

/** Rounds that end when told, and the times at which they began. */
class Town {
  readonly timing = new VirtualTiming();
  readonly begun: number[] = [];
  readonly told: [string, number][] = [];
  readonly rounds: Rounds;
  private end = Promise.withResolvers<void>();

  constructor(parts: Partial<RoundsParts> = {}) {
    this.rounds = new Rounds({
      timing: this.timing,
      everyMs: 100,
      round: () => {
        this.begun.push(this.timing.monotonicMs() - 1000);
        this.end = Promise.withResolvers<void>();
        return this.end.promise;
      },
      failed: (error, inMs) => this.told.push([String(error), inMs]),
      ...parts,
    });
    this.rounds.start();
  }

  async finish(error?: string): Promise<void> {
    if (error === undefined) this.end.resolve();
    else this.end.reject(error);
    // What follows on it has run when the microtasks have.
    await new Promise((resolve) => setImmediate(resolve));
  }
}

test("a round begins when the last one has ended and the time has passed, never two at once", async () => {
  const town = new Town();
  town.timing.pass(99);
  expect(town.begun).toEqual([]);
  town.timing.pass(1);
  town.timing.pass(500);
  expect(town.begun).toEqual([100]);
  await town.finish();
  town.timing.pass(100);
  expect(town.begun).toEqual([100, 700]);
});

test("a round that fails is told and followed by another one, after pauses that grow to their bound and end with one that does not fail", async () => {
  const town = new Town({ pauseMs: { min: 150, max: 400 } });
  for (const [error, inMs] of [
    ["a", 150],
    ["b", 300],
    ["c", 400],
    [undefined, 100],
    ["d", 150],
  ] as const) {
    town.timing.pass(1000);
    const count = town.begun.length;
    await town.finish(error);
    town.timing.pass(inMs - 1);
    expect(town.begun.length).toBe(count);
    town.timing.pass(1);
    expect(town.begun.length).toBe(count + 1);
  }
  expect(town.told).toEqual([
    ["a", 150],
    ["b", 300],
    ["c", 400],
    ["d", 150],
  ]);
});

test("nothing begins once they are stopped, also where a round is under way then", async () => {
  const before = new Town();
  before.rounds.stop();
  before.timing.pass(1000);
  expect(before.begun).toEqual([]);
  const during = new Town();
  during.timing.pass(100);
  during.rounds.stop();
  expect(during.rounds.isStopped).toBe(true);
  await during.finish();
  during.timing.pass(1000);
  expect(during.begun).toEqual([100]);
});
