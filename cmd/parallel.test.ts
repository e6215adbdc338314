import { expect, test } from "bun:test";
import { firstFound, inParallel } from "./parallel.ts";

test("inParallel() keeps the order of the items, and to the count", async () => {
  let running = 0;
  let most = 0;
  const doubled = await inParallel([5, 4, 3, 2, 1], 2, async (item) => {
    most = Math.max(most, ++running);
    for (let turn = 0; turn < item; turn++) await Promise.resolve();
    running--;
    return item * 2;
  });
  expect([doubled, most]).toEqual([[10, 8, 6, 4, 2], 2]);
  expect(await inParallel([], 2, () => Promise.resolve(1))).toEqual([]);
});

test("inParallel() begins nothing after a failure", async () => {
  const begun: number[] = [];
  const work = (item: number) => {
    begun.push(item);
    return item === 2 ? Promise.reject(new Error("two")) : Promise.resolve(item);
  };
  await expect(inParallel([1, 2, 3, 4, 5, 6, 7, 8], 1, work)).rejects.toThrow("two");
  expect(begun).toEqual([1, 2]);
});

/** What follows from an end has happened. */
async function settled(): Promise<void> {
  for (let turn = 0; turn < 10; turn++) await Promise.resolve();
}

/** Work that is done when the test says so. */
class Bench {
  readonly begun: number[] = [];
  private readonly ends = new Map<number, { done: (found: string | undefined) => void; fail: (error: Error) => void }>();

  readonly work = (item: number): Promise<string | undefined> => {
    this.begun.push(item);
    return new Promise((done, fail) => void this.ends.set(item, { done, fail }));
  };

  async end(item: number, found?: string): Promise<void> {
    this.ends.get(item)?.done(found);
    await settled();
  }

  async fail(item: number): Promise<void> {
    this.ends.get(item)?.fail(new Error(`no ${item}`));
    await settled();
  }
}

test("the first finding counts, whichever is there first; so many are looked at ahead and no more", async () => {
  const bench = new Bench();
  const found = firstFound([1, 2, 3, 4, 5, 6], 3, bench.work);
  expect(bench.begun).toEqual([1, 2, 3]);
  await bench.end(2, "two");
  await bench.fail(3);
  expect(bench.begun).toEqual([1, 2, 3]);
  await bench.end(1);
  expect(await found).toBe("two");
  expect(bench.begun).toEqual([1, 2, 3, 4]);
});

test("what fails in front of a finding fails, and where nothing is found everything was looked at", async () => {
  const bench = new Bench();
  const failing = firstFound([1, 2], 2, bench.work).catch(String);
  await bench.end(2, "two");
  await bench.fail(1);
  expect(await failing).toBe("Error: no 1");
  const seen: number[] = [];
  const none = await firstFound([1, 2, 3, 4, 5], 2, async (item): Promise<string | undefined> => {
    seen.push(item);
    return undefined;
  });
  expect([none, seen]).toEqual([undefined, [1, 2, 3, 4, 5]]);
  expect(await firstFound([], 2, bench.work)).toBeUndefined();
});
