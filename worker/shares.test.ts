import { expect, test } from "bun:test";
import { isUneven, shares } from "./shares.ts";

const sum = (all: readonly number[]) => all.reduce((a, b) => a + b, 0);

test("idle nodes have equal shares of the whole", () => {
  expect(shares(100, [0])).toEqual([100]);
  expect(shares(100, [0, 0, 0])).toEqual([34, 33, 33]);
});

test("a node that is full gets of what is free, round by round, and never all of it", () => {
  let given = shares(100, [0, 0, 0]);
  for (let round = 0; round < 20; round++) {
    const used = [given[0] as number, 5, 0];
    if (!isUneven(given, used)) break;
    given = shares(100, used);
    expect(sum(given)).toBe(100);
  }
  expect(given[0]).toBeGreaterThan(90);
  expect(given[2]).toBeGreaterThanOrEqual(1);
});

test("what executes counts even above the whole, and no node is left without room", () => {
  expect(shares(2, [0, 0, 0])).toEqual([1, 1, 1]);
  expect(shares(10, [12, 0])).toEqual([12, 1]);
});

test("nothing is divided anew where all are full, or none is", () => {
  expect(isUneven([5, 5], [5, 5])).toBe(false);
  expect(isUneven([5, 5], [4, 0])).toBe(false);
  expect(isUneven([9, 1], [9, 0])).toBe(false);
  expect(isUneven([5, 5], [5, 3])).toBe(true);
});
