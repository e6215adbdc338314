/** Workflows of the cases that run on the compiled executable. */
import { activities, durable, query, signal, sleep } from "@hopskip/runtime";
import type * as work from "./guest-activities.ts";

const { blob, measure } = activities<typeof work>({ retry: { attempts: 2, initialMs: 1 } });

/** Waits for signals until one says to stop; a query reads what came. */
export const collect = durable(async () => {
  const seen: unknown[] = [];
  query("seen", () => seen);
  for (;;) {
    const value = await signal<{ stop?: boolean } | null>("item");
    if (value?.stop === true) return seen;
    seen.push(value);
  }
});

/** Lengths of the texts that came, up to an empty one. */
export const lengths = durable(async () => {
  const seen: number[] = [];
  for (let text = await signal<string>("item"); text !== ""; text = await signal<string>("item")) seen.push(text.length);
  return seen;
});

/** What sleep() makes of values that are no length of time, and of the past. */
export const oddSleeps = durable(async () => {
  const told: Record<string, string> = {};
  const attempt = async (name: string, ms: unknown) => {
    try {
      await sleep(ms as number);
      told[name] = "slept";
    } catch (error) {
      told[name] = (error as Error).name;
    }
  };
  await attempt("NaN", Number.NaN);
  await attempt("Infinity", Number.POSITIVE_INFINITY);
  await attempt("-1", -1);
  await attempt("past", { until: new Date(0) });
  await attempt("no date", { until: new Date(Number.NaN) });
  await attempt("century", 101 * 365.25 * 86_400_000);
  return told;
});

export const nap = durable(async (ms: number) => {
  await sleep(ms);
  return "awake";
});

/** A result of so many bytes of JSON passes from one activity to another. */
export const pass = durable(async (bytes: number) => measure(await blob(bytes)));

/** Many results that are small one by one. */
export const passMany = durable(async ({ count, bytes }: { count: number; bytes: number }) => {
  const blobs = await Promise.all(Array.from({ length: count }, () => blob(bytes)));
  return blobs.reduce((sum, each) => sum + each.length, 0);
});

/** Random trees: the order in which their steps end is part of the result, and of a query. */
export const tree = durable(async (seed: number) => {
  const order: number[] = [];
  query("order", () => order);
  let state = seed;
  const next = (below: number) => {
    state = (Math.imul(state, 1_103_515_245) + 12_345) >>> 0;
    return (state >>> 8) % below;
  };
  const grow = async (depth: number): Promise<void> => {
    const id = order.length * 100 + next(100);
    if (depth === 0 || next(3) === 0) {
      await (next(2) === 0 ? sleep(next(60)) : measure("x".repeat(next(9))));
      order.push(id);
      return;
    }
    const branches = Array.from({ length: 2 + next(2) }, () => grow(depth - 1));
    const how = next(4);
    if (how === 0) await Promise.all(branches);
    else if (how === 1) await Promise.race(branches);
    else if (how === 2) await Promise.any(branches);
    else await Promise.allSettled(branches);
    order.push(-id);
  };
  await grow(3);
  await signal("end");
  return order;
});
