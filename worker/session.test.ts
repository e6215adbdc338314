import { afterEach, describe, expect, test } from "bun:test";
import * as grpc from "@grpc/grpc-js";
import { Prng } from "#core/base";
import type { ServerItemInit, TaskToken } from "#proto";
import { ActivatedStatus } from "#proto";
import type { Activities } from "#sdk/activity";
import { EventLog } from "./abi/event-fixture.ts";
import { PlainHost } from "./host/plain-host-fixture.ts";
import type { LogRecord } from "./log.ts";
import { type ServedStream, TestServer } from "./server-fixture.ts";
import { startWorker, type Worker, type WorkerOptions } from "./start.ts";

const token = (op: number, delivery = 1): TaskToken => ({ run: "default:r1", generation: 1, op, attempt: 1, delivery, epoch: 0 });
const task = (op: number, name: string, number = op): ServerItemInit => ({
  kind: "task",
  value: { token: token(op), name, number, input: { data: Buffer.from(String(op)) } },
});
const noCode = new Bun.CryptoHasher("sha256").digest();
const resultOf = (stream: ServedStream) =>
  stream
    .of("taskDone")
    .map(({ value }) => `${value.token?.op}.${value.token?.delivery}=${Buffer.from(value.result?.data ?? []).toString()}`);

function gate(): { promise: Promise<void>; open: () => void } {
  let open!: () => void;
  const promise = new Promise<void>((done) => {
    open = done;
  });
  return { promise, open };
}

const server = new TestServer();
let worker: Worker | undefined;
let logs: LogRecord[] = [];

afterEach(async () => {
  await worker?.close();
  worker = undefined;
  server.stop();
  server.streams.length = 0;
  server.clusterId = "c1";
  server.onItem = undefined;
  server.greet = (stream) => stream.send({ kind: "welcome", value: { clusterId: server.clusterId, session: server.streams.length } });
  logs = [];
});

async function start(activities: Activities, options: Partial<WorkerOptions> = {}): Promise<void> {
  await server.start();
  worker = await startWorker({
    address: server.address,
    activities,
    workerId: "w1",
    graceMs: 0,
    onLog: (record) => logs.push(record),
    ...options,
  });
  await worker.ready;
}

const warnings = () => logs.filter(({ level }) => level === "warn").map(({ message, fields }) => `${message}: ${String(fields.reason)}`);

describe("a stream", () => {
  test("begins with a hello that says what the worker is", async () => {
    await start(
      { a: () => 1, b: () => 2 },
      { host: () => new PlainHost({}), activitySlots: 7, runSlots: 8, namespace: "shop", version: "0.3.0" },
    );
    expect(server.latest.hello).toEqual({
      workerId: "w1",
      namespace: "shop",
      modes: ["v8"],
      activities: ["a", "b"],
      activitySlots: 7,
      runSlots: 8,
      version: "0.3.0",
      clusterId: "",
      wantsLocal: true,
      held: [],
    });
    expect(worker?.isConnected).toBe(true);
  });

  test("carries tasks and their results, each result with the acknowledgement that is due", async () => {
    await start({ echo: (input) => input });
    server.latest.send(task(1, "echo"), task(2, "echo"), task(3, "echo"));
    await server.until(() => server.latest.of("taskDone").length === 3);
    expect(resultOf(server.latest)).toEqual(["1.1=1", "2.1=2", "3.1=3"]);
    expect(server.latest.items[0]).toEqual({ kind: "ack", value: { number: 3 } });
    expect(server.latest.of("ack")).toHaveLength(1);
    expect(server.latest.frames).toEqual([["ack", "taskDone", "taskDone", "taskDone"]]);
  });

  test("carries the acknowledgement of tasks that take long soon, and once for all", async () => {
    const end = gate();
    await start({ wait: () => end.promise });
    server.latest.send(task(1, "wait"), task(2, "wait"));
    await server.until(() => server.latest.items.length > 0);
    expect(server.latest.items).toEqual([{ kind: "ack", value: { number: 2 } }]);
    end.open();
    await server.until(() => server.latest.of("taskDone").length === 2);
    expect(server.latest.of("ack")).toHaveLength(1);
  });

  test("carries cancellations", async () => {
    await start({ wait: (_, { signal }) => new Promise((_done, fail) => signal.addEventListener("abort", () => fail(signal.reason))) });
    server.latest.send(task(1, "wait"), { kind: "cancelTask", value: { token: token(1), reason: "withdrawn" } });
    await server.until(() => server.latest.of("taskDone").length === 1);
    expect(server.latest.of("taskDone")[0]?.value.failure?.message).toBe("Activity wait is cancelled: withdrawn");
  });

  test("carries runs; those of a lost stream are gone", async () => {
    const host = new PlainHost({ main: (api) => api.activity("charge", api.input) });
    await start({}, { host: () => host, blobs: async () => new Uint8Array(0) });
    const log = new EventLog();
    const first: ServerItemInit = {
      kind: "activate",
      value: {
        handle: 1,
        activation: 1,
        fromStart: true,
        run: "default:r1",
        type: "main",
        bundle: noCode,
        events: [log.started("main", 5)],
      },
    };
    server.latest.send(first);
    await server.until(() => server.latest.of("activated").length === 1);
    expect(server.latest.of("activated")[0]?.value).toMatchObject({
      handle: 1,
      activation: 1,
      status: 0,
      commands: [{ name: "charge", op: 1 }],
    });
    server.latest.reset();
    await server.until(() => server.streams.length === 2);
    expect(host.size).toBe(0);
    server.latest.send({ kind: "activate", value: { handle: 1, activation: 2, events: [log.completed(1, "ok")] } });
    await server.until(() => server.latest.of("activated").length === 1);
    expect(server.latest.of("activated")[0]?.value.status).toBe(ActivatedStatus.notCached);
  });
});

describe("a worker connects again", () => {
  const endings: Record<string, (stream: ServedStream) => void | Promise<void>> = {
    "after RST_STREAM(CANCEL)": (stream) => stream.reset(),
    "after a clean end": (stream) => stream.end(),
    "after GOAWAY": (stream) => stream.goAway(),
    "after CANCELLED": (stream) => stream.fail(grpc.status.CANCELLED, "stop"),
    "after UNAUTHENTICATED": (stream) => stream.fail(grpc.status.UNAUTHENTICATED, "who are you"),
    "after INTERNAL": (stream) => stream.fail(grpc.status.INTERNAL, "bug"),
    "after its socket is gone": (stream) => stream.destroy(),
    "after a frame that can't be read": (stream) => stream.raw(Uint8Array.of(10, 200, 1)),
    "after an item that can't be read": (stream) => stream.raw(Uint8Array.of(10, 3, 18, 9, 9)),
    "after events that can't be read": (stream) =>
      stream.send({ kind: "activate", value: { handle: 1, activation: 1, fromStart: true, events: [Uint8Array.of(255)] } }),
    "after the server was killed and started again": async () => {
      server.stop();
      await server.start();
    },
  };
  for (const [when, end] of Object.entries(endings)) {
    test(when, async () => {
      await start({ echo: (input) => input }, { host: () => new PlainHost({}) });
      const [first] = server.streams;
      await end(first as ServedStream);
      await server.until(() => server.streams.length === 2);
      server.latest.send(task(1, "echo"));
      await server.until(() => server.latest.of("taskDone").length === 1);
      expect(resultOf(server.latest)).toEqual(["1.1=1"]);
      expect(server.latest.hello.clusterId).toBe("c1");
      expect(warnings()[0]).toStartWith("The stream ended, connecting again: 127.0.0.1:");
    });
  }

  test("to announce activities that came or went, and executes on", async () => {
    const end = gate();
    const activities: Record<string, Activities[string]> = { wait: () => end.promise };
    await start(activities);
    server.latest.send(task(1, "wait"));
    await server.until(() => server.latest.of("ack").length === 1);
    activities.echo = (input) => input;
    worker?.announce();
    await server.until(() => server.streams.length === 2);
    expect([server.latest.hello.activities, server.latest.hello.held]).toEqual([["wait", "echo"], [token(1)]]);
    server.latest.send(task(2, "echo"));
    await server.until(() => server.latest.of("taskDone").length === 1);
    end.open();
    await server.until(() => server.latest.of("taskDone").length === 2);
  });

  test("to a server that was not there when it started", async () => {
    await server.start();
    server.stop();
    worker = await startWorker({
      address: server.address,
      activities: { echo: (input) => input },
      graceMs: 0,
      onLog: (record) => logs.push(record),
    });
    while (logs.length < 2) await new Promise((done) => setImmediate(done));
    expect(worker.isConnected).toBe(false);
    await server.start();
    await worker.ready;
    expect(logs.map(({ level, message }) => `${level} ${message}`).slice(0, 2)).toEqual([
      "warn Cannot connect, trying again",
      "debug Cannot connect, trying again",
    ]);
  });

  test("to the next of several addresses", async () => {
    await server.start();
    worker = await startWorker({ address: ["127.0.0.1:1", server.address], activities: {}, graceMs: 0 });
    await worker.ready;
    expect(server.streams).toHaveLength(1);
  });

  test("and names what it still executes; the result goes out on the new stream", async () => {
    const end = gate();
    let count = 0;
    await start({
      wait: async () => {
        count++;
        await end.promise;
        return "late";
      },
    });
    server.latest.send(task(1, "wait"));
    await server.until(() => server.latest.of("ack").length === 1);
    server.latest.reset();
    await server.until(() => server.streams.length === 2);
    expect(server.latest.hello.held).toEqual([token(1)]);
    end.open();
    await server.until(() => server.latest.of("taskDone").length === 1);
    expect([count, resultOf(server.latest)]).toEqual([1, ['1.1="late"']]);
  });

  test("and sends again what may have been lost with the stream", async () => {
    await start({ echo: (input) => input });
    server.latest.send(task(1, "echo"));
    await server.until(() => server.latest.of("taskDone").length === 1);
    server.latest.destroy();
    await server.until(() => server.streams.length === 2 && server.latest.of("taskDone").length === 1);
    expect(server.latest.hello.held).toEqual([token(1)]);
    expect(resultOf(server.latest)).toEqual(["1.1=1"]);
  });

  test("until a server of its own cluster answers", async () => {
    await start({});
    server.clusterId = "c2";
    server.latest.end();
    await server.until(() => server.streams.length === 3);
    expect(worker?.isConnected).toBe(false);
    expect(warnings()[1]).toEndWith(
      'The server belongs to cluster "c2", this worker to "c1". Check the address, or restart the worker if the cluster was set up anew',
    );
    server.clusterId = "c1";
    await server.until(() => server.streams.length === 4);
    while (!worker?.isConnected) await new Promise((done) => setImmediate(done));
  });

  test("where the first item is no welcome", async () => {
    server.greet = (stream) => stream.send(task(1, "echo"));
    await server.start();
    worker = await startWorker({ address: server.address, activities: {}, graceMs: 0, onLog: (record) => logs.push(record) });
    await server.until(() => server.streams.length === 2);
    expect(warnings()[0]).toEndWith("The server's first item is task, want welcome");
  });

  test("at each of many random endings, and executes each task once", async () => {
    const executed = new Map<number, number>();
    await start({
      work: async (op: number) => {
        executed.set(op, (executed.get(op) ?? 0) + 1);
        for (let i = 0; i < op % 7; i++) await new Promise((done) => setImmediate(done));
        return op;
      },
    });
    const prng = new Prng(7);
    const finished = new Set<number>();
    const offered = new Set<number>();
    server.onItem = (_, item) => {
      if (item.kind === "taskDone") finished.add(item.value.token?.op ?? 0);
    };
    const ways = Object.values(endings).filter((end) => end.length > 0);
    for (let round = 0; round < 20; round++) {
      const stream = server.latest;
      for (let i = 1; i <= 10; i++) {
        const op = round * 10 + i;
        offered.add(op);
        stream.send(task(op, "work", i));
      }
      const before = finished.size;
      const some = prng.below(10);
      await server.until(() => finished.size >= before + some);
      const streams = server.streams.length;
      if (round % 5 === 4) {
        server.stop();
        await server.start();
      } else await ways[prng.below(ways.length)]?.(stream);
      await server.until(() => server.streams.length > streams);
      // As a server does: what the worker does not hold after a lost stream never reached it.
      const held = new Set(server.latest.hello.held.map(({ op }) => op));
      for (const op of offered) if (!finished.has(op) && !held.has(op)) server.latest.send(task(op, "work", op));
    }
    await server.until(() => finished.size === offered.size);
    expect([...executed.values()].every((times) => times === 1)).toBe(true);
    expect(executed.size).toBe(200);
  }, 30_000);
});

describe("close()", () => {
  test("says so, waits for what executes, sends its result and ends the stream", async () => {
    const end = gate();
    await start({ wait: () => end.promise.then(() => "done") }, { graceMs: 60_000 });
    const stream = server.latest;
    stream.send(task(1, "wait"));
    await server.until(() => stream.of("ack").length === 1);
    let isClosed = false;
    const closed = worker?.close().then(() => (isClosed = true));
    await server.until(() => stream.of("draining").length === 1);
    expect([isClosed, stream.isEnded]).toEqual([false, false]);
    end.open();
    await server.until(() => stream.isEnded);
    await closed;
    expect(resultOf(stream)).toEqual(['1.1="done"']);
    expect(server.streams).toHaveLength(1);
  });

  test("gives up after the grace time, and tells the activities", async () => {
    let reason: unknown;
    await start(
      { wait: (_, { signal }) => new Promise(() => signal.addEventListener("abort", () => (reason = signal.reason))) },
      { graceMs: 5 },
    );
    server.latest.send(task(1, "wait"));
    await server.until(() => server.latest.of("ack").length === 1);
    await worker?.close();
    expect(String(reason)).toBe("WorkerShutdownError: Activity wait is given up: its worker shuts down");
    await server.until(() => server.latest.isEnded);
  });

  test("finds a server once more for a result that has none to go to", async () => {
    const end = gate();
    await start({ wait: () => end.promise.then(() => "done") }, { graceMs: 60_000 });
    server.latest.send(task(1, "wait"));
    await server.until(() => server.latest.of("ack").length === 1);
    server.stop();
    while (worker?.isConnected) await new Promise((done) => setImmediate(done));
    const closed = worker?.close();
    end.open();
    await server.start();
    await closed;
    expect(server.streams).toHaveLength(2);
    expect(server.latest.items.map(({ kind }) => kind)).toEqual(["taskDone", "draining"]);
  });

  test("ends at once where there is no server and nothing to wait for", async () => {
    const idle = await startWorker({ address: "127.0.0.1:1", activities: {}, graceMs: 60_000 });
    await idle.close();
    await idle.ready;
    expect(idle.isConnected).toBe(false);
  });
});
