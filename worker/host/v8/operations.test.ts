/** What a run's operations are on their way to the host, where the suite of all hosts does not reach. */
import { afterAll, beforeAll, expect, test } from "bun:test";
import { limits } from "#core/base";
import { CommandKind, decodeCommand, encodeCommand, fromBytes, toBytes } from "#proto";
import { decode, type SuiteBench, SuiteRun } from "../suite-run-fixture.ts";
import { openHost, TestBundles } from "./v8-fixture.ts";

const bundles = new TestBundles();
let bench: SuiteBench;

beforeAll(async () => {
  const bundle = await bundles.ofText({
    "wf.ts": `
      import { activity, CancellationScope, compensate, durable, spawn } from "@hopskip/runtime";
      /** A child of a scope in a scope, of which the outer one is cancelled. */
      export const nested = durable(async () => {
        const outer = new CancellationScope();
        const child = await outer.run(() => new CancellationScope().run(() => spawn("ship", null, { cancellationType: "wait-completed" })));
        await child.started();
        outer.cancel("not wanted");
        return child.result().catch((error) => [error.name, error.reason ?? error.type]);
      });
      export const late = durable(async (ms: number) => {
        const options = { startToCloseMs: ms, scheduleToCloseMs: ms, heartbeatMs: ms, retry: { initialMs: ms, maxMs: ms } };
        compensate("undo", null, options);
        spawn("ship", null, { deadlineMs: ms, requestBudgetMs: ms });
        await activity("do", null, options);
      });
      export const many = durable(async (count: number) => {
        for (let i = 0; i < count; i++) spawn("ship");
        await activity("do");
      });
    `,
  });
  bench = { host: openHost({}, bundles), bundle };
}, 60_000);
afterAll(() => bench.host.close());

test("a child that an outer scope's cancellation reaches ends as cancelled, with what the canceller said", async () => {
  const run = new SuiteRun(bench, "nested");
  await run.start();
  const asked = await run.deliver(run.resolved(1, { generation: 1, ticket: 0, attached: false }));
  expect(asked).toMatchObject([{ kind: CommandKind.cancelRun, op: 2, child: 1, reason: "not wanted" }]);
  const [end] = await run.deliver(run.rejected(1, "CancelledError", "The run was cancelled"));
  expect(decode(end?.payload?.data)).toEqual(["CancelledError", "not wanted"]);
});

/** Each of its durations, as it comes out of the bytes of a task's commands. */
async function durationsOf(ms: number): Promise<number[]> {
  const commands = await new SuiteRun(bench, "late").start(ms);
  return commands.flatMap((command) => {
    const { options, start } = fromBytes(decodeCommand, toBytes(encodeCommand, command));
    const ofOptions = options && [options.startToCloseMs, options.scheduleToCloseMs, options.heartbeatMs];
    const ofRetry = options?.retry && [options.retry.initialMs, options.retry.intervalMsMax];
    const ofStart = start && [start.deadlineMs, start.budgetMs];
    return [...(ofOptions ?? []), ...(ofRetry ?? []), ...(ofStart ?? [])];
  });
}

test("a duration below nothing is none, and a fraction counts as the whole", async () => {
  for (const [ms, want] of [
    [-5, 0],
    [-0.5, 0],
    [0, 0],
    [0.5, 1],
    [1500, 1500],
  ] as const)
    expect([ms, await durationsOf(ms)]).toEqual([ms, Array<number>(12).fill(want)]);
});

test("children count among the open operations", async () => {
  const run = new SuiteRun(bench, "many");
  const commands = await run.start(limits.pendingOpsMax);
  expect(commands).toHaveLength(limits.pendingOpsMax + 1);
  expect(commands.slice(-1)).toMatchObject([
    { kind: CommandKind.fail, failure: { type: "RangeError", message: expect.stringContaining("Too many operations are open") } },
  ]);
});

test("a cancellation asks all children, beyond the number of operations that may be open", async () => {
  const run = new SuiteRun(bench, "many");
  const count = limits.pendingOpsMax - 1;
  expect(await run.start(count)).toHaveLength(count + 1);
  const asked = await run.deliver(run.cancelled("enough"));
  expect(asked.filter(({ kind }) => kind === CommandKind.cancelRun)).toHaveLength(count);
  expect(asked.slice(-1)).toMatchObject([{ kind: CommandKind.cancelled }]);
});
