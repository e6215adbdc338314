/** What the committed changes of a shard add up to: its keys, who leads it, whether it decides. */
import { asShardId, type KeyRange, type ShardId } from "#core/base";
import type { ShardChange, ShardSealed } from "#proto";
import { claim } from "../violation.ts";
import type { PlacementWatch } from "./placement.ts";

/** The other shards. */
export interface Neighbours {
  readonly placement: PlacementWatch;
  lastIndex(shard: ShardId): number;
  recordOf(shard: ShardId): ShardRecord | undefined;
  born(shard: ShardId, record: ShardRecord): void;
}

export class ShardRecord {
  readonly shard: ShardId;
  range: KeyRange;
  epoch = 0;
  frozenInto = 0;
  frozenIndex = 0;
  isRetired = false;
  sealedThrough = 0;
  manifest = 0;

  constructor(shard: ShardId, range: KeyRange) {
    this.shard = shard;
    this.range = range;
  }

  fold(index: number, change: ShardChange, others: Neighbours): void {
    const { shard } = this;
    switch (change.kind) {
      case "led": {
        const { node, epoch } = change.value;
        claim(
          "oneLeaseHolderAnEpoch",
          epoch > this.epoch,
          () => `node ${node} leads shard ${shard} under epoch ${epoch} after ${this.epoch}`,
        );
        others.placement.mayLead(epoch, shard, node);
        this.epoch = epoch;
        return;
      }
      case "split":
        return this.split(index, change.value, others);
      case "frozen":
        claim("eachKeyOwnedOnce", this.frozenInto === 0, () => `shard ${shard} freezes twice, at ${this.frozenIndex} and ${index}`);
        this.frozenInto = change.value.into;
        this.frozenIndex = index;
        return;
      case "thawed":
        claim("eachKeyOwnedOnce", !this.isRetired, () => `shard ${shard} thaws at ${index}, but was taken in`);
        this.frozenInto = 0;
        return;
      case "absorbed":
        return this.absorb(index, change.value, others);
      case "sealed":
        return this.seal(index, change.value);
      default:
        claim("eachKeyOwnedOnce", false, () => `entry ${index} of shard ${shard} is a change of unknown kind`);
    }
  }

  private seal(index: number, { through, manifest, statesThrough }: ShardSealed): void {
    const told = () =>
      `shard ${this.shard} is sealed through ${through} by manifest ${manifest} at index ${index}, behind ${this.sealedThrough} and ${this.manifest}`;
    claim(
      "sealedIsCommitted",
      through >= this.sealedThrough && manifest > this.manifest && through < index && statesThrough <= through,
      told,
    );
    this.sealedThrough = through;
    this.manifest = manifest;
  }

  private split(index: number, { at, child }: { at: number; child: number }, others: Neighbours): void {
    const { first, last } = this.range;
    const told = () => `shard ${this.shard} splits at ${at} into ${child} at index ${index}, it has ${first} to ${last}`;
    claim("eachKeyOwnedOnce", at > first && at <= last && this.frozenInto === 0 && others.recordOf(asShardId(child)) === undefined, told);
    this.range = { first, last: at - 1 };
    others.born(asShardId(child), new ShardRecord(asShardId(child), { first: at, last }));
  }

  private absorb(index: number, absorbed: { shard: number; through: number; last: number }, others: Neighbours): void {
    const right = others.recordOf(asShardId(absorbed.shard));
    const end = others.lastIndex(asShardId(absorbed.shard));
    const told = () =>
      `shard ${this.shard} takes in shard ${absorbed.shard} through ${absorbed.through} at index ${index}; that one froze at ${right?.frozenIndex} and ends at ${end}, with ${right?.range.first} to ${right?.range.last}; retired: ${right?.isRetired}, frozen into ${right?.frozenInto}; this one has ${this.range.first} to ${this.range.last}, it takes up to ${absorbed.last}`;
    const isWhole = right !== undefined && right.frozenInto === this.shard && right.frozenIndex <= absorbed.through && !right.isRetired;
    claim("eachKeyOwnedOnce", isWhole && right.range.first === this.range.last + 1 && right.range.last === absorbed.last, told);
    right.isRetired = true;
    this.range = { first: this.range.first, last: absorbed.last };
  }
}

/** I16: the shards that live own every key exactly once. */
export function eachKeyOwnedOnce(records: Iterable<ShardRecord>): void {
  const live = [...records].filter((record) => record.shard !== 0 && !record.isRetired).sort((a, b) => a.range.first - b.range.first);
  let next = 0;
  for (const { shard, range } of live) {
    claim("eachKeyOwnedOnce", range.first === next, () => `shard ${shard} begins at key ${range.first}, want ${next}`);
    next = range.last + 1;
  }
  claim("eachKeyOwnedOnce", next === 2 ** 48, () => `no shard owns the keys from ${next} on`);
}
