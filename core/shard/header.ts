/**
 * What a shard knows of itself: its keys, who leads it, whether it is frozen, and where the
 * histories of its partitions come from.
 *
 * A fold of the `ShardChange` records of its log over its birth, so it is the same on every replica.
 */
import { assert, inRange, type Key, type KeyRange, noBytes, type ShardId } from "#core/base";
import { decodeShardHeader, encodeShardHeader, fromBytes, type JoinedKeys, type ShardChange, type ShardHeader, toBytes } from "#proto";

const headerFormat = 1;

/** What a shard begins with. */
export interface ShardBirth {
  readonly range: KeyRange;
  /** Shards whose logs the histories of its partitions may lead into. */
  readonly ancestors: readonly number[];
  /** The clock of whoever had its partitions before was not past this. */
  readonly clockMs: number;
}

/** What a checkpoint keeps of the shard itself. */
export interface SavedShard {
  /** Every state is saved as of this index or later: the log is read behind it. */
  readonly appliedIndex: number;
  readonly header: Uint8Array;
  /** Log index through which it is the fold of the log. */
  readonly headerIndex: number;
  /** The shard's clock was not past this. */
  readonly clockMs: number;
}

export function bornHeader({ range, ancestors }: ShardBirth): ShardHeader {
  return {
    format: headerFormat,
    first: range.first,
    last: range.last,
    epoch: 0,
    leader: 0,
    frozenInto: 0,
    frozenIndex: 0,
    ancestor: sorted(ancestors),
    joined: [],
    changedIndex: 0,
    sealedThrough: 0,
    manifest: 0,
    manifestSha256: noBytes,
    statesThrough: 0,
  };
}

export const encodeHeader = (header: ShardHeader) => toBytes(encodeShardHeader, header);

export function decodeHeader(bytes: Uint8Array): ShardHeader {
  const header = fromBytes(decodeShardHeader, bytes);
  assert(header.format === headerFormat, `Cannot load a shard's header: format is ${header.format}, want ${headerFormat}`);
  return header;
}

/** What the child of a split begins with; `parent` is the parent's header before it. */
export function childBirth(
  parent: ShardHeader,
  split: { readonly at: number; readonly shard: ShardId; readonly clockMs: number },
): ShardBirth {
  return {
    range: { first: split.at, last: parent.last },
    ancestors: sorted([...parent.ancestor, split.shard]),
    clockMs: split.clockMs,
  };
}

/** Folds one change in. */
export function applyToHeader(header: ShardHeader, index: number, change: ShardChange): void {
  switch (change.kind) {
    case "led":
      header.epoch = change.value.epoch;
      header.leader = change.value.node;
      return;
    case "split":
      header.last = change.value.at - 1;
      header.changedIndex = index;
      header.joined = clip(header.joined, header);
      return;
    case "frozen":
      header.frozenInto = change.value.into;
      header.frozenIndex = index;
      return;
    case "thawed":
      header.frozenInto = 0;
      header.frozenIndex = 0;
      return;
    case "absorbed": {
      const { shard, last, ancestor } = change.value;
      header.joined.push({ first: header.last + 1, last, index });
      header.changedIndex = index;
      header.last = last;
      header.ancestor = sorted([...header.ancestor, shard, ...ancestor]);
      return;
    }
    case "sealed":
      header.sealedThrough = change.value.through;
      header.manifest = change.value.manifest;
      header.manifestSha256 = change.value.sha256.slice();
      header.statesThrough = change.value.statesThrough;
      return;
    case "unknown":
      throw new RangeError(`Cannot apply a change of the shard at index ${index}: this version does not know its kind`);
  }
}

/** Index through which a state of the key that another shard saved is the fold of this one's log. */
export function joinedAt(header: ShardHeader, key: Key): number {
  return header.joined.find((range) => inRange(range, key))?.index ?? 0;
}

function clip(joined: readonly JoinedKeys[], within: KeyRange): JoinedKeys[] {
  const left = joined.filter(({ first }) => first <= within.last);
  return left.map((keys) => ({ ...keys, last: Math.min(keys.last, within.last) }));
}

const sorted = (shards: readonly number[]) => [...new Set(shards)].sort((a, b) => a - b);
