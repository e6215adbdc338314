/** Methods of runs: code in real V8, a shard that decides, and calls of clients. */
import { afterAll, beforeAll, expect, test } from "bun:test";
import { fromHex, type RunId } from "#core/base";
import { decodeRecord, fromBytes, RunStatus } from "#proto";
import { Executor } from "../worker/executor.ts";
import { openHost, TestBundles } from "../worker/host/v8/v8-fixture.ts";
import type { V8Host } from "../worker/host/v8/v8-host.ts";
import { RunRig } from "./run-rig.ts";
import { until } from "./until.ts";

const code = `
import { activity, defineMethod, defineQuery, defineSignal, durable, method, query, random, signal, sleep } from "@hopskip/runtime";

export const add = defineMethod<number, number>("add");
export const total = defineQuery<number>("total");
export const close = defineSignal<string>("close");
export const counter = durable(async () => {
  let sum = 0;
  query(total, () => sum);
  method(add, (n) => (sum += n));
  return (await signal(close)) + sum;
});

export const cart = durable(async () => {
  const items: string[] = [];
  let checking = 0;
  query("items", () => items);
  query("acts", () => activity("charge", 1));
  query("draws", () => random());
  method(
    "add",
    (item: string) => {
      items.push(item);
      return items.length;
    },
    {
      validate: (item) => {
        if (item === "") throw new RangeError("An item has a name");
        if (item === "act") void activity("charge", 1);
        if (items.includes(item)) throw new Error(item + " is in the cart");
      },
    },
  );
  method("charge", async (cents: number) => {
    checking += 1;
    const receipt = await activity("charge", cents);
    checking -= 1;
    return { receipt, items: [...items], open: checking };
  });
  method("hold", () => signal("go"));
  method("fail", () => {
    throw new TypeError("no such thing");
  });
  await signal("done");
  return items;
});

export const late = durable(async () => {
  const seen: number[] = [];
  await signal("open");
  method("note", (n: number) => seen.push(n));
  await signal("done");
  return seen;
});

export const mixed = durable(async () => {
  const order: string[] = [];
  method("m", async (n: number) => {
    order.push("m" + n);
    const got = await activity("work", n);
    order.push("m" + n + " " + got);
    return order.length;
  });
  const loop = (async () => {
    for (;;) {
      const value = await signal<string>("s");
      order.push("s" + value);
      if (value === "end") return;
    }
  })();
  const timers = Promise.all([5, 5, 7].map(async (ms) => { await sleep(ms); order.push("t" + ms); }));
  const work = activity("work", 0).then((got) => order.push("a " + got));
  await Promise.all([loop, timers, work]);
  await signal("done");
  return order;
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

const cart = async () => {
  const rig = new RunRig({ host, bundle, activities: ["charge", "work"] });
  rig.onTask = (name, input) => `${name} ${String(input)}`;
  await rig.begin("c-1", "cart");
  return rig;
};

test("a call is an event, its answer another, and both are the run's own", async () => {
  const rig = await cart();
  expect(await rig.call("c-1", "add", "pen")).toBe(1);
  expect(await rig.call("c-1", "add", "ink")).toBe(2);
  expect(await rig.query("c-1", "items")).toEqual(["pen", "ink"]);
  const kinds = rig.kindsOf("c-1").filter((kind) => kind.startsWith("method"));
  expect(kinds).toEqual(["methodCalled", "methodAnswered", "methodCalled", "methodAnswered"]);
});

test("a handler awaits activities beside other calls", async () => {
  const rig = await cart();
  const charged = rig.call("c-1", "charge", 5);
  expect(await rig.call("c-1", "add", "pen")).toBe(1);
  expect(await charged).toEqual({ receipt: "charge 5", items: ["pen"], open: 0 });
});

test("an input that does not pass is refused, and says why", async () => {
  const rig = await cart();
  expect(await rig.call("c-1", "add", "pen")).toBe(1);
  expect(await rig.call("c-1", "add", "")).toMatchObject({
    rejected: true,
    failure: { type: "RangeError", message: "An item has a name" },
  });
  expect(await rig.call("c-1", "add", "pen")).toMatchObject({ rejected: true, failure: { message: "pen is in the cart" } });
  expect(await rig.call("c-1", "add", "act")).toMatchObject({
    rejected: true,
    failure: { type: "DeterminismError", message: "Cannot use activity() while a method's input is validated: that only reads" },
  });
  expect(await rig.query("c-1", "items")).toEqual(["pen"]);
  expect(await rig.call("c-1", "fail")).toMatchObject({ rejected: false, failure: { type: "TypeError", message: "no such thing" } });
});

test("signals, queries and methods that carry their types are the same by their names", async () => {
  const rig = new RunRig({ host, bundle });
  const ended = rig.result("n-1", "counter");
  expect([await rig.call("n-1", "add", 2), await rig.call("n-1", "add", 3)]).toEqual([2, 5]);
  expect(await rig.query("n-1", "total")).toBe(5);
  await rig.signal("n-1", "close", "sum ");
  expect(await ended).toBe("sum 5");
});

test("a query that tries to act is refused, and nothing is appended", async () => {
  const rig = await cart();
  expect(await rig.query("c-1", "items")).toEqual([]);
  const before = rig.kindsOf("c-1");
  for (const [name, what] of [
    ["acts", "activity()"],
    ["draws", "random()"],
  ] as const) {
    const refused = await rig.query("c-1", name);
    expect(refused).toMatchObject({
      rejection: { reject: "QUERY_FAILED", message: expect.stringContaining(`Cannot use ${what} in a query`) },
    });
  }
  expect(await rig.query("c-1", "items")).toEqual([]);
  expect(rig.kindsOf("c-1")).toEqual(before);
});

test("a call with an id is one call, however often it is sent", async () => {
  const rig = await cart();
  const twice = await Promise.all([rig.call("c-1", "charge", 5, "k"), rig.call("c-1", "charge", 5, "k")]);
  expect(twice).toEqual([twice[0], twice[0]]);
  expect(await rig.call("c-1", "charge", 5, "k")).toEqual(twice[0]);
  expect(rig.kindsOf("c-1").filter((kind) => kind === "methodCalled")).toHaveLength(1);
  expect(await rig.call("c-1", "add", "x", "k")).toMatchObject({ reject: "IDEMPOTENCY_CONFLICT" });
});

test("calls wait for their method to be declared, in their order", async () => {
  const rig = new RunRig({ host, bundle });
  await rig.begin("l-1", "late");
  const calls = Promise.all([7, 8, 9].map((n) => rig.call("l-1", "note", n)));
  await until(() => rig.kindsOf("l-1").filter((kind) => kind === "methodCalled").length === 3);
  await rig.signal("l-1", "open");
  expect(await calls).toEqual([1, 2, 3]);
  const unknown = rig.call("l-1", "nope");
  await rig.signal("l-1", "done");
  expect(await unknown).toMatchObject({
    rejected: true,
    failure: { type: "MethodNotFoundError", message: 'Run shop:l-1 ended without declaring method "nope": it declared "note"' },
  });
});

test("a run that ends owes no answer, and says so", async () => {
  const rig = await cart();
  const held = rig.call("c-1", "hold", undefined, "h");
  await until(() => rig.kindsOf("c-1").includes("signalAwaited"));
  await rig.signal("c-1", "done");
  expect(await held).toMatchObject({ reject: "RUN_CLOSED" });
  expect(await rig.call("c-1", "hold", undefined, "h")).toMatchObject({ reject: "RUN_CLOSED" });
  expect(await rig.call("c-1", "add", "pen")).toMatchObject({ reject: "RUN_CLOSED" });
  await rig.begin("c-1", "cart");
  // The next run of the name is not asked what its predecessor was.
  expect(await rig.call("c-1", "hold", undefined, "h")).toMatchObject({ reject: "RUN_CLOSED" });
  expect(await rig.call("c-1", "add", "pen")).toBe(1);
});

test("a start with a signal is one step, whether it begins a run, meets one, or waits", async () => {
  const rig = new RunRig({ host, bundle });
  const signal = { name: "open", value: 1, id: "s-1" };
  expect(await rig.signalWithStart("l-1", "late", signal)).toMatchObject({ kind: "started", attached: false, generation: 1 });
  expect(rig.kindsOf("l-1").slice(0, 2)).toEqual(["runStarted", "signalReceived"]);
  // One record: never one without the other.
  const [first] = rig.log.records.map((body) => fromBytes(decodeRecord, body).event.length).filter((count) => count > 0);
  expect(first).toBe(2);
  expect(await rig.signalWithStart("l-1", "late", signal)).toMatchObject({ attached: true, generation: 1 });
  expect(await rig.signalWithStart("l-1", "late", { ...signal, id: "s-2" })).toMatchObject({ attached: true });
  expect(rig.kindsOf("l-1").filter((kind) => kind === "signalReceived")).toHaveLength(2);
  const ended = rig.result("l-1", "late");
  await rig.signalWithStart("l-1", "late", { name: "done", value: undefined, id: "s-3" });
  expect(await ended).toEqual([]);
  expect(await rig.signalWithStart("l-1", "late", { ...signal, id: "s-4" })).toMatchObject({ attached: false, generation: 2 });
});

test("a worker that loses the run with a call in flight: one answer", async () => {
  for (let turns = 0; turns < 12; turns++) {
    const rig = await cart();
    const held = rig.call("c-1", "hold", undefined, "h");
    for (let turn = 0; turn < turns; turn++) await new Promise((done) => setImmediate(done));
    rig.evict("c-1");
    const charged = rig.call("c-1", "charge", turns, "c");
    rig.evict("c-1");
    await rig.signal("c-1", "go", "went");
    expect(await held).toBe("went");
    expect(await charged).toMatchObject({ receipt: `charge ${turns}` });
    const kinds = rig.kindsOf("c-1");
    for (const kind of ["methodCalled", "methodAnswered"]) expect(kinds.filter((each) => each === kind)).toHaveLength(2);
  }
});

test("what came at one instant is replayed as it was recorded, a hundred times", async () => {
  const rig = new RunRig({ host, bundle, activities: ["work"] });
  rig.onTask = (_, input) => `w${String(input)}`;
  await rig.begin("x-1", "mixed");
  const calls: Promise<unknown>[] = [];
  for (const n of [1, 2, 3]) {
    calls.push(rig.call("x-1", "m", n));
    void rig.signal("x-1", "s", String(n));
    rig.nowMs += 6;
    rig.step({ kind: "tick" });
  }
  void rig.signal("x-1", "s", "end");
  await Promise.all(calls);
  rig.nowMs += 20;
  rig.step({ kind: "tick" });
  const ended = rig.command({ kind: "await-result", run: "shop:x-1" as RunId });
  await rig.signal("x-1", "done");
  expect(await ended).toMatchObject({ kind: "outcome", outcome: { status: RunStatus.completed } });
  const events = rig.history("x-1");
  let key = 1_000_000;
  const answers: unknown[] = [];
  const executor = new Executor({
    host,
    blobs: async () => new Uint8Array(0),
    runSlots: () => 200,
    nextKey: () => ++key,
    send: (item) => answers.push(item),
  });
  for (let i = 1; i <= 100; i++) {
    executor.activate({
      shard: 1,
      handle: i,
      activation: 1,
      fromStart: true,
      more: false,
      run: "shop:x-1",
      bundle,
      type: "mixed",
      readOnly: false,
      events,
    });
  }
  await until(() => answers.length === 100);
  for (const answer of answers) expect(answer).toMatchObject({ kind: "activated", value: { commands: [] } });
  for (const answer of answers as { value: { status?: number; problem?: string } }[]) expect(answer.value.problem ?? "").toBe("");
  executor.close();
});
