/** A worker and several nodes of one cluster, over real gRPC. */
import { afterEach, describe, expect, test } from "bun:test";
import type { ServerItemInit, TaskToken } from "#proto";
import type { Activities } from "#sdk/activity";
import { until } from "../tests/until.ts";
import type { LogRecord } from "./log.ts";
import { type ServedStream, TestServer } from "./server-fixture.ts";
import { startWorker, type Worker, type WorkerOptions } from "./start.ts";

let nodes: TestServer[] = [];
let worker: Worker | undefined;
let logs: LogRecord[] = [];
let version = 0;

afterEach(async () => {
  await worker?.close();
  worker = undefined;
  for (const node of nodes) node.stop();
  nodes = [];
  logs = [];
});

const listed = (members: readonly TestServer[]) => ({ address: members.map(({ address }) => address), version: ++version });

function greetAs(node: TestServer, number: number, members: () => readonly TestServer[]): void {
  node.greet = (stream) =>
    stream.send({
      kind: "welcome",
      value: { clusterId: "c1", session: node.streams.length, node: number, address: node.address, nodes: listed(members()) },
    });
}

async function cluster(size: number): Promise<TestServer[]> {
  for (let at = 0; at < size; at++) {
    const node = new TestServer();
    nodes.push(node);
    await node.start();
    greetAs(node, at + 1, () => nodes);
  }
  return nodes;
}

async function start(activities: Activities, address: string | string[], options: Partial<WorkerOptions> = {}): Promise<void> {
  worker = await startWorker({ address, activities, workerId: "w1", graceMs: 0, onLog: (record) => logs.push(record), ...options });
  await worker.ready;
}

const allJoined = (of: readonly TestServer[] = nodes) => until(() => of.every((node) => node.streams.length > 0), { what: "all streams" });
const token = (op: number, epoch = 1): TaskToken => ({ run: "default:r1", generation: 1, op, attempt: 1, delivery: 1, epoch });
const task = (op: number, name: string, fields: { epoch?: number; shard?: number; number?: number } = {}): ServerItemInit => ({
  kind: "task",
  value: { token: token(op, fields.epoch), name, number: fields.number ?? op, shard: fields.shard ?? 1, input: { data: Buffer.from("1") } },
});
const doneOps = (stream: ServedStream | undefined) => (stream?.of("taskDone") ?? []).map(({ value }) => value.token?.op);
const lastRoom = (node: TestServer) =>
  node.latest.of("capacity").at(-1)?.value ?? { activitySlots: node.latest.hello.activitySlots, runSlots: node.latest.hello.runSlots };

describe("a worker given one address", () => {
  test("holds one stream to every node, and shares its slots between them", async () => {
    const [a, b, c] = (await cluster(3)) as [TestServer, TestServer, TestServer];
    await start({ echo: (input) => input }, a.address, { activitySlots: 9 });
    await allJoined();
    await until(() => [a, b, c].every((node) => lastRoom(node).activitySlots === 3), { what: "equal shares" });
    b.latest.send(task(1, "echo"));
    c.latest.send(task(2, "echo"));
    await until(() => doneOps(b.latest).length === 1 && doneOps(c.latest).length === 1);
    expect([doneOps(a.latest), doneOps(b.latest), doneOps(c.latest)]).toEqual([[], [1], [2]]);
    expect([a, b, c].map((node) => node.streams.length)).toEqual([1, 1, 1]);
  });

  test("knows a node by whatever name it was given", async () => {
    const [a, b] = (await cluster(2)) as [TestServer, TestServer];
    await start({}, [`localhost:${a.address.split(":")[1]}`, b.address]);
    await allJoined();
    await until(() => logs.filter(({ message }) => message === "Connected").length === 2);
    expect([a.streams.length, b.streams.length]).toEqual([1, 1]);
  });

  test("follows the list: new nodes are joined, and nodes that left are not asked for again", async () => {
    const [a, b] = (await cluster(2)) as [TestServer, TestServer];
    await start({}, a.address);
    await allJoined();
    const c = new TestServer();
    await c.start();
    nodes.push(c);
    greetAs(c, 3, () => [a, c]);
    a.latest.send({ kind: "nodes", value: listed([a, c]) });
    await allJoined([c]);
    expect(b.latest.isOver).toBe(false);
    b.latest.end();
    await until(() => b.latest.isOver, { what: "the end of the stream to b" });
    // A list that is older than the one it has changes nothing.
    c.latest.send({ kind: "nodes", value: { address: [b.address], version: 1 } });
    c.latest.send(task(1, "none"));
    await until(() => doneOps(c.latest).length === 1);
    expect(b.streams).toHaveLength(1);
  });

  test("that is of a node which is lost goes on with the others, and joins it again when it is back", async () => {
    const [a, b] = (await cluster(2)) as [TestServer, TestServer];
    await start({ echo: (input) => input }, a.address);
    await allJoined();
    a.stop();
    b.latest.send(task(1, "echo"));
    await until(() => doneOps(b.latest).length === 1);
    expect(worker?.isConnected).toBe(true);
    await a.start();
    await until(() => a.streams.length === 2, { what: "a second stream to a" });
    expect(b.streams).toHaveLength(1);
  });

  test("finds the cluster through it again when all that it learned is gone", async () => {
    const [a, b] = (await cluster(2)) as [TestServer, TestServer];
    await start({}, a.address);
    await allJoined();
    a.stop();
    b.stop();
    await until(() => worker?.isConnected === false);
    greetAs(a, 1, () => [a]);
    await a.start();
    await until(() => worker?.isConnected === true && a.streams.length > 1);
    expect(a.latest.hello.clusterId).toBe("c1");
  });
});

describe("results", () => {
  test("go back the way their task came, and by another node where that is lost", async () => {
    const gate = Promise.withResolvers<void>();
    const [a, b] = (await cluster(2)) as [TestServer, TestServer];
    await start({ wait: () => gate.promise }, a.address);
    await allJoined();
    a.latest.send(task(1, "wait"));
    await until(() => a.latest.of("ack").length === 1);
    a.stop();
    gate.resolve();
    await until(() => doneOps(b.latest).length === 1, { what: "the result at b" });
  });

  test("that are not there yet are offered in each hello, and told to a node that asks", async () => {
    const gate = Promise.withResolvers<void>();
    const [a, b] = (await cluster(2)) as [TestServer, TestServer];
    await start({ wait: () => gate.promise }, a.address);
    await allJoined();
    a.latest.send(task(1, "wait"));
    await until(() => a.latest.of("ack").length === 1);
    b.latest.send({ kind: "recall", value: { shard: 1 } });
    await until(() => b.latest.of("held").length === 1);
    expect(b.latest.of("held")[0]?.value).toEqual({ shard: 1, token: [token(1)] });
    b.latest.end();
    await until(() => b.streams.length === 2);
    expect(b.latest.hello.held).toEqual([token(1)]);
    // The new leader offers it again: it runs on, and its result goes there.
    b.latest.send({ kind: "task", value: { token: { ...token(1, 2), delivery: 2 }, name: "wait", number: 1, shard: 1 } });
    await until(() => b.latest.of("ack").length === 1);
    gate.resolve();
    await until(() => b.latest.of("taskDone").length === 1);
    expect(b.latest.of("taskDone")[0]?.value.token).toMatchObject({ delivery: 2, epoch: 2 });
    expect(doneOps(a.latest)).toEqual([]);
  });
});

describe("a deposed leader", () => {
  test("is not obeyed: its tasks do not run and its cancellations count for nothing", async () => {
    const gate = Promise.withResolvers<string>();
    const ran: number[] = [];
    const activities: Activities = {
      work: async (_, context) => {
        ran.push(context.attempt);
        return await Promise.race([
          gate.promise,
          new Promise<string>((_done, fail) => context.signal.addEventListener("abort", () => fail(context.signal.reason))),
        ]);
      },
    };
    const [a, b] = (await cluster(2)) as [TestServer, TestServer];
    await start(activities, a.address);
    await allJoined();
    b.latest.send(task(1, "work", { epoch: 7 }));
    await until(() => ran.length === 1);
    a.latest.send(task(2, "work", { epoch: 6 }), { kind: "cancelTask", value: { token: token(1, 6), reason: "old" } });
    // Another shard's epochs are its own.
    a.latest.send(task(3, "work", { epoch: 6, shard: 2 }));
    await until(() => ran.length === 2);
    gate.resolve("done");
    await until(() => doneOps(b.latest).length === 1 && doneOps(a.latest).length === 1);
    expect([doneOps(a.latest), doneOps(b.latest)]).toEqual([[3], [1]]);
    expect(b.latest.of("taskDone")[0]?.value.failure).toBeUndefined();
    expect(logs.filter(({ message }) => message === "A task of a deposed leader is left out").map(({ fields }) => fields)).toEqual([
      { run: "default:r1", op: 2, activity: "work", shard: 1, epoch: 6, newestEpoch: 7 },
    ]);
  });
});

describe("slots", () => {
  test("move to a node that has much to do from one that has nothing", async () => {
    const gate = Promise.withResolvers<void>();
    const [a, b] = (await cluster(2)) as [TestServer, TestServer];
    await start({ wait: () => gate.promise }, a.address, { activitySlots: 8 });
    await allJoined();
    await until(() => lastRoom(a).activitySlots === 4 && lastRoom(b).activitySlots === 4);
    a.latest.send(...[1, 2, 3, 4].map((op) => task(op, "wait")));
    await until(() => lastRoom(a).activitySlots === 6, { what: "half of what b does not use" });
    expect(lastRoom(b).activitySlots).toBe(2);
    gate.resolve();
  });

  test("of nodes that are lost go to those that are left", async () => {
    const [a, b] = (await cluster(2)) as [TestServer, TestServer];
    await start({}, a.address, { activitySlots: 8 });
    await allJoined();
    await until(() => lastRoom(b).activitySlots === 4);
    a.stop();
    await until(() => lastRoom(b).activitySlots === 8);
  });
});
