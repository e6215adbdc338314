import { expect, test } from "bun:test";
import type { TaskDoneInit } from "#proto";
import { Completions } from "./completions.ts";

const bounds = { keptMsMax: 100, countMax: 3, bytesMax: 1000 };
const done = (op: number, bytes = 0): TaskDoneInit => ({
  token: { run: "a:b", generation: 1, op, attempt: 1, delivery: 1 },
  result: { data: new Uint8Array(bytes) },
});
const ops = (completions: Completions, nowMs: number) => completions.tokens(nowMs).map(({ op }) => op);

test("what was sent is kept for its time", () => {
  const completions = new Completions(bounds);
  completions.add(done(1), 0, 0);
  completions.add(done(2), 50, 50);
  expect(ops(completions, 100)).toEqual([1, 2]);
  expect(ops(completions, 101)).toEqual([2]);
  expect(ops(completions, 151)).toEqual([]);
});

test("the oldest are forgotten above the count and the bytes", () => {
  const completions = new Completions(bounds);
  for (const op of [1, 2, 3, 4]) completions.add(done(op), 0, 0);
  expect(ops(completions, 0)).toEqual([2, 3, 4]);
  completions.add(done(5, 500), 0, 0);
  expect(ops(completions, 0)).toEqual([4, 5]);
});

test("what was never sent is kept until it is", () => {
  const completions = new Completions(bounds);
  for (const op of [1, 2, 3, 4, 5]) completions.add(done(op), undefined, 0);
  completions.add(done(6), 0, 0);
  expect([ops(completions, 1000), completions.hasUnsent]).toEqual([[1, 2, 3, 4, 5], true]);
  expect(completions.resend(2000)).toHaveLength(5);
  expect(completions.hasUnsent).toBe(false);
  expect(ops(completions, 2100)).toEqual([3, 4, 5]);
  expect(ops(completions, 2101)).toEqual([]);
});
