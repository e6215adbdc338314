import { describe, expect, test } from "bun:test";
import { asNodeId, type NodeId, Prng } from "#core/base";
import { info, Placement } from "../machine-fixture.ts";
import { planCluster } from "./plan.ts";
import { SimulatedCluster } from "./simulated-cluster-fixture.ts";

const options = { shardsMin: 2, shardsMax: 64, settleMs: 5000, splitBytes: 1000 };

function randomCluster(prng: Prng): SimulatedCluster {
  const zones = 1 + prng.below(4);
  const placement = Placement.of(1 + prng.below(9), {
    shards: 1 + prng.below(24),
    zone: (node) => (zones === 1 ? "" : `z${(node * 7) % zones}`),
  });
  placement.do({ kind: "set-replication", count: [1, 3, 3, 3, 5][prng.below(5)] as number });
  const cluster = new SimulatedCluster(placement, prng, options, 0.3 + prng.fraction() * 0.7);
  cluster.bytes = prng.below(20_000);
  return cluster;
}

const members = ({ placement }: SimulatedCluster) =>
  [...placement.view.nodes.values()].filter((each) => each.standing === "member").map((each) => each.node);

/** Something that happens to a cluster. */
function disturb(cluster: SimulatedCluster, next: number): void {
  const { prng, placement } = cluster;
  const all = members(cluster);
  const node = all[prng.below(all.length)] as NodeId;
  const others = all.filter((each) => each !== node && cluster.isAlive(each));
  switch (prng.below(6)) {
    case 0:
      return void cluster.kill(node);
    case 1:
      if (others.length > 0) placement.do({ kind: "leave", node });
      return;
    case 2:
      if (others.length > 2 && cluster.kill(node))
        placement.do({ kind: "join", info: info(next, { peer: placement.view.nodes.get(node)?.info.peer ?? "" }) });
      return;
    case 3:
      return void placement.do({ kind: "set-replication", count: [1, 3, 5][prng.below(3)] as number });
    case 4:
      cluster.bytes = prng.below(20_000);
      return;
    default:
      return void placement.do({ kind: "join", info: info(next, { zone: `z${prng.below(4)}` }) });
  }
}

/** What holds of a cluster that has nothing left to do. */
function check(cluster: SimulatedCluster): void {
  const { view } = cluster.placement;
  const able = members(cluster).filter((node) => cluster.isAlive(node));
  const zoneOf = (node: NodeId) => view.nodes.get(node)?.info.zone || `node ${node}`;
  const zones = new Set(able.map(zoneOf)).size;
  const odd = (count: number) => (count % 2 === 0 ? count - 1 : count);
  for (const entry of cluster.shards) {
    if (!cluster.hasQuorum(entry)) continue;
    const wish = entry.shard === 0 ? 5 : view.replicationWanted;
    const size = Math.max(1, odd(Math.min(wish, members(cluster).length)));
    const told = `shard ${entry.shard} on ${entry.voters.join()}, members ${members(cluster).join()}, able ${able.join()}`;
    if (able.length >= size) {
      expect([told, entry.voters.length, entry.voters.filter((node) => !able.includes(node))]).toEqual([told, size, []]);
      expect([told, new Set(entry.voters.map(zoneOf)).size]).toEqual([told, Math.min(size, zones)]);
    }
    // Nobody who leaves or is lost keeps a replica where another can take it.
    const leaving = entry.voters.filter((node) => view.nodes.get(node)?.standing !== "member");
    if (able.length > entry.voters.length) expect([told, leaving]).toEqual([told, []]);
  }
}

describe("any cluster", () => {
  const planned = new Map<string, number>();

  test.each(Array.from({ length: 40 }, (_, seed) => seed))("comes to rest where it should be, and stays there (seed %d)", (seed) => {
    const prng = new Prng(seed);
    const cluster = randomCluster(prng);
    cluster.settle(600);
    check(cluster);
    for (let i = 0; i < 4; i++) {
      disturb(cluster, 20 + i);
      for (let rounds = prng.below(60); rounds > 0; rounds--) cluster.round();
    }
    cluster.settle(900, 40);
    check(cluster);
    for (const [kind, count] of cluster.planned) planned.set(kind, (planned.get(kind) ?? 0) + count);
    // Once more from the same picture: nothing.
    const { version } = cluster.placement.view;
    for (let i = 0; i < 100; i++) expect(cluster.round()).toEqual([]);
    expect(cluster.placement.view.version).toBe(version);
    expect(cluster.placement.follower().encodeState()).toEqual(cluster.placement.machine.encodeState());
  });

  test("every kind of step was planned", () => {
    for (const kind of ["transfer", "want-replicas", "want-split", "want-merge", "merge-cancel", "remove"])
      expect([kind, (planned.get(kind) ?? 0) > 0]).toEqual([kind, true]);
  });
});

test("replicas and leaders are even where no zone stands in the way", () => {
  for (const [nodes, shards] of [
    [4, 16],
    [5, 64],
    [7, 100],
  ] as const) {
    const cluster = new SimulatedCluster(Placement.of(nodes, { shards }), new Prng(nodes), { shardsMin: 1000 });
    cluster.settle(1500);
    const count = (each: (node: NodeId) => number) => members(cluster).map(each);
    const { shards: map } = cluster.placement.view;
    const held = count((node) => [...map.values()].filter((each) => each.voters.includes(node)).length);
    const led = count((node) => [...map.values()].filter((each) => each.lease?.node === node).length);
    const mean = (shards * 3) / nodes;
    expect([nodes, Math.max(...held) - Math.min(...held) <= Math.max(1, Math.floor(mean * 0.1))]).toEqual([nodes, true]);
    expect([nodes, led, Math.max(...led) - Math.min(...led) <= 3]).toEqual([nodes, led, true]);
  }
});

test("300 nodes and 1000 shards are planned in a moment", () => {
  const placement = Placement.of(300, { shards: 1000, zone: (node) => `z${node % 3}` });
  for (let shard = 1; shard <= 1000; shard++) {
    const voters = [0, 1, 2].map((i) => 1 + ((shard + i) % 300));
    placement.place(shard, voters);
    placement.lease(shard, voters[0] as number, 5);
  }
  placement.place(0, [1, 2, 3, 4, 5]);
  placement.lease(0, 1, 1);
  const cluster = new SimulatedCluster(placement, new Prng(1), { shardsMin: 1000 });
  for (let i = 0; i < 3; i++) cluster.round();
  expect(cluster.steps).toEqual([]);
  cluster.kill(asNodeId(9));
  for (let i = 0; i < 32; i++) cluster.round();
  // Ten shards lose a member, eight move at a time.
  expect(cluster.planned.get("want-replicas")).toBeGreaterThanOrEqual(8);
  const input = cluster.input();
  const times = Array.from({ length: 5 }, () => {
    const startNs = Bun.nanoseconds();
    planCluster(input);
    return (Bun.nanoseconds() - startNs) / 1e6;
  });
  // Once a second, beside other work: a hundredth of a core.
  expect(Math.min(...times)).toBeLessThan(10);
});
