/** Lists over several nodes, each with an index of its own and records on its own log, over real links. */
import { expect, test } from "bun:test";
import { asIndex, asNodeId, asShardId, type Epoch, type HopError, keyMax } from "#core/base";
import type { ListRequest, RunSummary } from "#proto";
import { MemoryLogStore, Projector } from "#store";
import { event, RecordWriter } from "../../store/event-fixture.ts";
import { allRuns } from "../../store/visibility/list-fixture.ts";
import { until } from "../../tests/until.ts";
import { realTiming } from "../timing.ts";
import { VisibilityPump } from "../visibility-pump.ts";
import { type RoutingNode, routingNodes } from "./routing-fixture.ts";
import { RunLists } from "./run-lists.ts";
import { ScriptedShard } from "./scripted-shard-fixture.ts";
import { ShardMap } from "./shard-map.ts";

const all: ListRequest = { ...allRuns, limit: 100 };
const shards = 4;
const rangeOfShard = (shard: number) => ({ first: ((shard - 1) * (keyMax + 1)) / shards, last: (shard * (keyMax + 1)) / shards - 1 });
const names = Array.from({ length: 60 }, (_, i) => `default:run-${i}`);

/** Shard → node that leads it. */
function mapOf(leaders: readonly number[], epoch: number): ShardMap {
  const places = leaders.map((leader, i) => ({
    ...rangeOfShard(i + 1),
    shard: asShardId(i + 1),
    leader: leader === 0 ? undefined : asNodeId(leader),
    leaseEpoch: epoch,
  }));
  return new ShardMap(epoch as Epoch, places);
}

/** A node that has every run on its log: what it answers is cut by keys alone. */
class ListNode {
  readonly node: RoutingNode;
  readonly lists: RunLists;
  readonly log = new MemoryLogStore();
  private readonly pump: VisibilityPump;
  private readonly writer = new RecordWriter(this.log);

  constructor(node: RoutingNode, budgetMs: number) {
    this.node = node;
    const projector = Projector.open({
      path: ":memory:",
      logId: "log-a",
      durableIndex: () => asIndex(1e9),
      isRemoved: () => false,
      warn: () => {},
    });
    this.pump = new VisibilityPump({
      logs: () => [{ shard: asShardId(1), commitIndex: this.writer.index }],
      log: this.log,
      projector,
      onRecord: () => {},
      onFault: () => {},
      warn: () => {},
    });
    const { self, shards: led, router, peer } = node;
    this.lists = new RunLists({ self, net: peer.net, router, shards: led, pump: this.pump, timing: realTiming, budgetMs });
  }

  async write(): Promise<void> {
    // Several starts of one millisecond: their order is by name.
    for (let i = 0; i < names.length; i += 3) this.writer.record(...names.slice(i, i + 3).map((name) => event.started(`run/${name}`, 1)));
    await this.writer.settle();
  }

  lead(...led: number[]): void {
    for (const shard of [...this.node.shards.ports.keys()]) this.node.shards.close(shard);
    for (const shard of led) {
      const port = new ScriptedShard();
      port.range = rangeOfShard(shard);
      this.node.lead(shard, port);
    }
  }
}

async function town(
  count: number,
  budgetMs = 5000,
): Promise<{ nodes: ListNode[]; route(leaders: readonly number[], epoch: number): void } & Disposable> {
  const routing = routingNodes(count);
  const nodes = routing.map((node) => new ListNode(node, budgetMs));
  for (const node of nodes) await node.write();
  return {
    nodes,
    route: (leaders, epoch) => {
      for (const { node } of nodes) node.router.install(mapOf(leaders, epoch));
      for (const [i, node] of nodes.entries()) node.lead(...leaders.flatMap((leader, shard) => (leader === i + 1 ? [shard + 1] : [])));
    },
    [Symbol.dispose]: () => routing[Symbol.dispose](),
  };
}

async function pages(lists: RunLists, limit: number): Promise<RunSummary[]> {
  const found: RunSummary[] = [];
  for (let pageToken = ""; ; ) {
    const page = await lists.list({ ...all, limit, pageToken });
    found.push(...page.run);
    if (page.nextPageToken === "") return found;
    expect(page.run).toHaveLength(limit);
    ({ nextPageToken: pageToken } = page);
  }
}

test("pages over several nodes have every run once, in the order of one list, at whichever node each is asked", async () => {
  using three = await town(3);
  three.route([1, 2, 3, 2], 1);
  const [first] = three.nodes as [ListNode];
  const whole = (await first.lists.list(all)).run;
  expect(whole.map(({ run }) => run).sort()).toEqual([...names].sort());
  const order = whole.map(({ startedMs, run, generation }) => [startedMs, run, generation]);
  for (const limit of [1, 7, 60, 61]) {
    for (const { lists } of three.nodes) {
      const found = await pages(lists, limit);
      expect(found.map(({ startedMs, run, generation }) => [startedMs, run, generation])).toEqual(order);
    }
  }
  expect(order.map(([ms]) => ms as number)).toEqual(order.map(([ms]) => ms as number).sort((a, b) => b - a));
});

test("a page token stays right when leaders change between two pages", async () => {
  using two = await town(2);
  two.route([1, 2, 1, 2], 1);
  const [a, b] = two.nodes as [ListNode, ListNode];
  const one = await a.lists.list({ ...all, limit: 25 });
  two.route([2, 1, 2, 2], 2);
  const rest = await b.lists.list({ ...all, limit: 100, pageToken: one.nextPageToken });
  expect([...one.run, ...rest.run].map(({ run }) => run).sort()).toEqual([...names].sort());
});

test("a node never answers for keys that it does not lead", async () => {
  using two = await town(2);
  two.route([1, 1, 2, 2], 1);
  const [a, b] = two.nodes as [ListNode, ListNode];
  // The second node lost a shard to the first, which knows it before the map does.
  b.lead(3);
  const listing = a.lists.list(all);
  let isOver = false;
  void listing.finally(() => (isOver = true));
  await until(() => b.node.shards.ports.size === 1);
  expect(isOver).toBe(false);
  two.route([1, 1, 2, 1], 2);
  expect((await listing).run.map(({ run }) => run).sort()).toEqual([...names].sort());
});

test("a leader whose lease may be over does not answer, since another one may have more", async () => {
  using two = await town(2, 200);
  two.route([1, 2, 1, 2], 1);
  const [a, b] = two.nodes as [ListNode, ListNode];
  for (const port of b.node.shards.ports.values()) (port as ScriptedShard).hasLease = false;
  const refused = await a.lists.list(all).catch((error: unknown) => error as HopError);
  expect((refused as HopError).message).toContain("node 2 does not answer for the keys 0x4000000000000000–0x7fffffffffffffff");
});

test("a leader that loses its lease while it makes the list does not answer either", async () => {
  using two = await town(2, 200);
  two.route([1, 2, 1, 2], 1);
  const [a, b] = two.nodes as [ListNode, ListNode];
  let looks = 0;
  // Shards 2 and 4: looked at once each before the list is made.
  const hasLease = { get: () => ++looks <= 2 };
  for (const port of b.node.shards.ports.values()) Object.defineProperty(port, "hasLease", hasLease);
  const refused = await a.lists.list(all).catch((error: unknown) => error as HopError);
  expect(refused).toMatchObject({ reason: "STORE_UNAVAILABLE", message: expect.stringContaining("node 2 does not answer") as string });
  expect(looks).toBeGreaterThan(2);
});

test("a part that nobody answers for is an error that names it", async () => {
  using two = await town(2, 200);
  two.route([1, 2, 0, 1], 1);
  const [a, b] = two.nodes as [ListNode, ListNode];
  const refused = await a.lists.list(all).catch((error: unknown) => error as HopError);
  expect(refused).toMatchObject({ reason: "STORE_UNAVAILABLE" });
  expect((refused as HopError).message).toContain("nobody answers for the keys 0x8000000000000000–0xbfffffffffffffff");
  two.route([1, 2, 1, 1], 2);
  expect((await a.lists.list(all)).run).toHaveLength(60);
  b.node.peer.net.close();
  const silent = await a.lists.list(all).catch((error: unknown) => error as HopError);
  expect((silent as HopError).message).toContain("node 2 does not answer for the keys 0x4000000000000000–0x7fffffffffffffff");
});

test("a page token that no list made is refused at once", async () => {
  using two = await town(2);
  two.route([1, 2, 1, 2], 1);
  const [a] = two.nodes as [ListNode];
  await expect(a.lists.list({ ...all, pageToken: "nonsense", deadLetters: false })).rejects.toMatchObject({ reason: "BAD_REQUEST" });
});
