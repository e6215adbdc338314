import { expect, test } from "bun:test";
import { asShardId, HopError, keyMax, Prng, type ShardId } from "#core/base";
import { type Claimant, ownersOf, restoreOrder } from "./ownership.ts";

const shard = asShardId;
const claimant = (id: number, first: number, last: number, ancestors: readonly number[] = []): Claimant => ({
  shard: shard(id),
  range: { first, last },
  ancestors: ancestors.map(shard),
});
const owned = (claimants: readonly Claimant[], lastShard = 0) =>
  ownersOf(claimants, lastShard).map((each) => {
    const from = each.kind === "born" ? ` from ${each.from}` : "";
    return `${each.kind} ${each.shard}${from}: ${each.range.first}-${each.range.last === keyMax ? "end" : each.range.last}`;
  });

test("shards that fit together keep their keys", () => {
  expect(owned([claimant(2, 50, keyMax, [1]), claimant(1, 0, 49)])).toEqual(["kept 1: 0-49", "kept 2: 50-end"]);
});

test("a child goes before a parent that was uploaded last before the split, whatever is in between", () => {
  expect(owned([claimant(1, 0, keyMax), claimant(2, 50, keyMax, [1])])).toEqual(["kept 1: 0-49", "kept 2: 50-end"]);
  const grandchild = claimant(3, 70, keyMax, [2, 1]);
  expect(owned([claimant(1, 0, keyMax), claimant(2, 50, keyMax, [1]), grandchild])).toEqual([
    "kept 1: 0-49",
    "kept 2: 50-69",
    "kept 3: 70-end",
  ]);
});

test("a split whose child was never uploaded is undone", () => {
  expect(owned([claimant(1, 0, keyMax)], 2)).toEqual(["kept 1: 0-end"]);
});

test("keys on both sides of another shard's become a shard of a number that was never given", () => {
  expect(owned([claimant(1, 0, keyMax), claimant(3, 30, 49, [1])], 8)).toEqual(["kept 1: 0-29", "kept 3: 30-49", "born 9 from 1: 50-end"]);
});

test("a shard that took its neighbour in goes before it, also where it had given birth to it", () => {
  expect(owned([claimant(1, 0, keyMax, [2]), claimant(2, 50, keyMax)])).toEqual(["kept 1: 0-end"]);
  expect(owned([claimant(1, 0, keyMax, [2]), claimant(2, 50, keyMax, [1])])).toEqual(["kept 1: 0-end"]);
  // It was uploaded last before it took the neighbour in.
  expect(owned([claimant(1, 0, 49), claimant(2, 50, keyMax, [1])])).toEqual(["kept 1: 0-49", "kept 2: 50-end"]);
  const later = claimant(3, 70, keyMax, [1, 2]);
  expect(owned([claimant(1, 0, keyMax, [2]), claimant(2, 50, keyMax, [1]), later])).toEqual(["kept 1: 0-69", "kept 3: 70-end"]);
});

test("keys of which nothing was uploaded go to a shard of a number that was never given, empty", () => {
  expect(owned([claimant(1, 0, 49)], 5)).toEqual(["kept 1: 0-49", "empty 6: 50-end"]);
  expect(owned([claimant(1, 0, 49), claimant(4, 60, 79)], 5)).toEqual([
    "kept 1: 0-49",
    "empty 6: 50-59",
    "kept 4: 60-79",
    "empty 7: 80-end",
  ]);
  expect(owned([])).toEqual(["empty 1: 0-end"]);
});

test("two shards with the same keys, neither from the other, are refused", () => {
  expect(() => ownersOf([claimant(1, 0, keyMax), claimant(2, 50, keyMax)], 0)).toThrow(HopError);
});

test("what comes from another shard is taken in behind it", () => {
  const all = [claimant(3, 70, keyMax, [2, 1]), claimant(2, 50, keyMax, [1]), claimant(1, 0, keyMax)];
  expect(restoreOrder(all).map((each) => each.shard as number)).toEqual([1, 2, 3]);
  expect(restoreOrder([claimant(1, 0, keyMax, [2]), claimant(2, 50, keyMax, [1])]).map((each) => each.shard as number)).toEqual([2, 1]);
});

/** A cluster that splits and merges, each shard of it uploaded at moments of its own. */
class Town {
  readonly live = new Map<ShardId, Claimant>();
  readonly uploaded = new Map<ShardId, Claimant>();
  private last = 1;

  constructor() {
    this.put(claimant(1, 0, keyMax));
  }

  split(parent: Claimant, at: number): void {
    const id = ++this.last;
    this.put(claimant(id, at, parent.range.last, [parent.shard, ...parent.ancestors]));
    this.put({ ...parent, range: { first: parent.range.first, last: at - 1 } });
  }

  merge(left: Claimant, right: Claimant): void {
    const ancestors = [...new Set([...left.ancestors, right.shard, ...right.ancestors])].filter((each) => each !== left.shard);
    this.live.delete(right.shard);
    this.put({ ...left, range: { first: left.range.first, last: right.range.last }, ancestors });
  }

  private put(each: Claimant): void {
    this.live.set(each.shard, each);
  }
}

test("whatever was uploaded when, every key has one owner, and no number of before is given to other keys' newer states", () => {
  const prng = new Prng(17);
  for (let round = 0; round < 500; round++) {
    const town = new Town();
    town.uploaded.set(shard(1), town.live.get(shard(1)) as Claimant);
    for (let step = 0; step < 12; step++) {
      const ordered = [...town.live.values()].sort((a, b) => a.range.first - b.range.first);
      const i = prng.below(ordered.length);
      const [one, next] = [ordered[i] as Claimant, ordered[i + 1]];
      const kind = prng.below(4);
      if (kind === 0 && one.range.last - one.range.first > 2)
        town.split(one, one.range.first + 1 + prng.below(Math.min(one.range.last - one.range.first, 2 ** 31)));
      else if (kind === 1 && next !== undefined) town.merge(one, next);
      else town.uploaded.set(one.shard, one);
    }
    const claimants = [...town.uploaded.values()];
    const owners = ownersOf(claimants, 20);
    let first = 0;
    for (const owner of owners) {
      expect(owner.range.first).toBe(first);
      first = owner.range.last + 1;
      if (owner.kind === "kept") expect(claimants.some((each) => each.shard === owner.shard)).toBe(true);
      if (owner.kind === "born") expect(owner.shard).toBeGreaterThan(20);
    }
    expect(first).toBe(keyMax + 1);
    expect(new Set(owners.map((each) => each.shard)).size).toBe(owners.length);
    // What was uploaded as it is now is not given up for anything older.
    for (const each of claimants) {
      if (town.live.get(each.shard) !== each) continue;
      expect(owners.find((owner) => owner.shard === each.shard)).toEqual({ kind: "kept", shard: each.shard, range: each.range });
    }
  }
});
