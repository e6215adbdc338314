import { expect, test } from "bun:test";
import { sha256 } from "@noble/hashes/sha2.js";
import type { Epoch, Partition, ShardId } from "#core/base";
import { asShardId, HopError, InvariantError, Prng } from "#core/base";
import { keyMax, keyOf, Router, rangeOf, type ShardMap, singleShardMap } from "./router.ts";
import type { ShardPort } from "./shard/shard-port.ts";

const epochOf = (value: number) => value as Epoch;
const none: ReadonlyMap<ShardId, ShardPort> = new Map();

test("keyOf() is the first 8 bytes of SHA-256 of the partition's name", () => {
  for (const name of ["run/default:order-1", "run/default:🦘 / '\"", "chan/x", ""]) {
    const digest = sha256(new TextEncoder().encode(name));
    expect(keyOf(name as Partition)).toBe(new DataView(digest.buffer).getBigUint64(0));
  }
});

/** Cuts the key space at random points. */
function randomMap(prng: Prng): ShardMap {
  const cuts = new Set<bigint>();
  const count = prng.below(12);
  for (let i = 0; i < count; i++) cuts.add((BigInt(prng.next()) << 32n) | BigInt(prng.next()));
  cuts.delete(0n);
  const firsts = [0n, ...[...cuts].sort((a, b) => (a < b ? -1 : 1))];
  const ranges = firsts.map((first, i) => ({ shard: asShardId(i + 1), first, last: (firsts[i + 1] ?? keyMax + 1n) - 1n }));
  return { epoch: epochOf(1), ranges };
}

test("rangeOf() finds the one range that holds a key, its ends included", () => {
  const prng = new Prng(7);
  for (let round = 0; round < 200; round++) {
    const map = randomMap(prng);
    const keys = [0n, keyMax, (BigInt(prng.next()) << 32n) | BigInt(prng.next())];
    for (const range of map.ranges) keys.push(range.first, range.last);
    for (const key of keys) {
      const holding = map.ranges.filter((range) => range.first <= key && key <= range.last);
      expect(holding).toHaveLength(1);
      expect(rangeOf(map, key)).toBe(holding[0] as (typeof holding)[number]);
    }
  }
});

test("Router refuses maps with a gap, an overlap, a late start or an early end", () => {
  const range = (first: bigint, last: bigint) => ({ shard: asShardId(1), first, last });
  for (const ranges of [
    [],
    [range(1n, keyMax)],
    [range(0n, keyMax - 1n)],
    [range(0n, 5n), range(7n, keyMax)],
    [range(0n, 5n), range(5n, keyMax)],
  ]) {
    expect(() => new Router({ epoch: epochOf(1), ranges }, none)).toThrow(InvariantError);
  }
});

test("Router answers a stale epoch with the current one, and takes epoch 0 from those who keep no map", () => {
  const port = {} as ShardPort;
  const router = new Router(singleShardMap(epochOf(4)), new Map([[asShardId(1), port]]));
  const partition = "run/default:a" as Partition;
  expect(router.route(partition)).toBe(port);
  expect(router.route(partition, 4)).toBe(port);
  router.install(singleShardMap(epochOf(3)));
  expect(router.epoch).toBe(epochOf(4));
  router.install(singleShardMap(epochOf(5)));
  const refused = (() => {
    try {
      return router.route(partition, 4);
    } catch (error) {
      return error;
    }
  })();
  expect(refused).toBeInstanceOf(HopError);
  expect(refused).toMatchObject({ reason: "STALE_EPOCH", epoch: 5 });
});

test("Router names the shard that is not hosted here", () => {
  const router = new Router(singleShardMap(epochOf(1)), none);
  expect(() => router.route("run/default:a" as Partition)).toThrow("shard 1 is not hosted here");
});
