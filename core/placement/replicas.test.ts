import { describe, expect, test } from "bun:test";
import { asNodeId, asShardId } from "#core/base";
import { ids, lease, Placement, set } from "./machine-fixture.ts";

const nodes = (numbers: number[]) => numbers.map(asNodeId);

function threeNodes(): Placement {
  const placement = Placement.of(4);
  placement.place(1, [1, 2, 3]);
  return placement;
}

describe("leadership leases", () => {
  test("are numbered over the cluster, and asked for again are the same", () => {
    const placement = Placement.of(3, { shards: 2 });
    const epoch = placement.view.mapEpoch;
    expect(placement.lease(1, 1, 4)).toMatchObject({ kind: "leased", epoch: 1 });
    expect(placement.lease(2, 1, 2)).toMatchObject({ kind: "leased", epoch: 2 });
    const { version } = placement.view;
    expect(placement.lease(1, 1, 4)).toEqual({ kind: "leased", epoch: 1, version });
    expect(placement.view.version).toBe(version);
    expect(placement.lease(1, 1, 5)).toEqual({ kind: "leased", epoch: 3, version: version + 1 });
    expect(placement.shard(1).lease).toMatchObject({ node: 1, term: 5, epoch: 3 });
    expect(Number(placement.view.mapEpoch)).toBe(Number(epoch) + 3);
  });

  test("go to voters of the newest term only", () => {
    const placement = threeNodes();
    expect(placement.lease(1, 2, 5)).toMatchObject({ epoch: 1 });
    expect(placement.refusal(lease(1, 2, 4))).toMatchObject({ reject: "NOT_LEADER" });
    // One term has one leader.
    expect(placement.refusal(lease(1, 1, 5))).toMatchObject({ reject: "NOT_LEADER" });
    expect(placement.refusal(lease(1, 4, 6))).toMatchObject({ reject: "NOT_A_MEMBER" });
    expect(placement.refusal(lease(1, 9, 6))).toMatchObject({ reject: "NOT_A_MEMBER" });
    expect(placement.refusal(lease(7, 1, 6))).toMatchObject({ reject: "SHARD_NOT_FOUND" });
    expect(placement.lease(1, 1, 6)).toMatchObject({ epoch: 2 });
    expect(placement.lease(0, 1, 3)).toMatchObject({ epoch: 3 });
  });

  test("of a child's first term may be asked for ahead: whoever is elected in it instead gets the next epoch", () => {
    const placement = threeNodes();
    placement.lease(1, 1, 4);
    placement.do({ kind: "want-split", shard: asShardId(1), at: 1000 });
    const ahead = (node: number, term = 1) =>
      ({ ...lease(2, node, term, { parent: 1, at: 1000, replicas: set([1, 2, 3], 0) }), isAhead: true }) as const;
    expect(placement.do(ahead(1))).toMatchObject({ kind: "leased", epoch: 2 });
    expect(placement.shard(2).lease).toMatchObject({ node: 1, term: 1, epoch: 2 });
    // Asked again, ahead or elected, it is the same.
    expect(placement.do(ahead(1))).toMatchObject({ epoch: 2 });
    expect(placement.lease(2, 1, 1)).toMatchObject({ epoch: 2 });
    expect(placement.refusal(ahead(2))).toMatchObject({ reject: "NOT_LEADER" });
    expect(placement.lease(2, 3, 1)).toMatchObject({ epoch: 3 });
    // The one before asks late.
    expect(placement.refusal(ahead(1))).toMatchObject({ reject: "NOT_LEADER" });
    expect(placement.lease(2, 2, 2)).toMatchObject({ epoch: 4 });
    for (const late of [ahead(1), lease(2, 3, 1)]) expect(placement.refusal(late)).toMatchObject({ reject: "NOT_LEADER" });
  });

  test("a voter on its way out of a joint configuration may lead, a learner may not, a removed node neither", () => {
    const placement = threeNodes();
    const joint = set([1, 2], 9, { outgoing: nodes([1, 2, 3]), learners: nodes([4]) });
    placement.do({ kind: "replicas-changed", shard: asShardId(1), replicas: joint });
    expect(placement.lease(1, 3, 2)).toMatchObject({ epoch: 1 });
    expect(placement.refusal(lease(1, 4, 3))).toMatchObject({ reject: "NOT_A_MEMBER" });
    placement.do({ kind: "want-replicas", shard: asShardId(1), nodes: nodes([1]) });
    placement.do({ kind: "replicas-changed", shard: asShardId(1), replicas: set([1], 10) });
    placement.do({ kind: "remove", node: asNodeId(3) });
    expect(placement.refusal(lease(1, 3, 3)).message).toContain("it was removed from the cluster");
  });
});

describe("members of a shard", () => {
  test("are what the newest configuration says, however reports come", () => {
    const placement = Placement.of(4);
    const report = (voters: number[], index: number) =>
      placement.do({ kind: "replicas-changed", shard: asShardId(1), replicas: set(voters, index) });
    const { mapEpoch } = placement.view;
    expect(report([1, 2, 3], 12)).toEqual({ kind: "done" });
    expect(report([1, 2], 11)).toEqual({ kind: "done" });
    expect(report([4], 12)).toEqual({ kind: "done" });
    expect([ids(placement.shard(1).voters), Number(placement.view.mapEpoch)]).toEqual([[1, 2, 3], Number(mapEpoch) + 1]);
    expect(placement.refusal({ kind: "replicas-changed", shard: asShardId(1), replicas: set([], 13) })).toMatchObject({
      reject: "BAD_REQUEST",
    });
    expect(placement.refusal({ kind: "replicas-changed", shard: asShardId(1), replicas: set([8], 13) })).toMatchObject({
      reject: "NODE_NOT_FOUND",
    });
    expect(placement.refusal({ kind: "replicas-changed", shard: asShardId(5), replicas: set([1], 13) })).toMatchObject({
      reject: "SHARD_NOT_FOUND",
    });
  });

  test("are wanted from members of the cluster, an odd number of different ones", () => {
    const placement = Placement.of(4);
    const want = (numbers: number[], shard = 1) => ({ kind: "want-replicas", shard: asShardId(shard), nodes: nodes(numbers) }) as const;
    expect(placement.do(want([3, 1, 2]))).toEqual({ kind: "done" });
    expect(ids(placement.shard(1).wanted)).toEqual([1, 2, 3]);
    for (const bad of [[], [1, 2], [1, 1, 2]]) expect(placement.refusal(want(bad))).toMatchObject({ reject: "BAD_REQUEST" });
    expect(placement.refusal(want([9]))).toMatchObject({ reject: "NODE_NOT_FOUND" });
    expect(placement.refusal(want([1], 9))).toMatchObject({ reject: "SHARD_NOT_FOUND" });
    placement.do({ kind: "leave", node: asNodeId(4) });
    placement.do({ kind: "leave", node: asNodeId(3) });
    expect(placement.refusal(want([1, 2, 4]))).toMatchObject({ reject: "NODE_NOT_FOUND" });
    // Who leaves may stay until its turn comes, and comes back into what is wanted of those that hold it.
    expect(placement.do(want([1]))).toEqual({ kind: "done" });
    expect(placement.refusal(want([1, 2, 3]))).toMatchObject({ reject: "NODE_NOT_FOUND" });
    expect(placement.do(want([1, 2, 1].slice(0, 1), 0))).toEqual({ kind: "done" });
  });

  test("are left alone while the shard splits", () => {
    const placement = threeNodes();
    placement.do({ kind: "want-split", shard: asShardId(1), at: 1000 });
    const want = { kind: "want-replicas", shard: asShardId(1), nodes: nodes([1]) } as const;
    expect(placement.refusal(want)).toMatchObject({ reject: "SHARD_BUSY", retryAfterMs: 1000 });
  });
});

test("the replication factor is set once, to an odd number, and it is known who did so and why", () => {
  const placement = Placement.of(1);
  expect(placement.view.replicationSet).toBeUndefined();
  expect(placement.do({ kind: "set-replication", count: 5, reason: "more nodes" })).toEqual({ kind: "done" });
  const { version, replicationSet } = placement.view;
  expect(replicationSet).toMatchObject({ count: 5, version: 2, reason: "more nodes", identity: expect.anything() });
  placement.do({ kind: "set-replication", count: 5 });
  expect([placement.view.replicationWanted, placement.view.version]).toEqual([5, version]);
  for (const count of [0, 2, 9]) expect(placement.refusal({ kind: "set-replication", count })).toMatchObject({ reject: "BAD_REQUEST" });
});
