import { describe, expect, test } from "bun:test";
import fc from "fast-check";
import { HopError } from "#core/base";
import {
  type Activated,
  ActivatedStatus,
  type ActivateInit,
  type CommandInit,
  CommandKind,
  decodeWorkerItem,
  EventKind,
  encodeActivityCompleted,
  encodeWorkerItem,
  fromBytes,
  type QueryAnswer,
  toBytes,
  type WorkerItem,
} from "#proto";
import { EventLog, json } from "./abi/event-fixture.ts";
import type { BlobSource } from "./blob-source.ts";
import { Executor } from "./executor.ts";
import { type Api, PlainHost, type PlainWorkflow } from "./host/plain-host-fixture.ts";

const bundle = new Uint8Array(32).fill(9);
const noBlobs: BlobSource = async () => new Uint8Array(0);

/** An executor whose items are collected, and the events of one run to feed it with. */
class Rig {
  readonly host: PlainHost;
  readonly executor: Executor;
  readonly items: WorkerItem[] = [];
  readonly log = new EventLog();
  private readonly waiters: (() => void)[] = [];
  private activation = 0;
  private seen = 0;

  constructor(workflows: Record<string, PlainWorkflow>, options: { runSlots?: number; blobs?: BlobSource } = {}) {
    this.host = new PlainHost(workflows);
    let key = 0;
    this.executor = new Executor({
      host: this.host,
      blobs: options.blobs ?? noBlobs,
      runSlots: () => options.runSlots ?? 100,
      nextKey: () => ++key,
      send: (item) => {
        this.items.push(fromBytes(decodeWorkerItem, toBytes(encodeWorkerItem, item)));
        for (const look of this.waiters.splice(0)) look();
      },
    });
  }

  async until(claim: () => boolean): Promise<void> {
    while (!claim()) await new Promise<void>((look) => this.waiters.push(look));
  }

  send(handle: number, fields: ActivateInit): number {
    const activation = ++this.activation;
    const from = { fromStart: false, more: false, run: "", bundle: new Uint8Array(0), type: "", events: [], readOnly: false };
    this.executor.activate({ shard: 3, ...from, ...fields, handle, activation } as Parameters<Executor["activate"]>[0]);
    return activation;
  }

  activated(): Activated[] {
    return this.items.flatMap((item) => (item.kind === "activated" ? [item.value] : []));
  }

  answers(): QueryAnswer[] {
    return this.items.flatMap((item) => (item.kind === "queryAnswer" ? [item.value] : []));
  }

  async result(activation: number): Promise<Activated> {
    await this.until(() => this.activated().some((each) => each.activation === activation));
    return this.activated().find((each) => each.activation === activation) as Activated;
  }

  /** Builds the run from all its events so far. */
  fromStart(handle = 1, fields: ActivateInit = {}): Promise<Activated> {
    this.seen = this.log.events.length;
    return this.result(
      this.send(handle, { fromStart: true, run: "default:r1", type: "main", bundle, events: [...this.log.events], ...fields }),
    );
  }

  /** Goes on with the events that were added since. */
  proceed(handle = 1): Promise<Activated> {
    const events = this.log.events.slice(this.seen);
    this.seen = this.log.events.length;
    return this.result(this.send(handle, { events }));
  }

  record(commands: readonly CommandInit[]): void {
    for (const command of commands) this.log.record(command, new Set());
  }
}

const summary = ({ status, commands, problem }: Activated) => ({
  status,
  problem,
  commands: commands.map((c) => [c.kind, c.op, c.name, Buffer.from(c.payload?.data ?? []).toString()]),
});

const order: PlainWorkflow = async (api: Api) => {
  const steps: unknown[] = [];
  api.query("steps", () => steps);
  api.query("broken", () => {
    throw new Error("no answer");
  });
  steps.push(await api.activity("charge", api.input));
  await api.sleep(1000);
  steps.push(await api.signal("paid"));
  return steps;
};

describe("a run", () => {
  test("goes on from activation to activation", async () => {
    const rig = new Rig({ main: order });
    rig.log.started("main", { id: 1 });
    const first = await rig.fromStart();
    expect(summary(first)).toEqual({ status: 0, problem: "", commands: [[CommandKind.activity, 1, "charge", '{"id":1}']] });
    expect(rig.host.opened).toEqual([{ key: 1, run: "default:r1", generation: 1, type: "main", bundle: "09".repeat(32), seed: 7 }]);
    rig.log.completed(1, "ok");
    expect(summary(await rig.proceed()).commands).toEqual([[CommandKind.timer, 2, "", ""]]);
    rig.log.fired(2);
    expect(summary(await rig.proceed()).commands).toEqual([[CommandKind.awaitSignal, 3, "paid", ""]]);
    rig.log.signalled("paid", 9);
    expect(summary(await rig.proceed()).commands).toEqual([[CommandKind.complete, 0, "", '["ok",9]']]);
  });

  test("that is built anew asks only for what is beyond its history", async () => {
    const rig = new Rig({ main: order });
    rig.log.started("main", { id: 1 });
    for (const [add] of [[() => rig.log.completed(1, "ok")], [() => rig.log.fired(2)]] as const) {
      rig.record((await rig.fromStart()).commands);
      add();
    }
    expect(summary(await rig.fromStart())).toEqual({ status: 0, problem: "", commands: [[CommandKind.awaitSignal, 3, "paid", ""]] });
    expect(rig.host.dropped).toEqual([1, 2]);
  });

  test("whose events come in several parts is activated once, with all of them", async () => {
    const rig = new Rig({ main: order });
    const events = [rig.log.started("main", 1), rig.log.signalled("paid", 2), rig.log.signalled("paid", 3)];
    const start = { fromStart: true, run: "default:r1", type: "main", bundle, readOnly: false, shard: 3 };
    events.forEach((event, i) => {
      rig.executor.activate({ ...start, handle: 5, activation: 77, events: [event], more: i < events.length - 1 });
    });
    expect(summary(await rig.result(77)).commands).toHaveLength(1);
    expect(rig.items).toHaveLength(1);
  });

  test("that the worker does not hold is asked for from the start", async () => {
    const rig = new Rig({ main: order });
    expect((await rig.result(rig.send(4, { events: [rig.log.completed(1, 1)] }))).status).toBe(ActivatedStatus.notCached);
  });

  test("that is read only asks for nothing", async () => {
    const rig = new Rig({ main: order });
    rig.log.started("main", 1);
    expect(summary(await rig.fromStart(1, { readOnly: true })).commands).toEqual([]);
  });

  test("that diverges is reported, let go of, and can be built again from other code", async () => {
    const rig = new Rig({ main: order });
    rig.log.started("main", 1);
    rig.record((await rig.fromStart()).commands);
    rig.log.completed(1, "ok");
    rig.host.workflows = { main: async (api) => api.activity("ship", 1) };
    const diverged = await rig.fromStart();
    expect(diverged.status).toBe(ActivatedStatus.diverged);
    expect(diverged.problem).toContain(
      'has activity "charge" with input 1, the code asked for activity "ship" with input 1 (bundle 090909090909)',
    );
    expect(rig.host.size).toBe(0);
    expect((await rig.proceed()).status).toBe(ActivatedStatus.notCached);
    rig.host.workflows = { main: order };
    expect(summary(await rig.fromStart())).toMatchObject({ status: 0, commands: [[CommandKind.timer, 2, "", ""]] });
  });
});

describe("what a host reports", () => {
  const cases = [
    ["limit", ActivatedStatus.limit],
    ["broken", ActivatedStatus.broken],
    ["lost", ActivatedStatus.notCached],
  ] as const;
  for (const [kind, status] of cases) {
    test(`as ${kind} is told with its message, and the run can be built anew`, async () => {
      const rig = new Rig({ main: order });
      rig.log.started("main", 1);
      rig.record((await rig.fromStart()).commands);
      rig.log.completed(1, "ok");
      rig.host.faults.push({ kind, message: `because of ${kind}` });
      expect(summary(await rig.proceed())).toEqual({ status, problem: `because of ${kind}`, commands: [] });
      rig.host.faults.push({ kind, message: "again" });
      expect((await rig.fromStart()).status).toBe(status);
      expect(summary(await rig.fromStart())).toMatchObject({ status: 0, commands: [[CommandKind.timer, 2, "", ""]] });
    });
  }

  test("as commands above the limit ends the activation", async () => {
    const big = "x".repeat(13 << 20);
    const rig = new Rig({ main: async (api) => Promise.all([1, 2, 3, 4].map(() => api.activity("store", big))) });
    rig.log.started("main", 1);
    const { status, problem } = await rig.fromStart();
    expect(status).toBe(ActivatedStatus.limit);
    expect(problem).toContain("hold 54525960 bytes, at most 50331648 are allowed");
  });
});

describe("payloads and bundles in storage", () => {
  const data = json("stored");
  const ref = { sha256: new Uint8Array(32).fill(1), size: data.length };

  test("are read before the run is told", async () => {
    const asked: number[] = [];
    const blobs: BlobSource = async (sha256) => {
      asked.push(sha256[0] as number);
      return data;
    };
    const rig = new Rig({ main: order }, { blobs });
    rig.log.started("main", 1);
    rig.record((await rig.fromStart()).commands);
    rig.log.add(EventKind.activityCompleted, encodeActivityCompleted, { op: 1, result: { ref } });
    await rig.proceed();
    await rig.fromStart();
    rig.executor.query({ query: 1, shard: 3, handle: 1, name: "steps", input: undefined });
    await rig.until(() => rig.answers().length === 1);
    expect(Buffer.from(rig.answers()[0]?.result?.data ?? []).toString()).toBe('["stored"]');
    expect(asked).toEqual([9, 1, 1]);
  });

  test("that can't be read now are the worker's trouble, not the run's", async () => {
    let isDown = true;
    const blobs: BlobSource = async () => {
      if (isDown) throw new HopError("STORE_UNAVAILABLE", "Cannot read blob 01: no answer");
      return data;
    };
    const rig = new Rig({ main: order }, { blobs });
    rig.log.started("main", 1);
    expect(summary(await rig.fromStart())).toEqual({
      status: ActivatedStatus.retry,
      problem: "Cannot load bundle 090909090909: Cannot read blob 01: no answer",
      commands: [],
    });
    isDown = false;
    rig.record((await rig.fromStart()).commands);
    rig.log.add(EventKind.activityCompleted, encodeActivityCompleted, { op: 1, result: { ref } });
    isDown = true;
    expect(await rig.proceed()).toMatchObject({ status: ActivatedStatus.retry, problem: "Cannot read blob 01: no answer" });
    isDown = false;
    expect(summary(await rig.fromStart())).toMatchObject({ status: 0, commands: [[CommandKind.timer, 2, "", ""]] });
  });

  test("that do not exist break the run", async () => {
    const blobs: BlobSource = async () => {
      throw new HopError("BLOB_NOT_FOUND", "Storage has no blob 09");
    };
    const rig = new Rig({ main: order }, { blobs });
    rig.log.started("main", 1);
    expect(await rig.fromStart()).toMatchObject({
      status: ActivatedStatus.broken,
      problem: "Cannot load bundle 090909090909: Storage has no blob 09",
    });
  });
});

describe("queries", () => {
  async function asked(name: string) {
    const rig = new Rig({ main: order });
    rig.log.started("main", 1);
    await rig.fromStart();
    rig.executor.query({ query: 3, shard: 3, handle: 1, name, input: undefined });
    await rig.until(() => rig.answers().length === 1);
    return rig.answers()[0];
  }

  test("are answered", async () => expect(await asked("steps")).toMatchObject({ query: 3, result: { data: json([]) }, notCached: false }));
  test("that fail carry the failure", async () =>
    expect(await asked("broken")).toMatchObject({ query: 3, failure: { type: "Error", message: "no answer" } }));
  test("that are not declared name those that are", async () => {
    const message = 'The workflow has no query "step": it declares "steps", "broken"';
    expect(await asked("step")).toMatchObject({ failure: { type: "QueryNotFoundError", message } });
  });

  test("for a run that is not held say so", async () => {
    const rig = new Rig({});
    rig.executor.query({ query: 8, shard: 3, handle: 1, name: "steps", input: undefined });
    expect(rig.answers()).toMatchObject([{ query: 8, notCached: true }]);
  });

  test("come after the activations before them, and before those after", async () => {
    const rig = new Rig({ main: order });
    rig.log.started("main", 1);
    const started = rig.fromStart();
    rig.executor.query({ query: 1, shard: 3, handle: 1, name: "steps", input: undefined });
    rig.record([{ kind: CommandKind.activity, op: 1, name: "charge", payload: { data: json(1) } }]);
    rig.log.completed(1, "ok");
    const gone = rig.proceed();
    rig.executor.query({ query: 2, shard: 3, handle: 1, name: "steps", input: undefined });
    await Promise.all([started, gone]);
    await rig.until(() => rig.answers().length === 2);
    expect(rig.answers().map(({ result }) => Buffer.from(result?.data ?? []).toString())).toEqual(["[]", '["ok"]']);
  });

  test("that wait for a run that fails are told that it is not held", async () => {
    const rig = new Rig({ main: order });
    rig.log.started("main", 1);
    rig.host.faults.push({ kind: "lost", message: "gone" });
    const started = rig.fromStart();
    for (const query of [1, 2]) rig.executor.query({ query, shard: 3, handle: 1, name: "steps", input: undefined });
    await started;
    await rig.until(() => rig.answers().length === 2);
    expect(rig.answers().map(({ query, notCached }) => [query, notCached])).toEqual([
      [1, true],
      [2, true],
    ]);
  });
});

describe("the cache", () => {
  test("evicts the run that was idle longest, and says so", async () => {
    const rig = new Rig({ main: order }, { runSlots: 2 });
    rig.log.started("main", 1);
    for (const handle of [1, 2]) await rig.fromStart(handle);
    rig.executor.query({ query: 1, shard: 3, handle: 1, name: "steps", input: undefined });
    await rig.until(() => rig.answers().length === 1);
    await rig.fromStart(3);
    expect(rig.items.flatMap((item) => (item.kind === "evicted" ? [item.value.handle] : []))).toEqual([2]);
    expect(rig.host.dropped).toEqual([2]);
    expect(rig.host.size).toBe(2);
  });

  test("keeps runs of two shards apart that have the same handle", async () => {
    const rig = new Rig({ main: order });
    rig.log.started("main", 1);
    const start = { fromStart: true, run: "default:r1", type: "main", bundle, events: rig.log.events };
    rig.send(1, { ...start, shard: 4 });
    rig.send(1, { ...start, shard: 5 });
    await rig.until(() => rig.activated().length === 2);
    expect(rig.activated().map(({ shard, handle }) => [shard, handle])).toEqual([
      [4, 1],
      [5, 1],
    ]);
    rig.executor.drop({ shard: 4, handle: 1 });
    for (const shard of [4, 5]) rig.executor.query({ query: shard, shard, handle: 1, name: "steps", input: undefined });
    await rig.until(() => rig.answers().length === 2);
    expect(rig.answers().map((answer) => [answer.query, answer.shard, answer.notCached])).toEqual([
      [4, 4, true],
      [5, 5, false],
    ]);
  });

  test("never evicts a run that is busy: it waits until one is idle", async () => {
    const rig = new Rig({ main: order }, { runSlots: 1 });
    rig.log.started("main", 1);
    await Promise.all([1, 2, 3].map((handle) => rig.fromStart(handle)));
    expect(rig.activated().map(({ status }) => status)).toEqual([0, 0, 0]);
    await rig.until(() => rig.items.filter((item) => item.kind === "evicted").length === 2);
    expect(rig.host.size).toBe(1);
  });

  test("forgets what the server drops, and answers nothing more for it", async () => {
    const rig = new Rig({ main: order });
    rig.log.started("main", 1);
    rig.send(1, { fromStart: true, run: "default:r1", type: "main", bundle, events: rig.log.events });
    rig.executor.drop({ shard: 3, handle: 1 });
    rig.executor.drop({ shard: 3, handle: 1 });
    await rig.fromStart(2);
    expect(rig.activated().map(({ handle }) => handle)).toEqual([2]);
    expect(rig.host.size).toBe(1);
  });

  test("is empty after close, and nothing is sent any more", async () => {
    const rig = new Rig({ main: order });
    rig.log.started("main", 1);
    await rig.fromStart(1);
    rig.send(2, { fromStart: true, run: "default:r1", type: "main", bundle, events: rig.log.events });
    rig.executor.close();
    const sent = rig.items.length;
    const other = new Rig({ main: order });
    other.log.started("main", 1);
    await other.fromStart();
    expect(rig.items.length).toBe(sent);
    expect(rig.host.size).toBe(0);
  });
});

/** A workflow made of a random tree of joins and races over steps, sleeps and signals. */
interface Leaf {
  kind: "activity" | "sleep" | "signal";
  id: number;
}
interface Branch {
  kind: "all" | "race" | "sequence";
  of: Tree[];
}
type Tree = Leaf | Branch;
const trees = fc.letrec<{ tree: Tree }>((tie) => ({
  tree: fc.oneof(
    { maxDepth: 3 },
    fc.record({ kind: fc.constantFrom("activity" as const, "sleep" as const, "signal" as const), id: fc.nat(99) }),
    fc.record({
      kind: fc.constantFrom("all" as const, "race" as const, "sequence" as const),
      of: fc.array(tie("tree"), { minLength: 1, maxLength: 4 }),
    }),
  ),
})).tree;

async function walk(api: Api, tree: Tree): Promise<unknown> {
  if ("id" in tree) {
    if (tree.kind === "activity") return api.activity(`a${tree.id}`, tree.id);
    return tree.kind === "sleep" ? api.sleep(tree.id) : api.signal("s");
  }
  if (tree.kind === "all") return Promise.all(tree.of.map((each) => walk(api, each)));
  if (tree.kind === "race") return Promise.race(tree.of.map((each) => walk(api, each)));
  const out: unknown[] = [];
  for (const each of tree.of) out.push(await walk(api, each));
  return out;
}

test("a run is the same live, rebuilt at any event, and in whatever parts its events come", async () => {
  await fc.assert(
    fc.asyncProperty(trees, fc.infiniteStream(fc.nat()), async (tree, random) => {
      const pick = (bound: number) => (random.next().value as number) % bound;
      const rig = new Rig({ main: (api) => walk(api, tree) });
      rig.log.started("main", null);
      const open = new Map<number, number>();
      let commands = (await rig.fromStart()).commands;
      for (let step = 0; step < 60; step++) {
        rig.record(commands);
        if (commands.some(({ kind }) => kind === CommandKind.complete)) return;
        for (const c of commands) if (c.kind !== CommandKind.awaitSignal) open.set(c.op, c.kind);
        const events = 1 + pick(3);
        for (let i = 0; i < events; i++) {
          const op = [...open.keys()][pick(Math.max(1, open.size))];
          if (op === undefined || pick(4) === 0) rig.log.signalled("s", step);
          else {
            if (open.get(op) === CommandKind.timer) rig.log.fired(op);
            else rig.log.completed(op, `r${op}`);
            open.delete(op);
          }
        }
        const isRebuilt = pick(2) === 0;
        const next = isRebuilt ? await rig.fromStart() : await rig.proceed();
        expect(next).toMatchObject({ status: 0, problem: "" });
        commands = next.commands;
        if (isRebuilt) expect(summary(await rig.fromStart(2)).commands).toEqual(summary(next).commands);
      }
    }),
    { numRuns: 40 },
  );
}, 30_000);
