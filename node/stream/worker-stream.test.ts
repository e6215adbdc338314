/** A worker's stream from its hello on, over a connection in memory. */
import { expect, test } from "bun:test";
import { asShardId, limits } from "#core/base";
import type { NodesInit, ServerItem, WorkerItem, WorkerItemInit } from "#proto";
import { type Closing, type Connection, dispatchCodec, localPair, workerCodec } from "#proto/connection";
import { until } from "../../tests/until.ts";
import { oneShard, RoutingNode } from "../cluster/routing-fixture.ts";
import type { NodeList } from "../service/cluster-control.ts";
import { PayloadEdge } from "../service/payloads.ts";
import { realTiming } from "../timing.ts";
import { WorkerRegistry } from "./registry.ts";
import { TaskRoad } from "./task-road.ts";
import { WorkerStream, type WorkerStreamParts } from "./worker-stream.ts";

class Nodes implements NodeList {
  current: NodesInit = { address: ["a:1", "b:1"], version: 3 };
  readonly listeners = new Set<(nodes: NodesInit) => void>();

  nodes(): NodesInit {
    return this.current;
  }

  onNodes(listener: (nodes: NodesInit) => void): () => void {
    this.listeners.add(listener);
    return () => void this.listeners.delete(listener);
  }
}

class Connected {
  readonly items: ServerItem[] = [];
  closing: Closing | undefined;
  readonly connection: Connection<WorkerItemInit>;
  readonly registry = new WorkerRegistry();
  readonly nodes = new Nodes();

  constructor(node: RoutingNode) {
    const { shards, router, peer, self } = node;
    const note = () => {};
    const stored = { put: () => Promise.reject(new Error("nothing is stored here")), claim: () => Promise.resolve(undefined) };
    const parts: WorkerStreamParts = {
      clusterId: "c1",
      version: "0.2.0",
      epoch: () => router.epoch,
      node: self,
      shards,
      tasks: new TaskRoad({ self, net: peer.net, router, shards, timing: realTiming, note }),
      timing: realTiming,
      nodes: this.nodes,
      advertised: () => "a:1",
      localSocket: () => "",
      edge: new PayloadEdge(stored),
      registry: this.registry,
      note,
      onFault: (error) => {
        throw error;
      },
    };
    shards.onLedChanged = (shard, port) => this.registry.ledChanged(shard, port);
    const worker = () => ({
      item: (item: ServerItem) => void this.items.push(item),
      ended: () => {},
      closed: (closing: Closing) => {
        this.closing = closing;
      },
    });
    const { client } = localPair(
      { codec: dispatchCodec, open: (connection) => new WorkerStream(connection, "in-process", parts) },
      { codec: workerCodec, open: worker },
      limits,
    );
    this.connection = client;
  }

  say(item: WorkerItemInit): void {
    this.connection.send(item);
  }

  kinds(): string[] {
    return this.items.map(({ kind }) => kind);
  }
}

const hello = (more: object = {}): WorkerItemInit => ({
  kind: "hello",
  value: {
    workerId: "w1",
    namespace: "default",
    modes: ["v8"],
    activities: ["a"],
    activitySlots: 2,
    version: "0.2.0",
    clusterId: "c1",
    ...more,
  },
});
const token = { run: "default:a", generation: 1, op: 1, attempt: 1, delivery: 1, epoch: 1 };

test("the welcome comes first, with where the node stands and which others there are, and again when they change", async () => {
  using node = new RoutingNode(4);
  node.router.install(oneShard(4, 9));
  const port = node.lead();
  const stream = new Connected(node);
  stream.say(hello());
  await until(() => stream.items.length > 0);
  expect(stream.items[0]).toMatchObject({
    kind: "welcome",
    value: { clusterId: "c1", session: 1, epoch: 9, node: 4, address: "a:1", nodes: { address: ["a:1", "b:1"], version: 3 } },
  });
  expect(port.joined[0]?.hello.workerId).toBe("w1");
  expect(stream.registry.sessionOf("w1", asShardId(1))).toBe(1 as never);
  for (const listener of stream.nodes.listeners) listener({ address: ["b:1"], version: 4 });
  await until(() => stream.items.length > 1);
  expect(stream.items[1]).toEqual({ kind: "nodes", value: { address: ["b:1"], version: 4 } });
  stream.connection.close("gone");
  await until(() => stream.registry.size === 0);
  expect([port.left, stream.nodes.listeners.size]).toEqual([[1 as never], 0]);
});

test("one worker is one entry, however many shards it joins; what it says finds its shard", async () => {
  using node = new RoutingNode(1);
  node.router.install(oneShard(1));
  const stream = new Connected(node);
  stream.say(hello());
  await until(() => stream.items.length > 0);
  const port = node.lead();
  await until(() => stream.kinds().includes("recall"));
  stream.say({ kind: "held", value: { shard: 1, token: [token] } });
  await until(() => port.joined.length === 1);
  expect(port.joined[0]?.hello.held).toEqual([token]);
  expect(stream.registry.size).toBe(1);
  const said: WorkerItemInit[] = [
    { kind: "activated", value: { shard: 1, handle: 1, activation: 1 } },
    { kind: "taskDone", value: { token, result: { data: new Uint8Array([1]) } } },
    { kind: "heartbeat", value: { token } },
    { kind: "queryAnswer", value: { shard: 1, query: 3 } },
    { kind: "evicted", value: { shard: 1, handle: 1 } },
    { kind: "draining", value: {} },
  ];
  for (const item of said) stream.say(item);
  await until(() => port.received.length === said.length);
  expect(port.received.map(({ item }) => (item as WorkerItem).kind)).toEqual(said.map(({ kind }) => kind));
  expect(new Set(port.received.map(({ session }) => session as number))).toEqual(new Set([1]));
  expect(stream.registry.list()[0]?.isDraining).toBe(true);
  stream.connection.close("done");
});

test("what is no hello, or is of another cluster, is refused by name", async () => {
  using node = new RoutingNode(1);
  for (const [item, why] of [
    [{ kind: "draining", value: {} }, "its first item is draining, want hello"],
    [hello({ clusterId: "other" }), 'it belongs to cluster "other", this is c1'],
    [hello({ version: "9.0.0" }), 'its version is "9.0.0", want 0.x'],
    [hello({ workerId: "" }), "its worker id is empty"],
  ] as const) {
    const stream = new Connected(node);
    stream.say(item as WorkerItemInit);
    const closing = await until(() => stream.closing);
    expect(closing.message).toContain(why);
    expect(stream.registry.size).toBe(0);
  }
});
