import { expect, test } from "bun:test";
import { sha256 } from "@noble/hashes/sha2.js";
import { asShardId, type Epoch, InvariantError, keyMax, type Partition, Prng } from "#core/base";
import { emptyView } from "#core/placement";
import { Placement } from "../../core/placement/machine-fixture.ts";
import { keyOf, mapOf, ShardMap } from "./shard-map.ts";

const epochOf = (value: number) => value as Epoch;
const place = (first: number, last: number, shard = 1) => ({ shard: asShardId(shard), first, last, leader: undefined, leaseEpoch: 0 });
const anyKey = (prng: Prng) => prng.next() * 0x10000 + (prng.next() & 0xffff);

test("keyOf() is the first 6 bytes of SHA-256 of the partition's name", () => {
  for (const name of ["run/default:order-1", "run/default:🦘 / '\"", "chan/x", ""]) {
    const digest = sha256(new TextEncoder().encode(name));
    expect(keyOf(name as Partition)).toBe(Number(new DataView(digest.buffer).getBigUint64(0) >> 16n));
  }
});

/** Cuts the key space at random points. */
function randomMap(prng: Prng): ShardMap {
  const cuts = new Set<number>();
  const count = prng.below(12);
  for (let i = 0; i < count; i++) cuts.add(anyKey(prng));
  cuts.delete(0);
  const firsts = [0, ...[...cuts].sort((a, b) => a - b)];
  const places = firsts.map((first, i) => place(first, (firsts[i + 1] ?? keyMax + 1) - 1, i + 1));
  return new ShardMap(epochOf(1), places.reverse());
}

test("find() gives the one range that holds a key, its ends included", () => {
  const prng = new Prng(7);
  for (let round = 0; round < 200; round++) {
    const map = randomMap(prng);
    const keys = [0, keyMax, anyKey(prng)];
    for (const { first, last } of map.places) keys.push(first, last);
    for (const key of keys) {
      const holding = map.places.filter(({ first, last }) => first <= key && key <= last);
      expect(holding).toHaveLength(1);
      expect(map.find(key)).toBe(holding[0] as (typeof holding)[number]);
    }
  }
});

test("maps with a gap, an overlap, a late start, an early end or a shard twice are refused", () => {
  for (const places of [
    [],
    [place(1, keyMax)],
    [place(0, keyMax - 1)],
    [place(0, 5), place(7, keyMax, 2)],
    [place(0, 5), place(5, keyMax, 2)],
    [place(0, 5), place(6, keyMax)],
  ]) {
    expect(() => new ShardMap(epochOf(1), places)).toThrow(InvariantError);
  }
});

test("the map of a view has its shards of data with their leases, and none before there are shards", () => {
  expect(mapOf(emptyView)).toBeUndefined();
  const placement = Placement.of(1, { shards: 3 });
  const reply = placement.do({ kind: "lease", shard: asShardId(2), node: 1 as never, term: 4 as never });
  const view = placement.machine.view();
  const map = mapOf(view);
  expect(map?.places.map(({ shard }) => shard)).toEqual([1, 2, 3].map(asShardId));
  expect(map?.epoch).toBe(view.mapEpoch);
  expect(map?.place(asShardId(2))).toMatchObject({ leader: 1, leaseEpoch: reply.kind === "leased" ? reply.epoch : -1 });
  expect(map?.place(asShardId(1))).toMatchObject({ leader: undefined, leaseEpoch: 0 });
});
