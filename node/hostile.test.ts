/** What a node is not meant to be sent: each is answered, and the node goes on. */
import { describe, expect, test } from "bun:test";
import { Metadata, type ServiceError, status } from "@grpc/grpc-js";
import { limits, Prng } from "#core/base";
import {
  ActivatedStatus,
  type ClientItemInit,
  CommandKind,
  decodeCommand,
  decodeReplyFrame,
  encodeClientFrame,
  fromBytes,
  type ReplyItem,
  RunStatus,
  toBytes,
} from "#proto";
import { type Closing, clientCodec, connectGrpc } from "#proto/connection";
import { clientMethods, connectPath, sessionPath } from "#proto/descriptors";
import { until } from "../tests/until.ts";
import { TestNode } from "./node-fixture.ts";
import { fromStatus } from "./service/status.ts";

const identity = (bytes: Buffer) => bytes;

function unary(test: TestNode, path: string, request: Uint8Array, metadata = new Metadata()): Promise<ServiceError | Buffer> {
  return new Promise((resolve) => {
    test
      .raw()
      .makeUnaryRequest(path, identity, identity, Buffer.from(request), metadata, (error: ServiceError | null, reply?: Buffer) =>
        resolve(error ?? (reply as Buffer)),
      );
  });
}

async function isAlive(test: TestNode): Promise<void> {
  expect(await test.client().execute("echo", "still here")).toBe("still here");
}

test("random bytes on every unary method are answered, mostly as what they are", async () => {
  await using node = await TestNode.start();
  await node.deploy();
  await node.worker();
  const prng = new Prng(11);
  const junk = () => Uint8Array.from({ length: 1 + prng.below(200) }, () => prng.below(256));
  let refused = 0;
  for (const method of Object.values(clientMethods)) {
    if (method.responseStream) continue;
    for (let round = 0; round < 20; round++) {
      const reply = await unary(node, method.path, junk());
      if (reply instanceof Error) {
        expect([status.INVALID_ARGUMENT, status.NOT_FOUND]).toContain(reply.code);
        refused++;
      }
    }
  }
  expect(refused).toBeGreaterThan(200);
  await isAlive(node);
});

test("a malformed request says so in its error detail", async () => {
  await using node = await TestNode.start();
  const reply = await unary(node, clientMethods.startWorkflow.path, Uint8Array.of(10, 200));
  expect(fromStatus(reply as ServiceError)).toMatchObject({
    reason: "BAD_REQUEST",
    message: expect.stringContaining("Cannot read a") as string,
  });
});

test("malformed bytes end the stream they came on, and no other", async () => {
  await using node = await TestNode.start();
  await node.deploy();
  const worker = await node.worker();
  for (const path of [sessionPath, connectPath]) {
    for (const bytes of [
      Uint8Array.of(10, 255),
      Uint8Array.of(255, 255, 255),
      Uint8Array.of(11, 11, 11),
      new Uint8Array(1000).fill(0xff),
    ]) {
      const call = node.raw().makeBidiStreamRequest(path, identity, identity);
      call.on("data", () => {});
      const ended = new Promise<ServiceError>((resolve) => call.on("error", resolve));
      call.write(Buffer.from(bytes));
      expect((await ended).code).toBe(status.INVALID_ARGUMENT);
    }
  }
  expect(worker.closing).toBeUndefined();
  await isAlive(node);
});

describe("a session", () => {
  async function session(
    node: TestNode,
    items: ClientItemInit[],
    metadata = new Metadata(),
  ): Promise<{ replies: ReplyItem[]; closing: Closing }> {
    const replies: ReplyItem[] = [];
    const { promise, resolve } = Promise.withResolvers<Closing>();
    // Who is in the cluster is told unasked.
    const item = (each: ReplyItem) => void (each.kind === "nodes" || replies.push(each));
    const open = () => ({ item, ended: () => {}, closed: resolve });
    const connection = connectGrpc(node.raw(), sessionPath, clientCodec, limits, open, metadata);
    for (const item of items) connection.send(item);
    connection.end();
    return { replies, closing: await promise };
  }

  test("answers a bad item with its error and goes on with the next", async () => {
    await using node = await TestNode.start();
    await node.deploy();
    await node.worker();
    const start = { namespace: "default", type: "echo", awaitResult: true };
    const { replies, closing } = await session(node, [
      { request: 1, kind: "start", value: { ...start, instance: "a\0b" } },
      { request: 2, kind: "start", value: start },
      { request: 3, kind: "signal", value: { run: "nope", name: "go" } },
      { request: 4, kind: "signal", value: { run: "default:none", name: "go" } },
      { request: 5, kind: "start", value: { ...start, instance: "last" } },
    ]);
    expect(closing.kind).toBe("finished");
    const shown = replies
      .toSorted((a, b) => a.request - b.request)
      .map((reply) => [reply.request, reply.kind === "error" ? reply.value.reason : reply.kind]);
    expect(shown).toEqual([
      [1, "BAD_REQUEST"],
      [2, "start"],
      [3, "BAD_REQUEST"],
      [4, "RUN_NOT_FOUND"],
      [5, "start"],
    ]);
  });

  test("answers an item of a kind that it does not know", async () => {
    await using node = await TestNode.start();
    const call = node.raw().makeBidiStreamRequest(sessionPath, identity, identity);
    const unknown = toBytes(encodeClientFrame, { item: [{ request: 9 } as ClientItemInit] });
    const replies: ReplyItem[] = [];
    call.on("error", () => {});
    call.on("data", (bytes: Buffer) => replies.push(...fromBytes(decodeReplyFrame, bytes).item));
    call.write(Buffer.from(unknown));
    const answer = await until(() => replies.find(({ request }) => request === 9));
    expect(answer).toMatchObject({ kind: "error", value: { reason: "BAD_REQUEST" } });
    call.cancel();
  });

  test("refuses a number that is open already", async () => {
    await using node = await TestNode.start();
    await node.deploy();
    const wait: ClientItemInit = { request: 1, kind: "result", value: { run: "default:r", waitMs: 1 } };
    const start: ClientItemInit = { request: 7, kind: "start", value: { namespace: "default", type: "hold", instance: "r" } };
    const { replies } = await session(node, [start, wait, wait]);
    expect(replies.filter((reply) => reply.kind === "error")[0]).toMatchObject({
      request: 1,
      value: { message: expect.stringContaining("number 1 is still open") as string },
    });
  });

  test("and calls carry the epoch they were routed by: another one is stale", async () => {
    await using node = await TestNode.start();
    await node.deploy();
    const routedBy = (by: number) => {
      const metadata = new Metadata();
      metadata.set("hop-epoch", String(by));
      return metadata;
    };
    const stale = routedBy(1000);
    const signal: ClientItemInit = { request: 1, kind: "signal", value: { run: "default:a", name: "x" } };
    const [reply] = (await session(node, [signal], stale)).replies;
    expect(reply).toMatchObject({
      kind: "error",
      value: { reason: "STALE_EPOCH", message: expect.stringContaining("carries epoch 1000") },
    });
    const request = clientMethods.cancelWorkflow.requestSerialize({ run: "default:a" });
    const refused = async (metadata: Metadata) =>
      fromStatus((await unary(node, clientMethods.cancelWorkflow.path, request, metadata)) as ServiceError);
    let refusal = await refused(stale);
    expect(refusal.reason).toBe("STALE_EPOCH");
    // A young cluster's map still changes: the refusal says which epoch to come again with.
    for (let round = 0; refusal.reason === "STALE_EPOCH" && round < 10; round++) refusal = await refused(routedBy(refusal.epoch ?? 0));
    expect(refusal.reason).toBe("RUN_NOT_FOUND");
    const odd = new Metadata();
    odd.set("hop-epoch", "-1");
    expect(((await unary(node, clientMethods.cancelWorkflow.path, request, odd)) as ServiceError).code).toBe(status.INVALID_ARGUMENT);
  });
});

describe("a worker's stream", () => {
  test.each([
    ["another cluster", { clusterId: "hop_0000000000000000" }, "it belongs to cluster"],
    ["another major version", { version: "7.0.0" }, 'its version is "7.0.0", want 0.x'],
    ["no version", { version: "" }, "its version is"],
    ["no id", { workerId: "" }, "its worker id is empty"],
    ["a bad namespace", { namespace: "a b" }, "its namespace"],
    ["an activity name with a NUL", { activities: ["ok", "a\0"] }, "one of its activity names"],
  ])("from %s is refused with the reason", async (_, hello, reason) => {
    await using node = await TestNode.start();
    const worker = await node.worker(hello);
    expect(worker.welcome).toBeUndefined();
    expect(worker.closing?.message).toContain(reason);
  });

  test("must begin with hello, and says it once", async () => {
    await using node = await TestNode.start();
    const worker = await node.worker();
    expect(worker.welcome).toMatchObject({ version: "0.1.0", node: 1, clusterId: node.node.clusterId });
    expect(worker.welcome?.epoch).toBeGreaterThan(0);
    worker.send({ kind: "hello", value: { workerId: "w1", namespace: "default", version: "0.1.0" } });
    await until(() => worker.closing !== undefined);
    expect(worker.closing?.message).toContain("it said hello twice");
    const call = node.raw().makeBidiStreamRequest(connectPath, identity, identity);
    call.on("data", () => {});
    const ended = new Promise<ServiceError>((resolve) => call.on("error", resolve));
    call.write(Buffer.from([10, 4, 0x2a, 2, 8, 1]));
    expect((await ended).details).toContain("its first item is ack, want hello");
  });

  test("that answers nonsense stops its run with the reason, not the node", async () => {
    await using node = await TestNode.start();
    await node.deploy();
    const worker = await node.worker();
    const client = node.client();
    const handle = await client.start("hold", 1);
    const activate = await until(() => worker.seen.find((item) => item.kind === "activate"));
    if (activate.kind !== "activate") throw new Error("not reached");
    await until(async () => (await handle.describe()).pending.length === 1);
    await handle.signal("other", 1);
    worker.send({ kind: "taskDone", value: { token: { run: "default:none", op: 5 } } });
    worker.send({ kind: "taskDone", value: {} });
    worker.send({ kind: "heartbeat", value: {} });
    worker.send({ kind: "evicted", value: { handle: 12345 } });
    worker.send({ kind: "queryAnswer", value: { query: 999 } });
    worker.send({ kind: "activated", value: { handle: 777, activation: 5, commands: [] } });
    const odd = await client.start("hold", 2, { instance: "odd" });
    const second = await until(() =>
      worker.seen.filter((item) => item.kind === "activate").find((item) => item.kind === "activate" && item.value.run === odd.id),
    );
    expect(second.kind).toBe("activate");
    expect(worker.closing).toBeUndefined();
    await isAlive(node);
  });
});

test("commands that Core can't record are reported as the run's fault", async () => {
  const { activatedProblem, refusedItem, recordedPayloads } = await import("./stream/worker-items.ts");
  const command = { ...fromBytes(decodeCommand, new Uint8Array(0)), kind: CommandKind.activity, op: 1, name: "pay" };
  const activated = (commands: object[]) => ({ shard: 1, handle: 1, activation: 1, status: 0, commands: commands as never, problem: "" });
  expect(activatedProblem(activated([command]))).toBeUndefined();
  expect(activatedProblem(activated([{ ...command, name: "a\0" }]))).toContain("Operation 1 has a name that holds a control character");
  expect(activatedProblem(activated([{ ...command, kind: 99 }]))).toContain("kind 99");
  expect(activatedProblem(activated([{ ...command, kind: CommandKind.timer, name: "", durationMs: limits.timerMsMax + 1 }]))).toContain(
    "100 years",
  );
  const deep = { type: "E", message: "m".repeat(100_000), stack: "🦘".repeat(10_000), details: undefined, nonRetryable: false } as Record<
    string,
    unknown
  >;
  let top = deep;
  for (let i = 0; i < 30; i++) top = { ...deep, cause: top };
  const item = { kind: "activated" as const, value: activated([{ ...command, kind: CommandKind.fail, failure: top }]) };
  recordedPayloads(item as never);
  let depth = 0;
  for (let at = top as { message: string; stack: string; cause?: unknown } | undefined; at !== undefined; at = at.cause as typeof at) {
    depth++;
    expect(Buffer.byteLength(at.message)).toBeLessThanOrEqual(limits.failureBytesMax);
    expect(Buffer.byteLength(at.stack)).toBeLessThanOrEqual(limits.failureBytesMax);
    expect(at.stack.isWellFormed()).toBe(true);
  }
  expect(depth).toBe(limits.failureDepthMax);
  const { HopError } = await import("#core/base");
  const refused = refusedItem({ kind: "activated", value: activated([command]) } as never, new HopError("STORE_UNAVAILABLE", "x"));
  expect(refused).toMatchObject({ value: { status: ActivatedStatus.retry, commands: [] } });
  expect(refusedItem({ kind: "activated", value: activated([command]) } as never, new HopError("PAYLOAD_TOO_LARGE", "x"))).toMatchObject({
    value: { status: ActivatedStatus.limit },
  });
});

test("a reader that goes away frees what waited for it", async () => {
  await using node = await TestNode.start();
  await node.deploy();
  const handle = await node.client().start("hold");
  const follower = handle.history({ follow: true });
  await follower.next();
  await follower.return(undefined);
  const request = clientMethods.getResult.requestSerialize({ run: handle.id });
  const call = node.raw().makeUnaryRequest(clientMethods.getResult.path, identity, identity, request, () => {});
  call.cancel();
  await node.worker();
  await handle.signal("go", 1);
  await handle.result();
  expect((await handle.describe()).summary?.status).toBe(RunStatus.completed);
});
