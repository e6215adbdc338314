/** A worker's stream over several shards that open and close while it is connected. */
import { describe, expect, test } from "bun:test";
import { asShardId, type Partition, type RunId, type SessionId } from "#core/base";
import type { SessionCapacity } from "#core/dispatch";
import type { Hello, ServerItemInit, TaskToken, WorkerItem } from "#proto";
import { until } from "../../tests/until.ts";
import { oneShard, RoutingNode, routingNodes } from "../cluster/routing-fixture.ts";
import { ScriptedShard } from "../cluster/scripted-shard-fixture.ts";
import { keyOf } from "../cluster/shard-map.ts";
import { VirtualTiming } from "../cluster/virtual-timing-fixture.ts";
import { realTiming } from "../timing.ts";
import { ShardSessions } from "./shard-sessions.ts";
import { TaskRoad } from "./task-road.ts";

const hello: Hello = {
  workerId: "w1",
  namespace: "",
  modes: ["v8"],
  activities: ["a"],
  activitySlots: 2,
  runSlots: 10,
  version: "0.2.0",
  clusterId: "",
  wantsLocal: false,
  held: [],
};
const token = (run: string, op = 1): TaskToken => ({ run, generation: 1, op, attempt: 1, delivery: 1, epoch: 3 });
const shard = asShardId;

class Stream {
  readonly node: RoutingNode;
  readonly timing = new VirtualTiming();
  readonly sent: ServerItemInit[] = [];
  readonly sessions: ShardSessions;

  constructor(node: RoutingNode, held: TaskToken[] = []) {
    this.node = node;
    this.sessions = new ShardSessions({
      hello: { ...hello, held },
      shards: node.shards,
      timing: this.timing,
      send: (item) => void this.sent.push(structuredClone(item)),
      close: () => {},
    });
    node.shards.onLedChanged = (id, port) => this.sessions.ledChanged(id, port);
  }

  kinds(): string[] {
    return this.sent.map(({ kind }) => kind);
  }
}

describe("joining", () => {
  test("a stream joins every shard that is led here, with what its hello says it holds", () => {
    using node = new RoutingNode(1);
    const [one, two] = [node.lead(1), node.lead(2)];
    const stream = new Stream(node, [token("n:a")]);
    stream.sessions.begin();
    for (const port of [one, two]) {
      expect(port.joined).toHaveLength(1);
      expect(port.joined[0]?.hello).toEqual({ ...hello, held: [token("n:a")] });
    }
    expect(one.joined[0]?.capacity).toBe(two.joined[0]?.capacity as never);
    expect(stream.sent).toEqual([]);
  });

  test("a shard that opens is joined after the worker said what it still executes", () => {
    using node = new RoutingNode(1);
    const stream = new Stream(node);
    stream.sessions.begin();
    const port = node.lead(7);
    expect(stream.sent).toEqual([{ kind: "recall", value: { shard: 7 } }]);
    expect(port.joined).toEqual([]);
    stream.sessions.held(shard(7), [token("n:a"), token("n:b")]);
    expect(port.joined[0]?.hello.held).toEqual([token("n:a"), token("n:b")]);
    stream.sessions.held(shard(7), []);
    expect(port.joined).toHaveLength(1);
  });

  test("a worker that does not answer is joined after a second, as holding nothing", () => {
    using node = new RoutingNode(1);
    const stream = new Stream(node);
    stream.sessions.begin();
    const port = node.lead(7);
    stream.timing.pass(999);
    expect(port.joined).toEqual([]);
    stream.timing.pass(1);
    expect(port.joined[0]?.hello.held).toEqual([]);
  });

  test("a shard that closed before the answer came is not joined, and is recalled anew when it opens again", () => {
    using node = new RoutingNode(1);
    const stream = new Stream(node);
    stream.sessions.begin();
    const first = node.lead(7);
    node.shards.close(shard(7));
    stream.sessions.held(shard(7), []);
    expect(first.joined).toEqual([]);
    const second = node.lead(7);
    expect(stream.kinds()).toEqual(["recall", "recall"]);
    stream.sessions.held(shard(7), []);
    expect(second.joined).toHaveLength(1);
  });

  test("draining reaches the shards that are joined, and those that are joined later", () => {
    using node = new RoutingNode(1);
    const one = node.lead(1);
    const stream = new Stream(node);
    stream.sessions.begin();
    stream.sessions.drain();
    const two = node.lead(2);
    stream.sessions.held(shard(2), []);
    for (const port of [one, two]) expect(port.received.map(({ item }) => item.kind)).toEqual(["draining"]);
  });

  test("the end of the stream leaves every shard", () => {
    using node = new RoutingNode(1);
    const [one, two] = [node.lead(1), node.lead(2)];
    const stream = new Stream(node);
    stream.sessions.begin();
    const three = node.lead(3);
    stream.sessions.end();
    expect([one.left, two.left]).toEqual([[1 as SessionId], [1 as SessionId]]);
    stream.timing.pass(5000);
    expect(three.joined).toEqual([]);
  });
});

describe("items", () => {
  test("carry their shard to the worker, and find it on the way back", () => {
    using node = new RoutingNode(1);
    const ports = [node.lead(1), node.lead(2)];
    const stream = new Stream(node);
    stream.sessions.begin();
    for (const [i, port] of ports.entries()) {
      const link = port.joined[0]?.link;
      link?.send({ kind: "activate", value: { handle: i + 1, activation: 1, fromStart: true } });
      link?.send({ kind: "query", value: { query: 4, handle: i + 1 } });
      link?.send({ kind: "task", value: { number: 1 } });
      link?.send({ kind: "drop", value: { handle: i + 1 } });
    }
    expect(stream.sent.map(({ value }) => (value as { shard: number }).shard)).toEqual([1, 1, 1, 1, 2, 2, 2, 2]);
    const activated = { kind: "activated", value: { shard: 2, handle: 2, activation: 1, status: 0, commands: [], problem: "" } } as const;
    stream.sessions.said({ ...activated, value: { ...activated.value, commands: [] } });
    stream.sessions.said({ kind: "evicted", value: { shard: 1, handle: 1 } });
    stream.sessions.said({ kind: "evicted", value: { shard: 9, handle: 1 } });
    expect(ports.map(({ received }) => received.map(({ item }) => item.kind))).toEqual([["evicted"], ["activated"]]);
  });

  test("a worker of a version that names no shard is understood while there is one", () => {
    using node = new RoutingNode(1);
    const one = node.lead(1);
    const stream = new Stream(node);
    stream.sessions.begin();
    stream.sessions.said({ kind: "evicted", value: { shard: 0, handle: 1 } });
    expect(one.received).toHaveLength(1);
  });

  test("a shard that is led elsewhere now takes its runs from the worker, and leaves it its tasks", () => {
    using node = new RoutingNode(1);
    const one = node.lead(1);
    const stream = new Stream(node);
    stream.sessions.begin();
    const { link, capacity } = one.joined[0] as (typeof one.joined)[number];
    for (const handle of [1, 2, 3]) link.send({ kind: "activate", value: { handle, activation: 1, fromStart: true } });
    link.send({ kind: "drop", value: { handle: 2 } });
    capacity.hold("n:a#1.1.1.1", shard(1), token("n:a") as never);
    stream.sent.length = 0;
    node.shards.close(shard(1));
    expect(stream.sent).toEqual([1, 3].map((handle) => ({ kind: "drop", value: { shard: 1, handle } })));
    expect(capacity.tasks.size).toBe(0);
  });
});

test("shards that wait for a slot take turns when there is room", async () => {
  using node = new RoutingNode(1);
  const ports = [node.lead(1), node.lead(2)];
  const stream = new Stream(node);
  stream.sessions.begin();
  const capacity = ports[0]?.joined[0]?.capacity as SessionCapacity;
  const given: number[] = [];
  ports.forEach((port, i) => {
    port.onTurn = () => {
      given.push(i + 1);
      capacity.hold(`task-${given.length}`, shard(i + 1), token("n:a") as never);
      capacity.endTurn(shard(i + 1));
      return true;
    };
  });
  capacity.hold("x", shard(1), token("n:x") as never);
  capacity.hold("y", shard(1), token("n:y") as never);
  capacity.wait(shard(1));
  capacity.wait(shard(2));
  stream.sessions.resize(6);
  await until(() => given.length === 4);
  expect(given).toEqual([1, 2, 1, 2]);
  stream.sessions.resize(6);
  await Promise.resolve();
  expect(given).toHaveLength(4);
});

test("a shard that can't take its turn now leaves it to the others, and is not asked again and again", async () => {
  using node = new RoutingNode(1);
  const [frozen, other] = [node.lead(1), node.lead(2)];
  const stream = new Stream(node);
  stream.sessions.begin();
  const capacity = frozen.joined[0]?.capacity as SessionCapacity;
  frozen.onTurn = () => false;
  other.onTurn = () => {
    capacity.hold(`task-${other.turns.length}`, shard(2), token("n:a") as never);
    capacity.endTurn(shard(2));
    return true;
  };
  for (const one of [1, 2]) capacity.wait(shard(one));
  stream.sessions.resize(3);
  await until(() => other.turns.length === 3);
  expect(frozen.turns).toHaveLength(1);
});

describe("what a worker says of a task", () => {
  const road = (node: RoutingNode) =>
    new TaskRoad({ self: node.self, net: node.peer.net, router: node.router, shards: node.shards, timing: realTiming, note: () => {} });
  const done = (run: string): Extract<WorkerItem, { kind: "taskDone" }> => ({
    kind: "taskDone",
    value: { token: token(run), result: { data: new Uint8Array([1, 2]), ref: undefined }, failure: undefined },
  });
  const here = (_: unknown, port: { receive: ScriptedShard["receive"] }, item: WorkerItem) => port.receive(0 as SessionId, item);

  test("goes to whoever owns the run here, also where the map is behind a split", () => {
    using node = new RoutingNode(1);
    node.router.install(oneShard(1));
    const [parent, child] = [node.lead(1), node.lead(2)];
    const middle = 2 ** 47;
    parent.range = { first: 0, last: middle - 1 };
    child.range = { first: middle, last: 2 ** 48 - 1 };
    const runs = ["n:a", "n:b", "n:c", "n:d", "n:e", "n:f"] as RunId[];
    for (const run of runs) road(node).bring(done(run), "w1", here);
    const inChild = (run: string) => keyOf(`run/${run}` as Partition) >= middle;
    const got = (port: ScriptedShard) => port.received.map(({ item }) => (item as ReturnType<typeof done>).value.token?.run);
    expect(got(child)).toEqual(runs.filter(inChild));
    expect(got(parent)).toEqual(runs.filter((run) => !inChild(run)));
  });

  test("is brought to the node that leads the shard now, as soon as one does", async () => {
    using nodes = routingNodes(2);
    const [a, b] = nodes as unknown as [RoutingNode, RoutingNode];
    a.router.install(oneShard(2));
    const own = road(a);
    // A worker says it on each new stream: it is on its way once.
    for (let i = 0; i < 3; i++) own.bring(done("n:a"), "w1", here);
    const beat = (progress: number): Extract<WorkerItem, { kind: "heartbeat" }> => ({
      kind: "heartbeat",
      value: { token: token("n:a"), details: { data: new Uint8Array([progress]), ref: undefined } },
    });
    for (const progress of [1, 2, 3]) own.bring(beat(progress), "w1", here);
    const port = new ScriptedShard();
    port.range = { first: 5, last: 5 };
    b.lead(1, port);
    await until(() => a.peer.events.includes("up 2"));
    expect(port.received).toEqual([]);
    port.range = { first: 0, last: 2 ** 48 - 1 };
    await until(() => port.received.length >= 2);
    expect(port.received.map(({ item }) => item)).toEqual([done("n:a"), beat(3)]);
  });

  test("about a run that is no address is left out", () => {
    using node = new RoutingNode(1);
    node.router.install(oneShard(1));
    const port = node.lead(1);
    road(node).bring(done("nonsense"), "w1", here);
    expect(port.received).toEqual([]);
  });
});
