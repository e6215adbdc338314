import { expect, test } from "bun:test";
import { asNodeId, asShardId, firstDataShard, placementShard, type Reply, type RunId, runPartition } from "#core/base";
import { shardOf } from "#core/placement";
import type { NodeInfo } from "#proto";
import { Cluster } from "./cluster.ts";

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
