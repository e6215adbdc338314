/** Commands and reads find the shard's leader, here or over a real link, and are never decided twice. */
import { describe, expect, test } from "bun:test";
import { asSeq, asShardId, type HopError, type Partition, type Reply, type RunId, wholeRange } from "#core/base";
import type { Command } from "#core/shard";
import { type DescribeReply, RunStatus } from "#proto";
import { until } from "../../tests/until.ts";
import { node as nodeId, pretendToBe } from "../peer/peer-fixture.ts";
import type { Router } from "./router.ts";
import { ada, asking, oneShard, RoutingNode, routingNodes, signal } from "./routing-fixture.ts";
import { notLed, rejected, ScriptedShard } from "./scripted-shard-fixture.ts";
import { VirtualTiming } from "./virtual-timing-fixture.ts";

const done: Reply = { kind: "done" };
const run = "default:a" as RunId;
const partition = "run/default:a" as Partition;
const waitCommand: Command = { kind: "await-result", run };
const completed = { status: RunStatus.completed, result: { data: new Uint8Array([49]), ref: undefined }, failure: undefined };
const start: Command = {
  kind: "start",
  run,
  type: "order",
  bundle: new Uint8Array(32).fill(1),
  input: { data: new Uint8Array([1, 2]), ref: undefined },
  contention: "reject",
  idempotencyKey: "k",
  deadlineMs: 5,
  awaitResult: true,
};

const ask = (router: Router, command: Command, more: object = {}) =>
  new Promise<Reply>((resolve) => void router.command({ ...asking, ...more }, command, resolve));

async function errorOf(promise: Promise<unknown>): Promise<HopError> {
  return promise.then(
    () => {
      throw new Error("was not refused");
    },
    (error: unknown) => error as HopError,
  );
}

describe("what is on its way to a node", () => {
  test("a shard that it has not opened, or keys that it has not taken in, is waited for there", async () => {
    using nodes = routingNodes(2);
    const [first, second] = nodes as unknown as [RoutingNode, RoutingNode];
    for (const { router } of nodes) router.install(oneShard(1));
    const isWaited = () => until(() => first.router.arrivals.size === 1);
    const opened = ask(second.router, signal());
    await isWaited();
    const shard = new ScriptedShard();
    shard.answer = () => done;
    shard.range = { first: 0, last: 0 };
    first.lead(1, shard);
    first.router.opened(asShardId(1));
    expect(first.router.arrivals.size).toBe(1);
    shard.range = wholeRange;
    first.router.opened(asShardId(1));
    expect(await opened).toEqual(done);
    expect(shard.asked).toHaveLength(1);
    // Whom another is to lead is refused at once.
    first.shards.close(asShardId(1));
    const moved = ask(second.router, signal());
    await isWaited();
    for (const { router } of nodes) router.install(oneShard(2, 2));
    expect(first.router.arrivals.size).toBe(0);
    second.lead(1, shard);
    second.router.opened(asShardId(1));
    expect(await moved).toEqual(done);
  });
});

describe("a lead that goes over while a command is under way", () => {
  test("a node that has not heard yet that it is to lead waits for the map that the command went by", async () => {
    using nodes = routingNodes(2);
    const [first, second] = nodes as unknown as [RoutingNode, RoutingNode];
    first.router.install(oneShard(2, 1));
    second.router.install(oneShard(1, 2));
    const answer = ask(second.router, signal());
    await until(() => first.router.arrivals.size === 1);
    const shard = new ScriptedShard();
    shard.answer = () => done;
    first.lead(1, shard);
    first.router.opened(asShardId(1));
    expect(await answer).toEqual(done);
  });

  test("what the leader before refuses goes to the next one at once, where that is known by then", async () => {
    const timing = new VirtualTiming();
    using before = new RoutingNode(1);
    using asked = new RoutingNode(2, timing);
    before.peer.meet(asked.peer);
    asked.peer.meet(before.peer);
    asked.router.install(oneShard(1));
    const old = before.lead();
    const answer = ask(asked.router, signal());
    await until(() => old.asked.length === 1);
    const next = new ScriptedShard();
    next.answer = () => done;
    asked.lead(1, next);
    asked.router.opened(asShardId(1));
    old.asked[0]?.done(rejected("NOT_LEADER"));
    // No time passes.
    expect(await answer).toEqual(done);
  });
});

describe("a shard that is led here", () => {
  test("is asked at once, before the call returns", () => {
    using node = new RoutingNode(1);
    node.router.install(oneShard(1));
    const shard = node.lead();
    shard.answer = () => done;
    const replies: Reply[] = [];
    node.router.command(asking, signal(), (reply) => void replies.push(reply));
    expect(replies).toEqual([done]);
    expect(shard.asked[0]).toMatchObject({ identity: ada, command: signal() });
  });

  test("forgets a request whose caller went away", () => {
    using node = new RoutingNode(1);
    node.router.install(oneShard(1));
    const shard = node.lead();
    const forget = node.router.command(asking, waitCommand, () => {});
    expect(shard.asked[0]?.isForgotten).toBe(false);
    forget();
    expect(shard.asked[0]?.isForgotten).toBe(true);
  });

  test("a refusal that was decided reaches the caller, one that proves nothing was decided is tried again", async () => {
    using node = new RoutingNode(1);
    node.router.install(oneShard(1));
    const shard = node.lead();
    shard.answer = () => rejected("RUN_NOT_FOUND");
    expect(await ask(node.router, signal())).toMatchObject({ rejection: { reject: "RUN_NOT_FOUND" } });
    const refusals: Reply[] = [rejected("NOT_LEADER"), rejected("STALE_EPOCH"), rejected("NOT_LEADER"), done];
    shard.answer = () => refusals.shift();
    expect(await ask(node.router, signal())).toEqual(done);
    shard.answer = () => rejected("STORE_UNAVAILABLE");
    const asked = shard.asked.length;
    expect(await ask(node.router, signal())).toMatchObject({ rejection: { reject: "STORE_UNAVAILABLE" } });
    expect(shard.asked).toHaveLength(asked + 1);
  });

  test("a start that was taken goes on as a wait for its outcome, and is answered as a start", async () => {
    using node = new RoutingNode(1);
    node.router.install(oneShard(1));
    const shard = node.lead();
    const started = { run, generation: 3, attached: false };
    shard.answer = ({ kind }) =>
      kind === "start" ? rejected("STORE_UNAVAILABLE", { started }) : { kind: "outcome", outcome: completed, generation: 3 };
    expect(await ask(node.router, start)).toEqual({ kind: "started", ...started, outcome: completed });
    expect(shard.asked.map(({ command }) => command.kind)).toEqual(["start", "await-result"]);
    shard.answer = ({ kind }) =>
      kind === "start" ? rejected("STALE_EPOCH", { started }) : { kind: "outcome", outcome: completed, generation: 4 };
    expect(await ask(node.router, start)).toMatchObject({ rejection: { reject: "RUN_CLOSED" } });
  });
});

describe("a shard that another node leads", () => {
  test("gets the command and its caller's identity as they are, and its reply comes back", async () => {
    using nodes = routingNodes(2);
    const [a, b] = nodes as unknown as [RoutingNode, RoutingNode];
    a.router.install(oneShard(2));
    const shard = b.lead();
    const bundle = new Uint8Array(32).fill(7);
    const pairs: [Command, Reply][] = [
      [start, { kind: "started", run, generation: 2, attached: true, outcome: completed }],
      [signal("a b"), { kind: "signalled", seq: asSeq(7) }],
      [
        { kind: "query", run, name: "q", input: undefined },
        { kind: "queried", result: completed.result },
      ],
      [waitCommand, { kind: "outcome", outcome: completed, generation: 4 }],
      [{ kind: "cancel", run, reason: "because" }, done],
      [{ kind: "terminate", run, reason: "" }, done],
      [
        { kind: "resume", run, bundle },
        { kind: "resumed", bundle },
      ],
      [signal(), rejected("RUN_NOT_FOUND")],
    ];
    for (const [command, reply] of pairs) {
      shard.answer = () => reply;
      const got = await ask(a.router, command);
      if (reply.kind === "rejected") expect(got).toMatchObject({ kind: "rejected", rejection: { reject: reply.rejection.reject } });
      else expect(got).toEqual(reply);
      expect(shard.asked.at(-1)).toMatchObject({ identity: ada, command });
    }
  });

  test("is found by the hint of a node that lost it, and by the next map", async () => {
    using nodes = routingNodes(3);
    const [a, b, c] = nodes as unknown as [RoutingNode, RoutingNode, RoutingNode];
    a.router.install(oneShard(2, 1));
    b.router.install(oneShard(3, 2));
    const shard = c.lead();
    shard.answer = () => done;
    expect(await ask(a.router, signal())).toEqual(done);
    expect(shard.asked).toHaveLength(1);
    c.shards.close(asShardId(1));
    const later = ask(a.router, signal());
    const again = b.lead();
    again.answer = () => done;
    a.router.install(oneShard(2, 3));
    expect(await later).toEqual(done);
    expect(again.asked).toHaveLength(1);
  });

  test("is waited for while it has no leader, then the caller is told which shard and since when", async () => {
    using node = new RoutingNode(1);
    node.router.install(oneShard(0));
    const refused = await ask(node.router, signal(), { budgetMs: 120 });
    expect(refused).toMatchObject({ kind: "rejected", rejection: { reject: "STORE_UNAVAILABLE" } });
    const { message } = (refused as Extract<Reply, { kind: "rejected" }>).rejection;
    expect(message).toMatch(
      /^Cannot signal default:a: shard 1 has had no leader that takes it for 0\.[12] s \(last: no node leads it\); nothing was done/,
    );
    const waiting = ask(node.router, signal());
    const shard = new ScriptedShard();
    shard.answer = () => done;
    node.lead(1, shard);
    node.router.opened(asShardId(1));
    expect(await waiting).toEqual(done);
  });

  test("a command that never left is tried elsewhere, one that left and was not answered is not", async () => {
    using a = new RoutingNode(1);
    using b = new RoutingNode(2);
    using silent = pretendToBe(nodeId(3));
    a.peer.net.setPeers(
      new Map([
        [nodeId(2), b.peer.net.address],
        [nodeId(3), silent.address],
        [nodeId(4), "127.0.0.1:1"],
      ]),
    );
    const shard = b.lead();
    shard.answer = () => done;
    a.router.install(oneShard(4, 1));
    const unsent = ask(a.router, signal());
    await until(() => a.peer.events.includes("down 4"));
    a.router.install(oneShard(2, 2));
    expect(await unsent).toEqual(done);
    a.router.install(oneShard(3, 3));
    const lost = ask(a.router, signal());
    await until(() => silent.items.some((item) => item.kind === "call"));
    a.router.install(oneShard(2, 4));
    for (const connection of silent.connections) connection.close("gone");
    expect(await lost).toMatchObject({
      kind: "rejected",
      rejection: { reject: "STORE_UNAVAILABLE", message: expect.stringContaining("Cannot say what became of signal default:a: node 3") },
    });
    expect(shard.asked).toHaveLength(1);
  });

  test("a wait for a result survives the loss of the leader that it waits at", async () => {
    using a = new RoutingNode(1);
    using b = new RoutingNode(2);
    using silent = pretendToBe(nodeId(3));
    a.peer.net.setPeers(
      new Map([
        [nodeId(2), b.peer.net.address],
        [nodeId(3), silent.address],
      ]),
    );
    a.router.install(oneShard(3, 1));
    const waiting = ask(a.router, waitCommand);
    await until(() => silent.items.some((item) => item.kind === "call"));
    for (const connection of silent.connections) connection.close("gone");
    const shard = b.lead();
    shard.answer = () => ({ kind: "outcome", outcome: completed, generation: 1 });
    a.router.install(oneShard(2, 2));
    expect(await waiting).toEqual({ kind: "outcome", outcome: completed, generation: 1 });
  });

  test("forgets a wait whose caller went away", async () => {
    using nodes = routingNodes(2);
    const [a, b] = nodes as unknown as [RoutingNode, RoutingNode];
    a.router.install(oneShard(2));
    const shard = b.lead();
    const forget = a.router.command(asking, waitCommand, () => {});
    await until(() => shard.asked.length === 1);
    forget();
    await until(() => shard.asked[0]?.isForgotten);
  });
});

describe("epochs", () => {
  test("a caller that names one is refused with the current one; others never see STALE_EPOCH", async () => {
    using node = new RoutingNode(1);
    node.router.install(oneShard(1, 5));
    const shard = node.lead();
    shard.answer = () => done;
    const refused = (() => {
      try {
        return node.router.command({ ...asking, epoch: 4 }, signal(), () => {});
      } catch (error) {
        return error;
      }
    })();
    expect(refused).toMatchObject({ reason: "STALE_EPOCH", epoch: 5 });
    expect(await ask(node.router, signal(), { epoch: 5 })).toEqual(done);
    shard.answer = () => rejected("STALE_EPOCH");
    expect(await ask(node.router, signal(), { epoch: 5 })).toMatchObject({ rejection: { reject: "STALE_EPOCH", epoch: 5 } });
    expect(await ask(node.router, signal(), { budgetMs: 60 })).toMatchObject({ rejection: { reject: "STORE_UNAVAILABLE" } });
  });

  test("before the first map everything is refused as unavailable", () => {
    using node = new RoutingNode(1);
    expect(() => node.router.command(asking, signal(), () => {})).toThrow("has no shard map yet");
  });
});

describe("reads", () => {
  const state = { size: 5, summary: { run, generation: 1 } } as unknown as DescribeReply;
  const events = Array.from({ length: 5 }, (_, i) => new Uint8Array([i]));
  const all = async (chunks: AsyncIterable<Uint8Array[]>) => {
    const out: number[] = [];
    for await (const chunk of chunks) out.push(...chunk.map((bytes) => bytes[0] as number));
    return out;
  };

  test("go to the leader, here or elsewhere, and are asked again where it was not there", async () => {
    using nodes = routingNodes(2);
    const [a, b] = nodes as unknown as [RoutingNode, RoutingNode];
    for (const { router } of [a, b]) router.install(oneShard(2));
    const shard = b.lead();
    for (const { router } of [a, b]) {
      shard.state = undefined;
      expect(await router.describe(partition)).toBeUndefined();
      shard.state = state;
      shard.failures.push(notLed(), notLed());
      expect(await router.describe(partition)).toMatchObject({ size: 5, summary: { run, generation: 1 } });
      shard.failures.push(notLed());
      await router.changed(partition, asSeq(9), AbortSignal.timeout(10_000));
    }
  });

  test("a history goes on where its leader stopped, without a gap or a repeat", async () => {
    using nodes = routingNodes(2);
    const [a, b] = nodes as unknown as [RoutingNode, RoutingNode];
    for (const { router } of [a, b]) router.install(oneShard(2));
    const shard = b.lead();
    shard.events = events;
    for (const { router } of [a, b]) {
      shard.chunksBeforeFailure = 1;
      expect(await all(router.history(partition, asSeq(1)))).toEqual([1, 2, 3, 4]);
    }
  });

  test("that find no leader are tried one at a time, however many they are, and all are answered soon after there is one", async () => {
    const timing = new VirtualTiming();
    using node = new RoutingNode(1, timing);
    node.router.install(oneShard(0));
    let tries = 0;
    node.shards.led = (shard) => {
      tries++;
      return node.shards.ports.get(shard);
    };
    const pass = async (ms: number) => {
      for (let at = 0; at < ms; at += 5) {
        timing.pass(5);
        await new Promise((resolve) => setImmediate(resolve));
      }
    };
    let answered = 0;
    for (let i = 0; i < 500; i++) void node.router.describe(partition).then(() => answered++);
    for (let i = 0; i < 500; i++) void all(node.router.history(partition, asSeq(1))).then(() => answered++);
    await pass(10);
    tries = 0;
    await pass(1000);
    expect(tries).toBeGreaterThanOrEqual(50);
    expect(tries).toBeLessThanOrEqual(150);
    const shard = node.lead();
    shard.state = state;
    shard.events = events;
    await pass(100);
    expect(answered).toBe(1000);
  });

  test("fail with what the leader says, and as unavailable when nobody leads within the budget", async () => {
    using node = new RoutingNode(1);
    node.router.install(oneShard(0));
    expect(await errorOf(node.router.describe(partition, { epoch: 0, budgetMs: 50 }))).toMatchObject({ reason: "NOT_LEADER" });
  });
});

test("a node that shuts down refuses what waits and what comes", async () => {
  using node = new RoutingNode(1);
  node.router.install(oneShard(0));
  const waiting = ask(node.router, signal());
  node.router.close();
  expect(await waiting).toMatchObject({ rejection: { reject: "STORE_UNAVAILABLE", message: expect.stringContaining("shutting down") } });
  node.lead();
  expect(await ask(node.router, signal())).toMatchObject({ rejection: { reject: "STORE_UNAVAILABLE" } });
});
