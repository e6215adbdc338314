/**
 * What the V8 host costs, in processor time of both processes, printed by each run.
 *
 * On a quiet two-core machine an activation in a batch is to take at most 15 µs of the V8 process
 * and a whole run of one step at most 40 µs. The bounds asserted here are wide, so that a busy
 * machine does not fail the test but a mistake of a factor does.
 */
import { afterAll, expect, test } from "bun:test";
import { readFileSync } from "node:fs";
import { encode } from "../suite-run-fixture.ts";
import { openHost, TestBundles } from "./v8-fixture.ts";

const bundles = new TestBundles();
const bundle = await bundles.ofText({
  "wf.ts": `import { activity, durable } from "@hopskip/runtime";
    export const steps = durable(async ({ n, payload }: { n: number; payload: string }) => { let r: unknown; for (let i = 0; i < n; i++) r = await activity("echo", payload); return r; });`,
});
const host = openHost({}, bundles);
afterAll(() => host.close());
const payload = "x".repeat(100);
const result = encode(payload);
let nextKey = 1;

/** Microseconds of processor time used so far by the V8 process and by this one. */
function spent(): { v8: number; worker: number } {
  const text = readFileSync(`/proc/${host.pid}/stat`, "utf8");
  const fields = text.slice(text.lastIndexOf(")") + 2).split(" ");
  const { user, system } = process.cpuUsage();
  return { v8: (Number(fields[11]) + Number(fields[12])) * 10_000, worker: user + system };
}

async function measure(what: string, count: number, work: () => Promise<void>): Promise<number> {
  await work();
  const before = spent();
  await work();
  const after = spent();
  const each = (to: number, from: number) => ((to - from) / count).toFixed(1);
  console.log(`${what}: ${each(after.v8, before.v8)} µs in the V8 process, ${each(after.worker, before.worker)} µs in the worker`);
  return (after.v8 - before.v8) / count;
}

function open(lane: "dense" | "isolate" = "dense"): number {
  const key = nextKey++;
  host.open({ key, run: `ns:r${key}`, generation: 1, type: "steps", bundle, seed: key, lane });
  return key;
}

async function oneStep(lane?: "dense" | "isolate"): Promise<void> {
  const key = open(lane);
  await host.activate(key, [{ kind: "start", nowMs: 1, input: encode({ n: 1, payload }) }]);
  await host.activate(key, [{ kind: "resolve", nowMs: 2, op: 1, value: result }]);
  host.drop(key);
}

test("a run of one step, 50 at a time", async () => {
  const runs = 10_000;
  const each = await measure("one-step run", runs, async () => {
    for (let i = 0; i < runs; i += 50) await Promise.all(Array.from({ length: 50 }, () => oneStep()));
  });
  expect(each).toBeLessThan(120);
}, 60_000);

test("activations of 50 runs at a time", async () => {
  const rounds = 400;
  const keys = Array.from({ length: 50 }, () => open());
  await Promise.all(keys.map((key) => host.activate(key, [{ kind: "start", nowMs: 1, input: encode({ n: 1e9, payload }) }])));
  let op = 1;
  const each = await measure("activation", rounds * keys.length, async () => {
    for (let i = 0; i < rounds; i++, op++)
      await Promise.all(keys.map((key) => host.activate(key, [{ kind: "resolve", nowMs: op, op, value: result }])));
  });
  expect(each).toBeLessThan(45);
}, 60_000);

test("a replay of 20,000 events in parts of 256", async () => {
  const events = 20_000;
  const each = await measure("replayed event", events, async () => {
    const key = open();
    await host.activate(key, [{ kind: "start", nowMs: 1, input: encode({ n: 1e9, payload }) }]);
    for (let op = 1; op <= events; op += 256) {
      await host.activate(
        key,
        Array.from({ length: 256 }, (_, i) => ({ kind: "resolve" as const, nowMs: 1, op: op + i, value: result })),
      );
    }
    host.drop(key);
  });
  expect(each).toBeLessThan(45);
}, 60_000);

test("a run in an isolate of its own", async () => {
  const runs = 40;
  const each = await measure("one-step run in the isolate lane", runs, async () => {
    for (let i = 0; i < runs; i += 10) await Promise.all(Array.from({ length: 10 }, () => oneStep("isolate")));
  });
  expect(each).toBeLessThan(40_000);
}, 60_000);
