/**
 * Partition → key → shard → the port that hosts it, under a versioned shard map.
 *
 * Invariant: the map's ranges are inclusive, ordered, and cover 0 … 2^64−1 without a gap or an
 * overlap, so every key has exactly one shard. One shard covers everything today; the road is
 * the same with many.
 */
import type { Epoch, Partition, ShardId } from "#core/base";
import { asShardId, assert, HopError } from "#core/base";
import type { ShardPort } from "./shard/shard-port.ts";

/** Inclusive range of keys [first, last]. */
export interface ShardRange {
  readonly shard: ShardId;
  readonly first: bigint;
  readonly last: bigint;
}

export interface ShardMap {
  readonly epoch: Epoch;
  readonly ranges: readonly ShardRange[];
}

export const keyMax = 0xffff_ffff_ffff_ffffn;
/** Shard 0 holds placement: deployments and, later, the map itself. Data begins at shard 1. */
export const placementShard = asShardId(0);
export const firstDataShard = asShardId(1);

export const singleShardMap = (epoch: Epoch): ShardMap => ({ epoch, ranges: [{ shard: firstDataShard, first: 0n, last: keyMax }] });

const digest = new Uint8Array(32);
const digestView = new DataView(digest.buffer);

/** First 8 bytes of SHA-256 of the partition's name, big-endian. */
export function keyOf(partition: Partition): bigint {
  Bun.SHA256.hash(partition, digest);
  return digestView.getBigUint64(0);
}

function assertCovers(map: ShardMap): void {
  let next = 0n;
  for (const range of map.ranges) {
    assert(
      range.first === next && range.last >= range.first,
      `shard map ${map.epoch}: shard ${range.shard} begins at ${range.first}, want ${next}`,
    );
    next = range.last + 1n;
  }
  assert(next === keyMax + 1n, `shard map ${map.epoch}: it ends at ${next - 1n}, want ${keyMax}`);
}

/** The range that holds `key`. */
export function rangeOf(map: ShardMap, key: bigint): ShardRange {
  let low = 0;
  let high = map.ranges.length - 1;
  while (low < high) {
    const middle = (low + high) >> 1;
    if ((map.ranges[middle] as ShardRange).last < key) low = middle + 1;
    else high = middle;
  }
  const range = map.ranges[low];
  assert(range !== undefined && range.first <= key && key <= range.last, `key ${key} has a shard in map ${map.epoch}`);
  return range;
}

export class Router {
  private map: ShardMap;
  private readonly hosted: ReadonlyMap<ShardId, ShardPort>;

  constructor(map: ShardMap, hosted: ReadonlyMap<ShardId, ShardPort>) {
    assertCovers(map);
    this.map = map;
    this.hosted = hosted;
  }

  get epoch(): Epoch {
    return this.map.epoch;
  }

  /** Takes a newer map; an older one changes nothing. */
  install(map: ShardMap): void {
    assertCovers(map);
    if (map.epoch > this.map.epoch) this.map = map;
  }

  /**
   * The shard that owns `partition`. `epoch` is the map that the sender routed by, 0 where it
   * keeps none. Throws `HopError` STALE_EPOCH with the current epoch, or NOT_LEADER.
   */
  route(partition: Partition, epoch = 0): ShardPort {
    if (epoch !== 0 && epoch !== this.map.epoch) {
      throw new HopError("STALE_EPOCH", `Cannot route ${partition}: the request carries epoch ${epoch}, want ${this.map.epoch}`, {
        epoch: this.map.epoch,
      });
    }
    const range = rangeOf(this.map, keyOf(partition));
    const port = this.hosted.get(range.shard);
    if (port === undefined) throw new HopError("NOT_LEADER", `Cannot route ${partition}: shard ${range.shard} is not hosted here`);
    return port;
  }

  /** Every shard hosted here: worker streams join all of them. */
  all(): ShardPort[] {
    return [...this.hosted.values()];
  }
}
