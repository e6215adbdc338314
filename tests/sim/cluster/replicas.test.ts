import { describe, expect, test } from "bun:test";
import {
  asIndex,
  asNodeId,
  asShardId,
  firstDataShard,
  HopError,
  type NodeId,
  placementShard,
  type Reply,
  type RunId,
  runPartition,
  type ShardId,
} from "#core/base";
import { shardOf } from "#core/placement";
import type { NodeInfo } from "#proto";
import type { ShardHost } from "../../../node/shard/shard-host.ts";
import { Cluster } from "./cluster.ts";
import type { SimNode } from "./node.ts";

const info = (n: number): NodeInfo => ({
  peer: `10.0.0.${n}:7072`,
  grpc: `10.0.0.${n}:7070`,
  http: "",
  zone: "",
  version: "0.1.0",
  protocol: 1,
  disk: `d${n}`,
});
const identity = { issuer: "local", subject: "t", verified: false, causeSeq: 0 };

test("one node bootstraps, leads placement and opens its shard", () => {
  const cluster = new Cluster(1);
  const one = cluster.add(1, true);
  one.start();
  cluster.runUntil(() => one.placement.leads(), 1000, "placement is led");
  let replied = "";
  one.placement.command(identity, { kind: "bootstrap", clusterId: "c", info: info(1) }, (reply) => {
    replied = reply.kind;
  });
  cluster.runUntil(() => replied !== "", 1000, "bootstrap");
  cluster.runUntil(() => one.led.has(firstDataShard), 1000, "shard 1 is led");
  expect(one.placement.view().nodes.get(asNodeId(1))?.standing).toBe("member");
});

function three(seed: number) {
  const cluster = new Cluster(seed);
  cluster.add(1, true).start();
  cluster.runUntil(() => cluster.placementLeader() !== undefined, 1000, "placement is led");
  cluster.ask({ kind: "bootstrap", clusterId: "c", info: info(1) });
  for (const n of [2, 3]) {
    cluster.ask({ kind: "join", info: info(n) });
    cluster.add(n).start();
  }
  const nodes = [1, 2, 3].map(asNodeId);
  for (const shard of [placementShard, firstDataShard]) cluster.ask({ kind: "want-replicas", shard, nodes });
  const hasThree = (shard: number) => {
    const view = cluster.placementLeader()?.placement.view();
    const entry = view && shardOf(view, asShardId(shard));
    return entry?.voters.length === 3 && entry.outgoing.length === 0;
  };
  cluster.runUntil(() => hasThree(0) && hasThree(1), 10_000, "three voters");
  return cluster;
}

test("groups grow to three nodes, and survive the loss of each leader", () => {
  const cluster = three(2);
  for (let round = 0; round < 10; round++) {
    const leader = [...cluster.nodes.values()].find((node) => !node.isDead && node.led.has(firstDataShard));
    const victim = leader ?? cluster.nodes.get(asNodeId(1));
    victim?.crash();
    const rest = () => [...cluster.nodes.values()].filter((node) => !node.isDead);
    const from = cluster.schedule.nowMs;
    cluster.runUntil(
      () => cluster.placementLeader() !== undefined && rest().some((node) => node.led.has(firstDataShard)),
      5000,
      `another leads, round ${round}`,
    );
    expect(cluster.schedule.nowMs - from).toBeLessThan(3000);
    if (victim !== undefined) cluster.add(victim.id).start();
    cluster.runUntil(() => cluster.schedule.nowMs > from + 4000, 5000, "calm");
  }
});

const start = (cluster: Cluster, name: string): string => {
  const run = `default:${name}` as RunId;
  const command = {
    kind: "start",
    run,
    type: "t",
    bundle: new Uint8Array(32),
    input: undefined,
    contention: "attach",
    idempotencyKey: "",
    deadlineMs: 0,
    awaitResult: false,
  } as const;
  const until = cluster.schedule.nowMs + 10_000;
  for (;;) {
    let reply: Reply | undefined;
    const port = cluster.portOf(runPartition(run));
    port?.command(identity, command, (answered) => {
      reply = answered;
    });
    const from = cluster.schedule.nowMs;
    cluster.runUntil(() => reply !== undefined || (port === undefined && cluster.schedule.nowMs > from + 5), 5000, `start of ${name}`);
    if (reply?.kind === "started") return reply.run;
    if (cluster.schedule.nowMs > until) throw new Error(`start of ${name}: ${JSON.stringify(reply)}`);
    const again = cluster.schedule.nowMs + 5;
    cluster.runUntil(() => cluster.schedule.nowMs >= again, 100, "a pause");
  }
};

test("a shard splits and merges, and no run is lost", () => {
  const cluster = three(3);
  const names = Array.from({ length: 60 }, (_, i) => `r${i}`);
  for (const name of names) start(cluster, name);
  const at = 2 ** 47;
  const splitFrom = cluster.schedule.nowMs;
  cluster.ask({ kind: "want-split", shard: firstDataShard, at });
  const child = asShardId(2);
  cluster.runUntil(() => [...cluster.nodes.values()].some((node) => node.led.has(child)), 5000, "the child is led");
  expect(cluster.schedule.nowMs - splitFrom).toBeLessThan(50);
  for (const name of names) expect(cluster.describe(`default:${name}`)?.size).toBe(1);
  for (const name of names.slice(0, 20)) start(cluster, `${name}-more`);
  cluster.runUntil(() => cluster.isQuiet(), 5000, "quiet");
  cluster.expectReplicasEqual();
  cluster.ask({ kind: "want-merge", left: firstDataShard, right: child });
  const mergeFrom = cluster.schedule.nowMs;
  cluster.runUntil(
    () =>
      cluster.placementLeader()?.placement.view().shards.get(firstDataShard)?.change === undefined &&
      cluster.placementLeader()?.placement.view().shards.size === 1,
    5000,
    "merged",
  );
  expect(cluster.schedule.nowMs - mergeFrom).toBeLessThan(50);
  for (const name of names) expect(cluster.describe(`default:${name}`)?.size).toBe(1);
  for (const name of names.slice(0, 20)) start(cluster, `${name}-again`);
  cluster.runUntil(() => cluster.isQuiet(), 5000, "quiet");
  cluster.expectReplicasEqual();
});

test("a shard that a split made moves to a node that has never seen it", () => {
  const cluster = three(4);
  const names = Array.from({ length: 60 }, (_, i) => `r${i}`);
  for (const name of names) start(cluster, name);
  cluster.ask({ kind: "want-split", shard: firstDataShard, at: 2 ** 47 });
  const child = asShardId(2);
  cluster.runUntil(() => [...cluster.nodes.values()].some((node) => node.led.has(child)), 5000, "the child is led");
  for (const name of names.slice(0, 20)) start(cluster, `${name}-more`);
  cluster.ask({ kind: "join", info: info(4) });
  cluster.add(4).start();
  const nodes = [2, 3, 4].map(asNodeId);
  const view = () => cluster.placementLeader()?.placement.view();
  cluster.runUntil(() => view()?.shards.get(child)?.change === undefined, 1000, "the split is known");
  for (const shard of [firstDataShard, child]) {
    cluster.ask({ kind: "want-replicas", shard, nodes });
    cluster.runUntil(
      () => String(view()?.shards.get(shard)?.voters) === "2,3,4" && view()?.shards.get(shard)?.outgoing.length === 0,
      20_000,
      `shard ${shard} moved`,
    );
  }
  cluster.runUntil(() => !cluster.nodes.get(asNodeId(1))?.replicas.get(child), 5000, "the old replica is gone");
  for (const name of names.slice(0, 20)) start(cluster, `${name}-again`);
  cluster.runUntil(() => cluster.isQuiet(), 5000, "quiet");
  for (const name of names) expect(cluster.describe(`default:${name}`)?.size).toBe(1);
  cluster.expectReplicasEqual();
});

const child = asShardId(2);

const leaderOf = (cluster: Cluster, shard: ShardId) => [...cluster.nodes.values()].find((node) => !node.isDead && node.led.has(shard));

const view = (cluster: Cluster) => cluster.placementLeader()?.placement.view();

/** Has the shard's replicas on just these nodes. */
function place(cluster: Cluster, shard: ShardId, nodes: readonly number[]): void {
  cluster.ask({ kind: "want-replicas", shard, nodes: nodes.map(asNodeId) });
  const isThere = () => {
    const entry = view(cluster)?.shards.get(shard);
    return String(entry?.voters) === String(nodes) && entry?.outgoing.length === 0 && entry.learners.length === 0;
  };
  cluster.runUntil(isThere, 20_000, `shard ${shard} is on nodes ${nodes.join(", ")}`);
}

/** Nodes 1, 2, 3 with shard 1 and its child, both of which have runs, and node 4 with nothing. */
function splitTown(seed: number) {
  const cluster = three(seed);
  for (let i = 0; i < 20; i++) start(cluster, `r${i}`);
  cluster.ask({ kind: "want-split", shard: firstDataShard, at: 2 ** 47 });
  cluster.runUntil(() => leaderOf(cluster, child) !== undefined, 5000, "the child is led");
  cluster.runUntil(() => view(cluster)?.shards.get(firstDataShard)?.change === undefined, 1000, "the split is known");
  cluster.ask({ kind: "join", info: info(4) });
  cluster.add(4).start();
  return cluster;
}

test("a leader that comes back at once without its states does not leave a sleeping shard unserved", () => {
  const cluster = splitTown(5);
  // Node 4 has the child alone: no split gives it that again.
  place(cluster, child, [2, 3, 4]);
  leaderOf(cluster, child)?.replicas.transfer(child, asNodeId(4));
  cluster.runUntil(() => leaderOf(cluster, child)?.id === 4, 5000, "node 4 leads the child");
  // Longer than it takes a group to fall asleep.
  cluster.run(10_000);
  const node = cluster.nodes.get(asNodeId(4)) as SimNode;
  expect(leaderOf(cluster, child)).toBe(node);
  node.crash();
  node.machine.loseCheckpoint();
  cluster.add(4).start();
  cluster.runUntil(() => leaderOf(cluster, child) !== undefined, 10_000, "another leads the child");
  cluster.runUntil(() => cluster.nodes.get(asNodeId(4))?.replicas.get(child)?.isBlank === false, 10_000, "node 4 has its replica again");
});

/** Merges the child into shard 1, which are on the same nodes: the keys are its own, whether or not it has the states. `shardCount` are left. */
function merge(cluster: Cluster, shardCount = 1): void {
  cluster.ask({ kind: "want-merge", left: firstDataShard, right: child });
  cluster.runUntil(() => view(cluster)?.shards.size === shardCount, 5000, "the merge is decided");
}

const isMerged = (cluster: Cluster) => view(cluster)?.shards.get(firstDataShard)?.change === undefined;

describe("what is left of a shard that was merged away is not in the way of who has its keys", () => {
  const away = asNodeId(3);

  /** Node 3 comes back after shard 1 has left it, and is given it again. */
  function comeBack(cluster: Cluster): void {
    cluster.add(away).start();
    cluster.runUntil(() => [...(cluster.nodes.get(away)?.replicas.all() ?? [])].length === 0, 10_000, "node 3 has given up what it had");
    place(cluster, firstDataShard, [1, 2, 3]);
    start(cluster, "last");
    cluster.runUntil(() => cluster.isQuiet(), 5000, "quiet");
    cluster.expectReplicasEqual();
  }

  test("where its node was gone before the merge", () => {
    const cluster = splitTown(6);
    cluster.nodes.get(away)?.crash();
    for (const shard of [firstDataShard, child]) place(cluster, shard, [1, 2, 4]);
    for (let i = 0; i < 10; i++) start(cluster, `more-${i}`);
    merge(cluster);
    cluster.runUntil(() => isMerged(cluster), 5000, "merged");
    comeBack(cluster);
  });

  test("where its node was gone before it was taken in there", () => {
    const cluster = splitTown(7);
    merge(cluster);
    const node = cluster.nodes.get(away) as SimNode;
    expect(node.replicas.get(child)).toBeDefined();
    node.crash();
    cluster.runUntil(() => isMerged(cluster), 5000, "merged");
    place(cluster, firstDataShard, [1, 2, 4]);
    comeBack(cluster);
  });
});

test("what a split gave birth to comes to be also where the shard was taken in before the split was saved", () => {
  const cluster = splitTown(9);
  const grandchild = asShardId(3);
  const leaders = [firstDataShard, child].map((shard) => leaderOf(cluster, shard)?.id);
  const away = [1, 2, 3].map(asNodeId).find((node) => !leaders.includes(node)) as NodeId;
  const node = cluster.nodes.get(away) as SimNode;
  node.checkpoint.save = () => {
    throw new Error("the disk is full");
  };
  cluster.ask({ kind: "want-split", shard: child, at: 2 ** 47 + 2 ** 46 });
  cluster.runUntil(() => leaderOf(cluster, grandchild) !== undefined, 5000, "the grandchild is led");
  merge(cluster, 2);
  node.crash();
  cluster.runUntil(() => isMerged(cluster), 5000, "merged");
  // Nobody is there any more who could tell it how far the child's log is committed.
  cluster.add(away).start();
  const isThere = () => {
    const replicas = cluster.nodes.get(away)?.replicas;
    return replicas?.get(child) === undefined && replicas?.get(grandchild) !== undefined;
  };
  cluster.runUntil(isThere, 5000, "the grandchild is born where its parent was taken in");
  start(cluster, "last");
  cluster.runUntil(() => cluster.isQuiet(), 5000, "quiet");
  cluster.expectReplicasEqual();
});

describe("a child whose beginning can't be read is born when it can", () => {
  /** Reads of the child's place fail until the returned function is called. */
  function makeUnreadable({ checkpoint }: SimNode): () => void {
    const read = checkpoint.meta.bind(checkpoint);
    checkpoint.meta = (shard) => {
      if (shard === child) throw new HopError("STORE_UNAVAILABLE", "the disk can't be read");
      return read(shard);
    };
    return () => {
      checkpoint.meta = read;
    };
  }

  test("where nobody else has the shard", () => {
    const cluster = new Cluster(11);
    const one = cluster.add(1, true);
    one.start();
    cluster.runUntil(() => cluster.placementLeader() !== undefined, 1000, "placement is led");
    cluster.ask({ kind: "bootstrap", clusterId: "c", info: info(1) });
    start(cluster, "r");
    const heal = makeUnreadable(one);
    cluster.ask({ kind: "want-split", shard: firstDataShard, at: 2 ** 47 });
    cluster.run(3000);
    expect(one.replicas.get(child)).toBeUndefined();
    heal();
    cluster.runUntil(() => one.led.has(child), 1000, "the child is led");
    for (let i = 0; i < 20; i++) start(cluster, `more-${i}`);
  });

  test("where others lead it meanwhile: by what it has itself", () => {
    const cluster = three(12);
    for (let i = 0; i < 20; i++) start(cluster, `r${i}`);
    const follower = [...cluster.nodes.values()].find((node) => !node.led.has(firstDataShard)) as SimNode;
    const heal = makeUnreadable(follower);
    cluster.ask({ kind: "want-split", shard: firstDataShard, at: 2 ** 47 });
    cluster.runUntil(() => leaderOf(cluster, child) !== undefined, 5000, "the child is led");
    for (let i = 0; i < 20; i++) start(cluster, `more-${i}`);
    expect(follower.replicas.get(child)).toBeUndefined();
    heal();
    cluster.runUntil(() => follower.replicas.get(child) !== undefined, 1000, "the child is born");
    expect(follower.log.base(child).index).toBe(asIndex(1));
    cluster.runUntil(() => cluster.isQuiet(), 5000, "quiet");
    cluster.expectReplicasEqual();
  });
});

test("a leader whose disk is full can hand over to one that can write", () => {
  const cluster = three(8);
  const first = leaderOf(cluster, firstDataShard) as SimNode;
  const placementLeader = cluster.placementLeader() as SimNode;
  const next = [...cluster.nodes.values()].find((node) => node !== first) as SimNode;
  first.machine.disk.isFull = true;
  for (const shard of [placementShard, firstDataShard]) {
    (shard === placementShard ? placementLeader : first).replicas.transfer(shard, next.id);
    const hasLead = () => (shard === placementShard ? cluster.placementLeader() : leaderOf(cluster, shard)) === next;
    cluster.runUntil(hasLead, 5000, `node ${next.id} leads shard ${shard}`);
  }
  start(cluster, "after");
  first.machine.disk.isFull = false;
  cluster.runUntil(() => cluster.isQuiet(), 5000, "quiet");
  cluster.expectReplicasEqual();
});

test("a leader counts as one when the others say so: at once after a sleep, and not any more when they are gone", () => {
  const cluster = three(9);
  const first = leaderOf(cluster, firstDataShard) as SimNode;
  cluster.run(10_000);
  const host = first.led.get(firstDataShard) as ShardHost;
  const isCurrent = () => host.isCurrent();
  // By its own clock its lease is long over.
  expect(isCurrent()).toBe(false);
  cluster.runUntil(isCurrent, 10, "the others have said that it leads");
  for (const node of cluster.nodes.values()) if (node !== first) node.crash();
  cluster.run(500);
  for (let i = 0; i < 20; i++) {
    expect(isCurrent()).toBe(false);
    cluster.run(50);
  }
});
