/**
 * What a shard knows of itself: its keys, who leads it, whether it is frozen, and where the
 * histories of its partitions come from.
 *
 * A fold of the `ShardChange` records of its log over its birth, so it is the same on every replica.
 */
import { assert, inRange, type Key, type KeyRange, noBytes, type ShardId } from "#core/base";
import { decodeShardHeader, encodeShardHeader, fromBytes, type JoinedKeys, type ShardChange, type ShardHeader, toBytes } from "#proto";

const headerFormat = 1;

/** A value: each change makes another one, so whoever has it may keep it. */
export type Header = Readonly<ShardHeader>;

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

export function bornHeader({ range, ancestors }: ShardBirth): Header {
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

export const encodeHeader = (header: Header) => toBytes(encodeShardHeader, header);

export function decodeHeader(bytes: Uint8Array): Header {
  const header = fromBytes(decodeShardHeader, bytes);
  assert(header.format === headerFormat, `Cannot load a shard's header: format is ${header.format}, want ${headerFormat}`);
  return header;
}

/** What the child of a split begins with; `parent` is the parent's header before it. */
export function childBirth(parent: Header, split: { readonly at: number; readonly shard: ShardId; readonly clockMs: number }): ShardBirth {
  return {
    range: { first: split.at, last: parent.last },
    ancestors: sorted([...parent.ancestor, split.shard]),
    clockMs: split.clockMs,
  };
}

/** The header behind one more change. */
export function applyToHeader(header: Header, index: number, change: ShardChange): Header {
  switch (change.kind) {
    case "led":
      return { ...header, epoch: change.value.epoch, leader: change.value.node };
    case "split": {
      const last = change.value.at - 1;
      return { ...header, last, changedIndex: index, joined: clip(header.joined, { first: header.first, last }) };
    }
    case "frozen":
      return { ...header, frozenInto: change.value.into, frozenIndex: index };
    case "thawed":
      return { ...header, frozenInto: 0, frozenIndex: 0 };
    case "absorbed": {
      const { shard, last, ancestor } = change.value;
      const joined = [...header.joined, { first: header.last + 1, last, index }];
      return { ...header, joined, changedIndex: index, last, ancestor: sorted([...header.ancestor, shard, ...ancestor]) };
    }
    case "sealed": {
      const { through: sealedThrough, manifest, sha256, statesThrough } = change.value;
      return { ...header, sealedThrough, manifest, manifestSha256: sha256.slice(), statesThrough };
    }
    case "unknown":
      throw new RangeError(`Cannot apply a change of the shard at index ${index}: this version does not know its kind`);
  }
}

/** Index through which a state of the key that another shard saved is the fold of this one's log. */
export function joinedAt(header: Header, key: Key): number {
  return header.joined.find((range) => inRange(range, key))?.index ?? 0;
}

function clip(joined: readonly JoinedKeys[], within: KeyRange): JoinedKeys[] {
  const left = joined.filter(({ first }) => first <= within.last);
  return left.map((keys) => ({ ...keys, last: Math.min(keys.last, within.last) }));
}

const sorted = (shards: readonly number[]) => [...new Set(shards)].sort((a, b) => a - b);
