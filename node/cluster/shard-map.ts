/**
 * Partition → key → shard: what a node routes by.
 *
 * Invariant: the ranges are inclusive, ordered, and cover all keys without a gap or an overlap,
 * so every key has exactly one shard.
 */
import type { Epoch, Key, NodeId, Partition, ShardId } from "#core/base";
import { assert, keyMax, keyOfDigest, keyText } from "#core/base";
import { type ClusterView, leaderOf } from "#core/placement";

/** A shard's range, and the node that holds its leadership lease. */
export interface ShardPlace {
  readonly shard: ShardId;
  readonly first: Key;
  readonly last: Key;
  /** Undefined where no node ever got a lease. It may be dead: the lease says who may lead, not who lives. */
  readonly leader: NodeId | undefined;
  /** Of the leadership lease; it only grows. */
  readonly leaseEpoch: number;
}

const digest = new Uint8Array(32);

/** The first 48 bits of SHA-256 of the partition's name. */
export function keyOf(partition: Partition): Key {
  Bun.SHA256.hash(partition, digest);
  return keyOfDigest(digest);
}

export class ShardMap {
  readonly epoch: Epoch;
  readonly places: readonly ShardPlace[];
  private readonly byShard = new Map<ShardId, ShardPlace>();

  /** Throws `InvariantError` where the places leave a key out or hold one twice. */
  constructor(epoch: Epoch, places: readonly ShardPlace[]) {
    this.epoch = epoch;
    this.places = [...places].sort((a, b) => a.first - b.first);
    let next = 0;
    for (const place of this.places) {
      const { shard, first, last } = place;
      assert(first === next && last >= first, `shard map ${epoch}: shard ${shard} begins at ${keyText(first)}, want ${keyText(next)}`);
      next = last + 1;
      this.byShard.set(shard, place);
    }
    assert(next === keyMax + 1, `shard map ${epoch}: it ends before ${keyText(next)}, want ${keyText(keyMax)}`);
    assert(this.byShard.size === this.places.length, `shard map ${epoch}: a shard has two ranges`);
  }

  /** The shard that owns `key`. */
  find(key: Key): ShardPlace {
    const { places } = this;
    let low = 0;
    let high = places.length - 1;
    while (low < high) {
      const middle = (low + high) >> 1;
      if ((places[middle] as ShardPlace).last < key) low = middle + 1;
      else high = middle;
    }
    return places[low] as ShardPlace;
  }

  place(shard: ShardId): ShardPlace | undefined {
    return this.byShard.get(shard);
  }
}

/** The map of a view; undefined before there are shards. */
export function mapOf(view: ClusterView): ShardMap | undefined {
  if (view.ranges.length === 0) return undefined;
  const places = view.ranges.map((entry) => ({
    shard: entry.shard,
    first: entry.range.first,
    last: entry.range.last,
    leader: leaderOf(entry),
    leaseEpoch: entry.lease?.epoch ?? 0,
  }));
  return new ShardMap(view.mapEpoch, places);
}
