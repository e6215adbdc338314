/** The services of a whole node, through the client that people use. */
import { describe, expect, test } from "bun:test";
import { asSeq, HopError as CoreError, limits } from "#core/base";
import { verifyHistory } from "#core/merkle";
import { decodeEvent, fromBytes, RunStatus } from "#proto";
import { type HopError, RunNotFoundError, WorkflowFailedError, WorkflowNotDeployedError } from "#sdk/client";
import { bunHasher } from "../tests/hashers.ts";
import { until } from "../tests/until.ts";
import { startNode } from "./index.ts";
import { TestNode, version } from "./node-fixture.ts";
import { parseExposition } from "./observe/exposition-fixture.ts";

const errorOf = async (promise: Promise<unknown>): Promise<HopError> => {
  try {
    await promise;
  } catch (error) {
    return error as HopError;
  }
  throw new Error("was not refused");
};

describe("starts and results", () => {
  test("execute() carries a value there and back, in one request", async () => {
    await using test = await TestNode.start();
    await test.deploy();
    await test.worker();
    const client = test.client();
    for (const value of [{ a: 1, b: ["x", null] }, "🦘", 0, [], null]) expect(await client.execute("echo", value)).toEqual(value);
    expect(await client.execute("echo")).toBeUndefined();
  });

  test("a failure arrives typed, with its chain of causes", async () => {
    await using test = await TestNode.start();
    await test.deploy();
    await test.worker();
    const handle = await test.client().start("fail", undefined, { instance: "f-1" });
    expect(handle.id).toBe("default:f-1");
    const error = await handle.result().catch((cause: unknown) => cause);
    expect(error).toBeInstanceOf(WorkflowFailedError);
    expect(error).toMatchObject({ run: "default:f-1", status: "failed", message: "Run default:f-1 failed: OrderError: out of stock" });
    const cause = (error as Error).cause as Error;
    expect([cause.name, cause.message, (cause.cause as Error).name]).toEqual(["OrderError", "out of stock", "HttpError"]);
  });

  test("a type that is not deployed is refused with the way out", async () => {
    await using test = await TestNode.start();
    const client = test.client();
    const none = await errorOf(client.start("order"));
    expect(none).toBeInstanceOf(WorkflowNotDeployedError);
    expect(none.message).toContain("nothing is deployed there; deploy it with `hop deploy FILE` or `hop dev FILE`");
    await test.deploy(["b", "a"]);
    expect((await errorOf(client.start("order"))).message).toContain(
      'workflow "order" is not deployed in namespace default, deployed are a, b',
    );
    const foreign = await errorOf(client.start("a", 1, { bundle: new Uint8Array(32) }));
    expect(foreign.reason).toBe("BLOB_NOT_FOUND");
  });

  test("the same start sent twice is one run: by name, and by key", async () => {
    await using test = await TestNode.start();
    await test.deploy();
    const client = test.client();
    const first = await client.start("hold", 1, { instance: "a" });
    const again = await client.start("hold", 1, { instance: "a" });
    expect([first.isAttached, again.isAttached, again.generation]).toEqual([false, true, 1]);
    expect((await errorOf(client.start("hold", 1, { instance: "a", contention: "reject" }))).reason).toBe("INSTANCE_LIVE");
    const keyed = await client.start("hold", 1, { idempotencyKey: "k" });
    expect((await client.start("hold", 1, { idempotencyKey: "k" })).id).toBe(keyed.id);
    expect((await errorOf(client.start("hold", 2, { idempotencyKey: "k" }))).reason).toBe("IDEMPOTENCY_CONFLICT");
  });

  test("a queued start is its own run, whatever becomes of the others of its name", async () => {
    await using test = await TestNode.start();
    await test.deploy();
    await test.worker();
    const client = test.client();
    const queued = { instance: "q", contention: "queue" } as const;
    const live = await client.start("hold", 1, queued);
    const [next, later] = [await client.start("hold", 2, queued), await client.start("hold", 3, { ...queued, budgetMs: 20 })];
    const executed = client.execute("hold", 4, queued);
    // What the first run recorded meanwhile is between the tickets' numbers.
    expect([live, next, later].map(({ id, generation, queuePlace }) => [id, generation, queuePlace])).toEqual([
      ["default:q", 1, 0],
      [expect.stringMatching(/^[12]@default:q$/), 0, 1],
      [expect.stringMatching(/^[23]@default:q$/), 0, 2],
    ]);
    expect(await next.outcome({ waitMs: 1 })).toMatchObject({ status: "queued" });
    expect((await errorOf(next.result({ waitMs: 1 }))).reason).toBe("BUDGET_EXPIRED");
    expect((await errorOf(next.query("input"))).reason).toBe("RUN_QUEUED");
    await next.signal("go", "for the next");
    const { summary } = await next.describe();
    expect(summary).toMatchObject({ run: next.id, status: RunStatus.queued, note: "place 1 of the queue" });
    expect((await errorOf(later.result())).reason).toBe("BUDGET_EXPIRED");
    await live.terminate();
    expect(await next.result()).toBe("for the next");
    await client.handle("default:q").signal("go", "for the last");
    expect(await executed).toBe("for the last");
    expect([await next.result(), await errorOf(live.result())]).toMatchObject(["for the next", { status: "terminated" }]);
    expect((await next.describe()).summary).toMatchObject({ run: next.id, generation: 2, status: RunStatus.completed });
    expect((await errorOf(client.start("hold", 5, { instance: "q", contention: "supersede" }))).reason).toBe("BAD_REQUEST");
    const over = await client.start("hold", 5, { instance: "q" });
    const new5 = await client.start("hold", 6, { instance: "q", contention: "supersede", overrideReason: "wedged" });
    expect([over.generation, new5.generation, (await errorOf(over.result())).message]).toEqual([4, 5, expect.stringContaining("wedged")]);
  });

  test("a wait that is over before the run tells how it stands and leaves nothing behind", async () => {
    await using test = await TestNode.start();
    await test.deploy();
    const handle = await test.client().start("hold");
    expect(await handle.outcome({ waitMs: 1 })).toEqual({ status: "running", value: undefined, failure: undefined });
    expect((await errorOf(handle.result({ waitMs: 1 }))).reason).toBe("BUDGET_EXPIRED");
    expect((await errorOf(test.client().handle("default:none").result({ waitMs: 1 }))).reason).toBe("RUN_NOT_FOUND");
  });
});

describe("signals, queries, cancellation", () => {
  test("a signal ends a wait; a resent one is one signal", async () => {
    await using test = await TestNode.start();
    await test.deploy();
    await test.worker();
    const handle = await test.client().start("hold", { n: 1 });
    expect(await handle.query("input")).toEqual({ n: 1 });
    await handle.signal("go", { paid: true }, { id: "s1" });
    await handle.signal("go", { paid: true }, { id: "s1" });
    expect(await handle.result()).toEqual({ paid: true });
    const events: number[] = [];
    for await (const chunk of handle.history()) events.push(...chunk.event.map((bytes) => fromBytes(decodeEvent, bytes).kind));
    expect(events.filter((kind) => kind === 48)).toHaveLength(1);
  });

  test("cancel, terminate and describe", async () => {
    await using test = await TestNode.start();
    await test.deploy();
    await test.worker();
    const client = test.client();
    const cancelled = await client.start("hold");
    await cancelled.cancel("changed my mind");
    expect(await errorOf(cancelled.result())).toMatchObject({ status: "cancelled" });
    const ended = await client.start("hold");
    await ended.terminate("now");
    expect(await errorOf(ended.result())).toMatchObject({ status: "terminated" });
    const state = await ended.describe();
    expect(state.summary).toMatchObject({ run: ended.id, type: "hold", status: RunStatus.terminated });
    expect(state.root).toHaveLength(32);
    expect(await errorOf(client.handle("default:nothing").describe())).toBeInstanceOf(RunNotFoundError);
  });
});

describe("payloads", () => {
  const size = (bytes: number) => JSON.stringify("x".repeat(bytes)).length;

  test("what is above the inline bound goes through storage, in and out", async () => {
    await using test = await TestNode.start();
    await test.deploy();
    await test.worker();
    const client = test.client();
    for (const bytes of [limits.inlineBytesMax - 2, limits.inlineBytesMax - 1, 4 * 1024 * 1024]) {
      const text = "x".repeat(bytes);
      expect(await client.execute("echo", text)).toBe(text);
      expect((await client.execute("big", size(bytes))) as string).toHaveLength(bytes);
    }
    const handle = await client.start("echo", "y".repeat(limits.inlineBytesMax));
    await handle.result();
    let largest = 0;
    for await (const chunk of handle.history()) for (const bytes of chunk.event) largest = Math.max(largest, bytes.length);
    expect(largest).toBeLessThan(1000);
  });

  test("what is above the limit is refused at the call, and a result fails its run", async () => {
    await using test = await TestNode.start();
    await test.deploy();
    await test.worker();
    const client = test.client();
    expect((await errorOf(client.execute("echo", "x".repeat(limits.payloadBytesMax)))).reason).toBe("PAYLOAD_TOO_LARGE");
    const failed = (await errorOf(client.execute("big", limits.payloadBytesMax + 1))) as unknown as WorkflowFailedError;
    expect([failed.status, failed.failure?.type, failed.failure?.nonRetryable]).toEqual(["failed", "PayloadTooLargeError", true]);
  });

  test("signals of one session keep their order where the first has to be stored", async () => {
    await using test = await TestNode.start();
    await test.deploy();
    const handle = await test.client().start("hold");
    const large = "x".repeat(2 * limits.inlineBytesMax);
    await Promise.all([handle.signal("go", large), handle.signal("go", "small"), handle.signal("go", large.replace("x", "y"))]);
    const sizes: number[] = [];
    for await (const chunk of handle.history()) sizes.push(...chunk.event.map((bytes) => bytes.length));
    const state = await handle.describe();
    expect(sizes).toHaveLength(state.size);
    await test.worker();
    expect(await handle.result()).toBe(large);
  });
});

describe("histories, lists, deployments", () => {
  test("a history verifies against the head that comes with it, and follow ends with the run", async () => {
    await using test = await TestNode.start();
    await test.deploy();
    const handle = await test.client().start("hold");
    const events: Uint8Array[] = [];
    let head: { size: number; peaks: Uint8Array } = { size: 0, peaks: new Uint8Array(0) };
    const following = (async () => {
      for await (const chunk of handle.history({ follow: true })) {
        events.push(...chunk.event);
        if (chunk.size > 0) head = chunk;
      }
    })();
    await until(() => events.length > 0);
    await test.worker();
    await handle.signal("go", 1);
    await following;
    const state = await handle.describe();
    expect(head.size).toBe(events.length);
    expect(Buffer.from(head.peaks).equals(state.peaks)).toBe(true);
    const verdict = verifyHistory(bunHasher, events, {
      partition: `run/${handle.id}`,
      expected: { size: state.size, lastHash: state.lastHash, root: state.root },
    });
    expect(verdict.ok).toBe(true);
    const tail: Uint8Array[] = [];
    for await (const chunk of handle.history({ fromSeq: 2 })) tail.push(...chunk.event);
    expect(tail).toEqual(events.slice(2));
    for await (const chunk of handle.history({ fromSeq: asSeq(1000) })) expect(chunk).toMatchObject({ event: [], size: events.length });
  });

  test("lists show what was just started, page by page", async () => {
    await using test = await TestNode.start();
    await test.deploy();
    const client = test.client();
    const ids = new Set<string>();
    for (let i = 0; i < 25; i++) ids.add((await client.start("hold", i)).id);
    const seen: string[] = [];
    for (let pageToken = ""; ; ) {
      const page = await client.list({ limit: 10, pageToken });
      seen.push(...page.run.map(({ run }) => run));
      pageToken = page.nextPageToken;
      if (pageToken === "") break;
    }
    expect(new Set(seen)).toEqual(ids);
    expect(seen).toHaveLength(25);
    expect((await client.list({ status: RunStatus.completed })).run).toEqual([]);
    expect((await errorOf(client.list({ pageToken: "nonsense" }))).reason).toBe("BAD_REQUEST");
  });

  test("deployments and runs are there after a restart; the code is in storage", async () => {
    await using test = await TestNode.start();
    const bundle = await test.deploy();
    const client = test.client();
    expect(
      (await client.deploy({ code: new TextEncoder().encode("// echo,hold,fail,big"), types: ["echo", "hold", "fail", "big"] })).version,
    ).toBe(1);
    const handle = await client.start("hold", 7);
    await test.restart();
    const { deployment } = await client.deployments();
    expect(deployment.map(({ type, version: v }) => [type, v])).toEqual([
      ["big", 1],
      ["echo", 1],
      ["fail", 1],
      ["hold", 1],
    ]);
    expect(new TextDecoder().decode(await client.blob(bundle))).toBe("// echo,hold,fail,big");
    expect((await errorOf(client.blob(new Uint8Array(32)))).reason).toBe("BLOB_NOT_FOUND");
    await test.worker();
    await handle.signal("go", "after");
    expect(await handle.result()).toBe("after");
  });
});

describe("the node", () => {
  test("who did what stands in the history", async () => {
    await using test = await TestNode.start();
    await test.deploy();
    const handle = await test.client({ identity: "ada lovelace 🦘" }).start("hold");
    for await (const chunk of handle.history()) {
      expect(chunk.event.map((bytes) => fromBytes(decodeEvent, bytes).identity)[0]).toEqual({
        issuer: "local",
        subject: "ada lovelace 🦘",
        verified: false,
        causeSeq: 0,
      });
    }
  });

  test("a second process is refused, with the way out", async () => {
    await using test = await TestNode.start();
    const error = await startNode({ dataDir: test.dataDir, version, grpcPort: 0, httpPort: 0 }).catch((cause: unknown) => cause);
    expect(error).toBeInstanceOf(CoreError);
    expect((error as Error).message).toContain("stop that one or choose another folder");
    const taken = await startNode({
      dataDir: `${test.dataDir}/other`,
      version,
      grpcPort: Number(test.node.grpc.split(":")[1]),
      httpPort: 0,
    }).catch((cause: unknown) => cause);
    expect((taken as Error).message).toContain(`Cannot listen on ${test.node.grpc}`);
    // What a failed start held is free again.
    const third = await startNode({ dataDir: `${test.dataDir}/other`, version, grpcPort: 0, httpPort: 0 });
    await third.close();
  });

  test("its metrics count what happened, readably for a strict scraper", async () => {
    await using test = await TestNode.start();
    await test.deploy();
    await test.worker();
    const client = test.client();
    await client.execute("echo", 1);
    await errorOf(client.execute("fail"));
    const page = async () => parseExposition(await (await fetch(`http://${test.node.http}/metrics`)).text());
    const value = (families: Awaited<ReturnType<typeof page>>, name: string) => families.get(name)?.samples[0]?.value;
    const families = await until(async () => {
      const read = await page();
      return value(read, "hopskip_runs_started_total") === 2 && read;
    });
    expect(families.get("hopskip_runs_closed_total")?.samples.map(({ labels, value: v }) => [labels.outcome, v])).toEqual([
      ["completed", 1],
      ["failed", 1],
    ]);
    expect(value(families, "hopskip_worker_sessions")).toBe(1);
    expect(value(families, "hopskip_client_sessions")).toBe(1);
    expect(families.get("hopskip_log_flush_seconds")?.samples.find(({ name }) => name.endsWith("_count"))?.value).toBeGreaterThan(2);
    expect((await fetch(`http://${test.node.http}/readyz`)).status).toBe(200);
  });
});
