import { expect, test } from "bun:test";
import { VirtualTiming } from "./cluster/virtual-timing-fixture.ts";
import { onceSoon } from "./timing.ts";

test("what is asked for again before it has begun runs once, and again where that is asked for afterwards", () => {
  const timing = new VirtualTiming();
  const runs: number[] = [];
  const ask = onceSoon(timing, 2, () => runs.push(timing.monotonicMs() - 1000));
  for (let i = 0; i < 1000; i++) ask();
  timing.pass(1);
  ask();
  timing.pass(100);
  expect(runs).toEqual([2]);
  ask();
  timing.pass(100);
  expect(runs).toEqual([2, 103]);
});

test("a run that asks for the next one has one timer, whoever else asks", () => {
  const timing = new VirtualTiming();
  let runs = 0;
  const ask = onceSoon(timing, 2, () => {
    runs++;
    ask();
    ask();
  });
  ask();
  ask();
  timing.pass(20);
  expect(runs).toBe(10);
});
