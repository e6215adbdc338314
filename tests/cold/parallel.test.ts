import { expect, test } from "bun:test";
import { inParallel } from "../../cmd/cold/parallel.ts";

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
