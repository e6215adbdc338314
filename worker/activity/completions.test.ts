import { expect, test } from "bun:test";
import type { TaskDoneInit } from "#proto";
import { Completions } from "./completions.ts";

const bounds = { keptMsMax: 100, countMax: 3, bytesMax: 1000 };
const done = (op: number, bytes = 0): TaskDoneInit => ({
  token: { run: "a:b", generation: 1, op, attempt: 1, delivery: 1 },
  result: { data: new Uint8Array(bytes) },
});
const road = {};
const sent = (atMs: number) => ({ atMs, road });
const ops = (completions: Completions, nowMs: number) => completions.tokens(nowMs).map(({ op }) => op);

test("what was sent is kept for its time", () => {
  const completions = new Completions(bounds);
  completions.add(done(1), sent(0), 0);
  completions.add(done(2), sent(50), 50);
  expect(ops(completions, 100)).toEqual([1, 2]);
  expect(ops(completions, 101)).toEqual([2]);
  expect(ops(completions, 151)).toEqual([]);
});

test("the oldest are forgotten above the count and the bytes", () => {
  const completions = new Completions(bounds);
  for (const op of [1, 2, 3, 4]) completions.add(done(op), sent(0), 0);
  expect(ops(completions, 0)).toEqual([2, 3, 4]);
  completions.add(done(5, 500), sent(0), 0);
  expect(ops(completions, 0)).toEqual([4, 5]);
});

test("what was never sent is kept until it is", () => {
  const completions = new Completions(bounds);
  for (const op of [1, 2, 3, 4, 5]) completions.add(done(op), undefined, 0);
  completions.add(done(6), sent(0), 0);
  expect([ops(completions, 1000), completions.hasUnsent]).toEqual([[1, 2, 3, 4, 5], true]);
  const unsent = completions.sentBy([road], 2000);
  expect(unsent).toHaveLength(5);
  for (const each of unsent) completions.add(each, sent(2000), 2000);
  expect(completions.hasUnsent).toBe(false);
  expect(ops(completions, 2100)).toEqual([3, 4, 5]);
  expect(ops(completions, 2101)).toEqual([]);
});

test("what went by a way that is lost is told apart from what went by another", () => {
  const completions = new Completions(bounds);
  completions.add(done(1), { atMs: 0, road: {} }, 0);
  completions.add(done(2), sent(0), 0);
  completions.add(done(3), undefined, 0);
  expect(completions.sentBy([road], 50).map(({ token }) => token?.op)).toEqual([2, 3]);
  expect(completions.all(50)).toHaveLength(3);
  expect(completions.all(101).map(({ token }) => token?.op)).toEqual([3]);
});
