import { describe, expect, test } from "bun:test";
import { asIndex, asNodeId, asShardId, keyMax } from "#core/base";
import { ids, lease, Placement, pair, set } from "./machine-fixture.ts";
import { shardAt } from "./view.ts";

const ranges = ({ view }: Placement) => view.ranges.map(({ shard, range }) => [Number(shard), range.first, range.last]);
const split = (at: number, shard = 1) => ({ kind: "want-split", shard: asShardId(shard), at }) as const;

/** Shards 1 and 2 of nodes 1, 2, 3, led by node 1 under epochs 1 and 2; then what `more` nodes there are. */
function twoShards(): Placement {
  const placement = Placement.of(5, { shards: 2 });
  for (const shard of [0, 1, 2]) placement.place(shard, [1, 2, 3]);
  for (const shard of [1, 2]) placement.lease(shard, 1, 1);
  return placement;
}

describe("split", () => {
  test("happens for placement when the child asks for its first lease, ranges and lease in one record", () => {
    const placement = twoShards();
    const { mapEpoch } = placement.view;
    expect(placement.do(split(1000))).toEqual({ kind: "split", child: asShardId(3), change: 1 });
    expect(placement.do(split(1000))).toEqual({ kind: "split", child: asShardId(3), change: 1 });
    expect(placement.view.mapEpoch).toBe(mapEpoch);
    expect(placement.shard(1).change).toEqual({ kind: "split", change: 1, at: 1000, child: asShardId(3), sinceMs: expect.any(Number) });
    const before = ranges(placement);
    expect(placement.lease(1, 1, 2)).toMatchObject({ kind: "leased" });
    expect(ranges(placement)).toEqual(before);
    const records = placement.log.records.length;
    const first = placement.lease(3, 2, 1, { parent: 1, at: 1000 });
    expect(first).toMatchObject({ kind: "leased", epoch: 4 });
    expect(placement.log.records).toHaveLength(records + 1);
    const middle = (keyMax + 1) / 2;
    expect(ranges(placement)).toEqual([
      [1, 0, 999],
      [3, 1000, middle - 1],
      [2, middle, keyMax],
    ]);
    expect(placement.shard(1).change).toBeUndefined();
    expect(placement.shard(3)).toMatchObject({ ancestors: [1], lease: { node: 2, term: 1, epoch: 4 } });
    expect([ids(placement.shard(3).voters), ids(placement.shard(3).wanted)]).toEqual([
      [1, 2, 3],
      [1, 2, 3],
    ]);
    // Again, and with what it is born from said again.
    expect(placement.lease(3, 2, 1, { parent: 1, at: 1000 })).toEqual({ ...first, version: placement.view.version } as never);
    expect(placement.log.records).toHaveLength(records + 1);
    expect([shardAt(placement.view, 999)?.shard, shardAt(placement.view, 1000)?.shard]).toEqual([1, 3].map(asShardId));
  });

  test("the child's members are those it was born with, and only its voters lead it", () => {
    const placement = twoShards();
    placement.do(split(1000));
    const replicas = set([1, 2, 4], 7);
    expect(placement.refusal(lease(3, 3, 1, { parent: 1, at: 1000, replicas }))).toMatchObject({ reject: "NOT_A_MEMBER" });
    expect(placement.refusal(lease(3, 1, 1, { parent: 1, at: 1000, replicas: set([9]) }))).toMatchObject({ reject: "NODE_NOT_FOUND" });
    expect(placement.lease(3, 4, 1, { parent: 1, at: 1000, replicas })).toMatchObject({ kind: "leased" });
    expect(placement.shard(3)).toMatchObject({ voters: [1, 2, 4], configIndex: 7, wanted: [1, 2, 3] });
  });

  test("a child that nobody wanted is none", () => {
    const placement = twoShards();
    expect(placement.refusal(lease(3, 1, 1, { parent: 1, at: 1000 }))).toMatchObject({ reject: "SHARD_NOT_FOUND" });
    placement.do(split(1000));
    for (const born of [
      { parent: 1, at: 1001 },
      { parent: 2, at: 1000 },
      { parent: 9, at: 1000 },
    ])
      expect(placement.refusal(lease(3, 1, 1, born))).toMatchObject({ reject: "SHARD_NOT_FOUND" });
    expect(placement.refusal(lease(3, 1, 1))).toMatchObject({ reject: "SHARD_NOT_FOUND" });
  });

  test("wants a key inside, and a shard at rest", () => {
    const placement = twoShards();
    const { first, last } = placement.shard(2).range;
    for (const at of [first - 1, first, last + 1, 1.5, -1])
      expect(placement.refusal(split(at, 2))).toMatchObject({ reject: "BAD_REQUEST" });
    for (const shard of [0, 9]) expect(placement.refusal(split(5, shard))).toMatchObject({ reject: "SHARD_NOT_FOUND" });
    placement.do(split(1000));
    expect(placement.refusal(split(1001))).toMatchObject({ reject: "SHARD_BUSY" });
    placement.do({ kind: "want-replicas", shard: asShardId(2), nodes: [4, 2, 3].map(asNodeId) });
    expect(placement.refusal(split(first + 1, 2))).toMatchObject({ reject: "SHARD_BUSY" });
  });

  test("only the leader of the newest lease gives it up, and its child's number is not used again", () => {
    const placement = twoShards();
    placement.do(split(1000));
    const cancel = (epoch?: number) => ({ kind: "cancel-change", shard: asShardId(1), ...(epoch !== undefined && { epoch }) }) as const;
    expect(placement.refusal(cancel())).toMatchObject({ reject: "STALE_EPOCH" });
    placement.lease(1, 2, 2);
    expect(placement.refusal(cancel(1))).toMatchObject({ reject: "STALE_EPOCH", epoch: placement.view.mapEpoch });
    expect(placement.do(cancel(3))).toEqual({ kind: "done" });
    expect(placement.do(cancel(3))).toEqual({ kind: "done" });
    expect(placement.shard(1)).toMatchObject({ change: undefined, settledMs: expect.any(Number) });
    expect(placement.do(split(1000))).toMatchObject({ child: 4, change: 2 });
    expect(placement.refusal(lease(3, 1, 1, { parent: 1, at: 1000 }))).toMatchObject({ reject: "SHARD_NOT_FOUND" });
  });
});

describe("merge", () => {
  const frozen = (fields: Partial<{ change: number; epoch: number; through: number }> = {}) => {
    const { change = 1, epoch = 2, through = 40 } = fields;
    return { kind: "merge-frozen", ...pair(1, 2), change, epoch, through: asIndex(through) } as const;
  };

  test("is decided when the right one is frozen: then the left one owns the keys of both", () => {
    const placement = twoShards();
    const { mapEpoch } = placement.view;
    expect(placement.do({ kind: "want-merge", ...pair(1, 2) })).toEqual({ kind: "merge", change: 1 });
    expect(placement.do({ kind: "want-merge", ...pair(1, 2) })).toEqual({ kind: "merge", change: 1 });
    expect(placement.shard(2).change).toMatchObject({ kind: "merge-right", left: 1, change: 1 });
    expect(placement.do(frozen())).toEqual({ kind: "done" });
    expect(ranges(placement)).toEqual([[1, 0, keyMax]]);
    expect(placement.shard(1)).toMatchObject({
      change: { kind: "absorb", right: 2, through: 40 },
      ancestors: [2],
      lease: { node: 1, term: 1, epoch: 3 },
    });
    expect(placement.view.retired.get(asShardId(2))).toMatchObject({ into: 1, through: 40 });
    expect(Number(placement.view.mapEpoch)).toBe(Number(mapEpoch) + 1);
    const records = placement.log.records.length;
    expect(placement.do(frozen())).toEqual({ kind: "done" });
    expect(placement.refusal({ kind: "merge-cancel", ...pair(1, 2) })).toMatchObject({ reject: "SHARD_BUSY" });
    expect(placement.refusal({ kind: "cancel-change", shard: asShardId(1) })).toMatchObject({ reject: "SHARD_BUSY" });
    // The retired one has no leader any more, the left one keeps its own, under its new epoch.
    expect(placement.refusal(lease(2, 1, 9)).message).toContain("it is part of shard 1 now");
    expect(placement.lease(1, 1, 1)).toMatchObject({ epoch: 3 });
    expect(placement.log.records).toHaveLength(records);
    expect(placement.do({ kind: "merge-done", ...pair(1, 2) })).toEqual({ kind: "done" });
    expect(placement.do({ kind: "merge-done", ...pair(1, 2) })).toEqual({ kind: "done" });
    expect(placement.shard(1).change).toBeUndefined();
    expect(placement.do(split(1000))).toMatchObject({ child: 3 });
  });

  test("a report of an earlier change, or by a leader that was deposed, decides nothing", () => {
    const placement = twoShards();
    placement.do({ kind: "want-merge", ...pair(1, 2) });
    placement.do({ kind: "merge-cancel", ...pair(1, 2) });
    placement.do({ kind: "merge-cancel", ...pair(1, 2) });
    expect([placement.shard(1).change, placement.shard(2).change]).toEqual([undefined, undefined]);
    expect(placement.refusal(frozen())).toMatchObject({ reject: "STALE_EPOCH" });
    expect(placement.do({ kind: "want-merge", ...pair(1, 2) })).toEqual({ kind: "merge", change: 2 });
    expect(placement.refusal(frozen())).toMatchObject({ reject: "STALE_EPOCH" });
    placement.lease(2, 2, 2);
    expect(placement.refusal(frozen({ change: 2 }))).toMatchObject({ reject: "STALE_EPOCH" });
    expect(placement.refusal(frozen({ change: 2, epoch: 3, through: 0 }))).toMatchObject({ reject: "BAD_REQUEST" });
    expect(placement.do(frozen({ change: 2, epoch: 3 }))).toEqual({ kind: "done" });
  });

  test("brings the replicas of the right one to the left one's nodes first", () => {
    const placement = twoShards();
    placement.place(2, [3, 4, 5]);
    expect(placement.do({ kind: "want-merge", ...pair(1, 2) })).toEqual({ kind: "merge", change: 0 });
    expect(ids(placement.shard(2).wanted)).toEqual([1, 2, 3]);
    expect(placement.do({ kind: "want-merge", ...pair(1, 2) })).toEqual({ kind: "merge", change: 0 });
    placement.do({ kind: "replicas-changed", shard: asShardId(2), replicas: set([1, 2, 3], 50) });
    expect(placement.do({ kind: "want-merge", ...pair(1, 2) })).toEqual({ kind: "merge", change: 1 });
    for (const shard of [1, 2])
      expect(placement.refusal({ kind: "want-replicas", shard: asShardId(shard), nodes: [asNodeId(1)] })).toMatchObject({
        reject: "SHARD_BUSY",
      });
  });

  test("wants the right neighbour, and two shards at rest", () => {
    const placement = twoShards();
    expect(placement.refusal({ kind: "want-merge", ...pair(2, 1) })).toMatchObject({ reject: "BAD_REQUEST" });
    for (const two of [pair(0, 1), pair(1, 0), pair(1, 9)])
      expect(placement.refusal({ kind: "want-merge", ...two })).toMatchObject({ reject: "SHARD_NOT_FOUND" });
    placement.do(split(placement.shard(2).range.first + 5, 2));
    expect(placement.refusal({ kind: "want-merge", ...pair(1, 2) })).toMatchObject({ reject: "SHARD_BUSY" });
    expect(placement.refusal({ kind: "merge-done", ...pair(1, 2) })).toMatchObject({ reject: "BAD_REQUEST" });
  });
});
