/** Calls of runs by runs: code in real V8, a shard that decides, messages between partitions. */
import { afterAll, beforeAll, expect, test } from "bun:test";
import { fromHex, type RunId } from "#core/base";
import { openHost, TestBundles } from "../worker/host/v8/v8-fixture.ts";
import type { V8Host } from "../worker/host/v8/v8-host.ts";
import { RunRig } from "./run-rig.ts";
import { until } from "./until.ts";

const code = `
import { CancelledError, RunError, activity, call_workflow, callWorkflow, durable, method, resultOf, signal } from "@hopskip/runtime";

const caught = async (work: () => Promise<unknown>) => {
  try {
    return await work();
  } catch (error) {
    if (error instanceof RunError) return { type: error.type, message: error.message, cause: (error.cause as Error).message };
    throw error;
  }
};

export const shipping = durable(async () => {
  const parcels: string[] = [];
  let cancelled = "";
  method("ship", async (order: { id: string }) => {
    parcels.push(order.id);
    return { parcel: await activity<string>("pack", order.id) };
  });
  method("fail", () => {
    throw new RangeError("no room");
  });
  method("hold", async () => {
    try {
      return await signal("go");
    } catch (error) {
      if (error instanceof CancelledError) cancelled = error.reason;
      throw error;
    }
  });
  method("await", (name: string) => caught(() => resultOf(name)));
  method("state", () => ({ parcels, cancelled }));
  await signal("close");
  return { parcels, cancelled };
});

export const order = durable((o: { to: string; method?: string; id?: string; cancellation?: "abandon" | "propagate" }) =>
  caught(() => call_workflow(o.to, o.method ?? "ship", { id: o.id ?? "o-1" }, { cancellation: o.cancellation ?? "abandon" })),
);

export const many = durable((o: { to: string; ids: string[] }) => Promise.all(o.ids.map((id) => callWorkflow(o.to, "ship", { id }))));

export const waiter = durable((o: { to: string }) => callWorkflow(o.to, "await", "w-1"));

/** Hands a call on along a list of runs. */
export const link = durable(async (o: { next?: string[] }) => {
  const pass = (next: string[]): Promise<unknown> =>
    next.length === 0 ? Promise.resolve("end") : caught(() => callWorkflow(next[0]!, "pass", next.slice(1)));
  method("pass", pass);
  if (o.next !== undefined) return pass(o.next);
  await signal("close");
});
`;

const bundles = new TestBundles();
let host: V8Host;
let bundle: Uint8Array;

beforeAll(async () => {
  host = openHost({ limits: { deliveryMs: 5000 } }, bundles);
  await host.start();
  bundle = fromHex(await bundles.ofText({ "wf.ts": code })) as Uint8Array;
}, 60_000);
afterAll(() => host.close());

async function shop(...links: string[]): Promise<RunRig> {
  const rig = new RunRig({ host, bundle, activities: ["pack"] });
  rig.onTask = (_, input) => `packed ${String(input)}`;
  await rig.begin("ship-1", "shipping");
  for (const name of links) await rig.begin(name, "link", {});
  return rig;
}

test("a run calls a method of another, and goes on with its answer", async () => {
  const rig = await shop();
  expect(await rig.result("o-1", "order", { to: "ship-1" })).toEqual({ parcel: "packed o-1" });
  expect(rig.kindsOf("o-1")).toEqual(["runStarted", "methodCallSent", "methodCallAnswered", "runCompleted"]);
  expect(rig.kindsOf("ship-1").filter((kind) => kind.startsWith("method"))).toEqual(["methodCalled", "methodAnswered"]);
});

test("calls of one run are taken in the order in which they were made", async () => {
  const rig = await shop();
  const ids = Array.from({ length: 30 }, (_, i) => `o-${i}`);
  await rig.result("m-1", "many", { to: "shop:ship-1", ids });
  expect(await rig.call("ship-1", "state")).toMatchObject({ parcels: ids });
});

test("what can go wrong is told apart", async () => {
  const rig = await shop();
  expect(await rig.result("o-1", "order", { to: "nobody" })).toMatchObject({
    type: "RunNotFoundError",
    cause: "Cannot call a method of shop:nobody: there is no such run",
  });
  expect(await rig.result("o-2", "order", { to: "ship-1", method: "fail" })).toMatchObject({ type: "RangeError", cause: "no room" });
  const [held, lost] = [
    rig.result("o-3", "order", { to: "ship-1", method: "hold" }),
    rig.result("o-4", "order", { to: "ship-1", method: "nope" }),
  ];
  await until(() => rig.kindsOf("ship-1").filter((kind) => kind === "methodCalled").length === 3);
  await rig.signal("ship-1", "close");
  expect(await held).toMatchObject({
    type: "RunClosedError",
    cause: 'Cannot wait for method "hold" of shop:ship-1: it ended before it answered',
  });
  expect(await lost).toMatchObject({ type: "MethodNotFoundError" });
  expect(await rig.result("o-5", "order", { to: "ship-1" })).toMatchObject({ type: "RunClosedError" });
});

test.each([1, 2, 3, 5, 12])("a cycle of %d runs is found by the call that closes it, with its path", async (length) => {
  const names = Array.from({ length }, (_, i) => `l-${i}`);
  const rig = await shop(...names.slice(1));
  const path = [...names, "l-0"].map((name) => `shop:${name}`).join(" → ");
  expect(await rig.result("l-0", "link", { next: [...names.slice(1), "l-0"] })).toEqual({
    type: "CallCycleError",
    message: expect.stringContaining(path),
    cause: `Cannot call method "pass" of shop:l-0: the call closes a cycle of runs that wait for each other: ${path}`,
  });
});

test("a cycle that begins behind the first caller has only its own runs in the path", async () => {
  const rig = await shop("b", "c");
  expect(await rig.result("a", "link", { next: ["b", "c", "b"] })).toMatchObject({
    type: "CallCycleError",
    cause: expect.stringContaining(": shop:b → shop:c → shop:b"),
  });
});

test("a method that waits for the end of a run that waits for it is a cycle too", async () => {
  const rig = await shop();
  expect(await rig.result("w-1", "waiter", { to: "ship-1" })).toMatchObject({
    type: "CallCycleError",
    cause: "Cannot wait for shop:w-1: the wait closes a cycle of runs that wait for each other: shop:w-1 → shop:ship-1 → shop:w-1",
  });
});

test("the same run twice, one call after the other, is no cycle", async () => {
  const rig = await shop("b", "c");
  expect(await rig.result("a", "link", { next: ["b", "c"] })).toBe("end");
  expect(await rig.result("a2", "link", { next: ["c", "b"] })).toBe("end");
});

test("a chain that is too long ends with a failure, and not with the machine", async () => {
  const names = Array.from({ length: 70 }, (_, i) => `l-${i}`);
  const rig = await shop(...names);
  expect(await rig.result("a", "link", { next: names })).toMatchObject({ type: "LimitError" });
});

test("a cancelled caller leaves its call alone, or takes it with it, as it chose", async () => {
  for (const cancellation of ["abandon", "propagate"] as const) {
    const rig = await shop();
    const ended = rig.result("o-1", "order", { to: "ship-1", method: "hold", cancellation });
    await until(() => rig.kindsOf("ship-1").includes("methodCalled"));
    await rig.command({ kind: "cancel", run: "shop:o-1" as RunId, reason: "no stock" });
    expect(await ended).toMatchObject({ type: "CancelledError" });
    if (cancellation === "abandon") await rig.signal("ship-1", "go", "went");
    await until(() => rig.kindsOf("ship-1").includes("methodAnswered"));
    const kinds = rig.kindsOf("ship-1").filter((kind) => kind.startsWith("method"));
    expect(kinds).toEqual(
      cancellation === "abandon" ? ["methodCalled", "methodAnswered"] : ["methodCalled", "methodCallCancelled", "methodAnswered"],
    );
    expect(await rig.call("ship-1", "state")).toEqual({
      parcels: [],
      cancelled: cancellation === "abandon" ? "" : "shop:o-1 waits no more",
    });
  }
});

test("a caller that is terminated cancels what it was to cancel", async () => {
  const rig = await shop();
  const ended = rig.result("o-1", "order", { to: "ship-1", method: "hold", cancellation: "propagate" });
  await until(() => rig.kindsOf("ship-1").includes("methodCalled"));
  await rig.command({ kind: "terminate", run: "shop:o-1" as RunId, reason: "" });
  expect(await ended).toMatchObject({ type: "TerminatedError" });
  await until(() => rig.kindsOf("ship-1").includes("methodAnswered"));
  expect(await rig.call("ship-1", "state")).toMatchObject({ cancelled: "shop:o-1 waits no more" });
});

test("workers that lose the caller and the called run change nothing", async () => {
  for (let turns = 0; turns < 10; turns++) {
    const rig = await shop("b", "c");
    const held = rig.result("o-1", "order", { to: "ship-1", method: "hold" });
    const passed = rig.result("a", "link", { next: ["b", "c", "a"] });
    for (let turn = 0; turn < turns; turn++) await new Promise((done) => setImmediate(done));
    for (const name of ["o-1", "ship-1", "b", "c", "a"]) rig.evict(name);
    await until(() => rig.kindsOf("ship-1").includes("methodCalled"));
    await rig.signal("ship-1", "go", "went");
    expect(await held).toBe("went");
    expect(await passed).toMatchObject({ type: "CallCycleError" });
    expect(rig.kindsOf("ship-1").filter((kind) => kind === "methodCalled")).toHaveLength(1);
  }
});
