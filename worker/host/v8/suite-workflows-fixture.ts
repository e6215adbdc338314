/** The workflows of guest-host.suite.ts in TypeScript. */
import {
  activity,
  compensate,
  durable,
  encode,
  now,
  query,
  RunError,
  random,
  resultOf,
  StreamDisconnectedError,
  sendSignal,
  shield,
  signal,
  sleep,
  TimeoutError,
  uuid,
  yieldChunk,
} from "@hopskip/runtime";

export const echo = durable(async (input: unknown) => input);

export const steps = durable(async ({ n }: { n: number }) => {
  const results: unknown[] = [];
  for (let i = 0; i < n; i++) results.push(await activity("step", { i }));
  return results;
});

type Tree = number | { all: Tree[] } | { race: Tree[] } | { any: Tree[] } | { settled: Tree[] } | { seq: Tree[] };

async function wait(tree: Tree): Promise<unknown> {
  if (typeof tree === "number") return activity("leaf", { k: tree, random: random() });
  if ("all" in tree) return Promise.all(tree.all.map(wait));
  if ("race" in tree) return Promise.race(tree.race.map(wait));
  if ("any" in tree) return Promise.any(tree.any.map(wait));
  if ("settled" in tree) return (await Promise.allSettled(tree.settled.map(wait))).map((end) => end.status);
  const values: unknown[] = [];
  for (const branch of tree.seq) values.push(await wait(branch));
  return values;
}

export const tree = durable(async (spec: Tree) => {
  let outcome: unknown;
  try {
    outcome = { value: await wait(spec) };
  } catch (error) {
    outcome = { error: (error as Error).name };
  }
  await activity("after", random());
  return outcome;
});

export const waiter = durable(async ({ n }: { n: number }) => {
  const values: unknown[] = [];
  for (let i = 0; i < n; i++) values.push(await signal("go"));
  return values;
});

export const timed = durable(async (ms: number) => {
  try {
    return await signal("go", { timeoutMs: ms });
  } catch (error) {
    if (error instanceof TimeoutError) return "timeout";
    throw error;
  }
});

export const cart = durable(async () => {
  const items: unknown[] = [];
  query("count", () => items.length);
  query("items", ({ from }: { from: number }) => items.slice(from));
  query("act", () => activity("never"));
  for (;;) items.push(await signal("add"));
});

export const cleanup = durable(async () => {
  try {
    await Promise.all([activity("work"), sleep(1000)]);
  } finally {
    await activity("tidy");
  }
});

export const stubborn = durable(async () => {
  try {
    await activity("work");
  } catch {
    return "went on";
  }
  return "finished";
});

export const guarded = durable(async () => {
  await shield(async () => {
    await activity("first");
    await activity("second");
  });
  await activity("third");
});

export const talks = durable(async ({ to }: { to: string }) => {
  try {
    await sendSignal(to, "go", { n: 1 });
    return await resultOf(to);
  } catch (error) {
    if (!(error instanceof RunError)) throw error;
    const { name, run, type, message, details } = error;
    return { name, run, type, message, details };
  }
});

export const streams = durable(async () => {
  try {
    await yieldChunk(1);
    await yieldChunk(2);
    return "done";
  } catch (error) {
    if (!(error instanceof StreamDisconnectedError)) throw error;
    return { name: error.name, message: error.message };
  }
});

export const fails = durable(async () => {
  throw new TypeError("no such luck", { cause: new Error("bad day") });
});

export const relays = durable(async () => activity("step"));

export const clock = durable(async () => {
  const before = now();
  await sleep(1000);
  return [before, now(), random(), random(), uuid()];
});

export const spin = durable(async () => {
  for (;;);
});

export const microspin = durable(async () => {
  for (;;) await null;
});

export const hoard = durable(async () => {
  const kept: unknown[] = [];
  for (;;) kept.push({ text: `x${kept.length}`, list: new Array(100).fill(kept.length) });
});

export const explode = durable(async () => {
  // V8 can't unwind from this one: its process dies.
  return "ab".repeat(2 ** 27).replace(/a/g, "c").length;
});

export const saga = durable(async ({ fails }: { fails: boolean }) => {
  const id = encode("o-1");
  const lease = compensate("free_lease", id, { trigger: "always" });
  compensate("refund", id, { retry: { attempts: 3 }, idempotencyKey: "mine" });
  await activity("charge", id);
  const isTaken = [lease.cancel(), lease.cancel()];
  if (fails) throw new TypeError("no such luck");
  return isTaken;
});
