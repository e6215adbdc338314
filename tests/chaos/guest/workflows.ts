/** Workflows of the chaos workloads: each has one right result, however often it is interrupted. */
import { activities, durable, query, signal, sleep } from "@hopskip/runtime";
import type * as work from "./activities.ts";

const { echo, note } = activities<typeof work>({ retry: { initialMs: 20, maxMs: 200 } });

/** Adds up `count` signals; some pass through an activity. */
export const tally = durable(async ({ count }: { count: number; filler?: string }): Promise<number> => {
  let sum = 0;
  query("sum", () => sum);
  for (let i = 0; i < count; i++) {
    const value = await signal<number>("add");
    sum += i % 4 === 3 ? await echo(value) : value;
  }
  return sum;
});

/** `count` durable steps, one after another. */
export const steps = durable(async ({ count }: { count: number }): Promise<number> => {
  let sum = 0;
  for (let i = 1; i <= count; i++) sum += await echo(i);
  return sum;
});

/** Sleeps, then tells a file that it woke. */
export const nap = durable(async ({ ms, file, line }: { ms: number; file: string; line: string }): Promise<string> => {
  await sleep(ms);
  await note({ file, line });
  return line;
});
