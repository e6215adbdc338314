/**
 * Which shard has which keys in a cluster that is rebuilt: decided by what was uploaded of each,
 * and not by what placement was told.
 *
 * Shards are uploaded one after the other, so a split or merge may be in what one of them has and
 * not yet in what another one has. Whoever has its histories from another shard goes before that
 * one: a child before its parent, a shard that took its neighbour in before that neighbour. Every
 * key has one owner at the end, also where nothing was uploaded of it: a shard of a new number, so that no
 * history leads into the wrong log.
 */
import { asShardId, HopError, inRange, type Key, type KeyRange, keyMax, rangeText, type ShardId } from "#core/base";

/** A shard as it was uploaded. */
export interface Claimant {
  readonly shard: ShardId;
  readonly range: KeyRange;
  /** Shards whose logs its histories may lead into. */
  readonly ancestors: readonly ShardId[];
}

/**
 * `kept`: the shard goes on with these keys. `born`: a shard of a new number, with what `from` has
 * of them. `empty`: nothing was uploaded of them.
 */
export type Owner =
  | { readonly kind: "kept"; readonly shard: ShardId; readonly range: KeyRange }
  | { readonly kind: "born"; readonly shard: ShardId; readonly range: KeyRange; readonly from: ShardId }
  | { readonly kind: "empty"; readonly shard: ShardId; readonly range: KeyRange };

/**
 * Owners of all keys, by their first key; numbers up to `lastShard` were given before. Throws `HopError` HASH_MISMATCH
 * where two shards have the same keys and neither comes from the other.
 */
export function ownersOf(claimants: readonly Claimant[], lastShard: number): Owner[] {
  let last = Math.max(lastShard, 0, ...claimants.map(({ shard }) => shard));
  const owners: Owner[] = [];
  const used = new Set<ShardId>();
  for (const { range, from } of runsOf(claimants)) {
    if (from === undefined) owners.push({ kind: "empty", shard: asShardId(++last), range });
    else if (used.has(from)) owners.push({ kind: "born", shard: asShardId(++last), range, from });
    else owners.push({ kind: "kept", shard: from, range });
    if (from !== undefined) used.add(from);
  }
  return owners;
}

/** Shards in the order in which their states are taken in: what comes later takes the place of what is there of its keys. */
export function restoreOrder(claimants: readonly Claimant[]): Claimant[] {
  const left = [...claimants].sort((a, b) => a.shard - b.shard);
  const ordered: Claimant[] = [];
  while (left.length > 0) {
    const at = left.findIndex((each) => !left.some((other) => other !== each && goesBefore(each, other)));
    // Where each goes before another one their keys are told apart by `ownersOf`, or refused there.
    ordered.push(...left.splice(Math.max(at, 0), 1));
  }
  return ordered;
}

interface Run {
  readonly range: KeyRange;
  /** Undefined: nobody. */
  readonly from: ShardId | undefined;
}

/** Ranges of keys with one owner, side by side, as long as they can be. */
function runsOf(claimants: readonly Claimant[]): Run[] {
  const runs: Run[] = [];
  for (const range of piecesOf(claimants.map((each) => each.range))) {
    const from = ownerOf(claimants, range);
    const before = runs.at(-1);
    if (before !== undefined && before.from === from)
      runs[runs.length - 1] = { range: { first: before.range.first, last: range.last }, from };
    else runs.push({ range, from });
  }
  return runs;
}

/** All keys, cut where a range begins or ends. */
function piecesOf(ranges: readonly KeyRange[]): KeyRange[] {
  const firsts = new Set<Key>([0]);
  for (const { first, last } of ranges) {
    firsts.add(first);
    if (last < keyMax) firsts.add(last + 1);
  }
  const sorted = [...firsts].sort((a, b) => a - b);
  return sorted.map((first, i) => ({ first, last: (sorted[i + 1] ?? keyMax + 1) - 1 }));
}

function ownerOf(claimants: readonly Claimant[], range: KeyRange): ShardId | undefined {
  const here = claimants.filter((each) => inRange(each.range, range.first));
  if (here.length === 0) return undefined;
  const first = here.filter((each) => !here.some((other) => other !== each && goesBefore(other, each)));
  const [owner] = first;
  if (owner !== undefined && first.length === 1) return owner.shard;
  const names = here.map(({ shard }) => shard).join(" and ");
  throw new HopError(
    "HASH_MISMATCH",
    `Cannot tell which of shards ${names} has the keys ${rangeText(range)}: neither comes from the other`,
  );
}

/** Whether `a` has what `b` had. Where each comes from the other, the left one took the right one in. */
function goesBefore(a: Claimant, b: Claimant): boolean {
  if (!a.ancestors.includes(b.shard)) return false;
  return !b.ancestors.includes(a.shard) || a.range.first < b.range.first;
}
