import { expect, test } from "bun:test";
import { Prng } from "#core/base";
import { Air, fair, Link } from "./link.ts";

const drawing = (seed: number) => {
  const prng = new Prng(seed);
  return () => prng.below(1 << 30) / (1 << 30);
};

test("arrivals() keeps the order of packets under jitter, and breaks it only when told to", () => {
  const draw = drawing(1);
  const link = new Link();
  const sendAll = () => Array.from({ length: 500 }, (_, i) => link.arrivals(i, draw)[0] as number);
  link.weather = { ...fair, delayMs: 20, jitterMs: 50 };
  const kept = sendAll();
  expect(kept).toEqual(kept.toSorted((a, b) => a - b));
  expect(Math.min(...kept.map((at, i) => at - i))).toBeGreaterThanOrEqual(20);
  link.weather = { ...fair, delayMs: 20, jitterMs: 50, reorder: 0.1 };
  const broken = sendAll();
  expect(broken).not.toEqual(broken.toSorted((a, b) => a - b));
});

test("arrivals() loses and doubles about the share that it is told to", () => {
  const draw = drawing(2);
  const link = new Link();
  link.weather = { ...fair, loss: 0.3, duplication: 0.5, jitterMs: 1 };
  const counts = [0, 0, 0];
  for (let i = 0; i < 4000; i++) counts[link.arrivals(i, draw).length]!++;
  const [lost, once, twice] = counts as [number, number, number];
  expect(lost / 4000).toBeCloseTo(0.3, 1);
  expect(twice / (once + twice)).toBeCloseTo(0.5, 1);
  link.weather = { ...fair, isCut: true };
  expect(link.arrivals(5000, draw)).toEqual([]);
});

test("take() gives packets when they have arrived, soonest first", () => {
  const air = new Air();
  const bytes = Buffer.alloc(0);
  for (const [atMs, to] of [
    [5, 1],
    [3, 2],
    [5, 3],
    [4, 4],
  ] as const)
    air.put({ atMs, to, bytes });
  expect([air.nextMs(), air.take(2)]).toEqual([3, undefined]);
  const order: number[] = [];
  for (let next = air.take(5); next !== undefined; next = air.take(5)) order.push(next.to);
  expect(order).toEqual([2, 4, 1, 3]);
});
