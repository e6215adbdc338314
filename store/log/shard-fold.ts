/**
 * What segments together say of a shard beside its records: the fold of their parts, oldest first.
 *
 * Opening takes a shard's state from it, an audit where its log begins, and trimming what the
 * segments behind the oldest one say without it.
 */
import { asIndex, asTerm, type Index } from "#core/base";
import type { HardState, LogBase } from "./log-store.ts";
import type { Segment } from "./segment-file.ts";
import { noBase, noState } from "./shard-log.ts";

export interface ShardFacts {
  /** There is more of it than archive. */
  readonly hasLog: boolean;
  readonly base: LogBase;
  readonly isRemoved: boolean;
  readonly state: HardState;
  readonly released: Index;
}

export interface FoldedShard extends ShardFacts {
  /** Index of the log's last record, or of its base. */
  readonly last: Index;
}

/** Oldest first. It is read from its end, and no further than something is still to be learned. */
export function foldShard(segments: readonly Segment[], shard: number): FoldedShard {
  let base: LogBase | undefined;
  let state: HardState | undefined;
  let last: number | undefined;
  let moved = 0;
  let released = 0;
  let isRemoved = false;
  let hasLog = false;
  for (let i = segments.length - 1; i >= 0; i--) {
    const { index } = segments[i] as Segment;
    const part = index.parts.get(shard);
    if (part === undefined) continue;
    hasLog ||= part.base !== undefined || part.compacted !== undefined || part.state !== undefined || part.log.length > 0;
    if (state === undefined && part.state !== undefined) {
      state = { term: asTerm(part.state.term), vote: part.state.vote, commit: asIndex(part.state.commit) };
    }
    const begins = part.compacted ?? part.base;
    if (base === undefined && begins !== undefined) {
      base = { index: asIndex(begins.index), term: asTerm(begins.term) };
      isRemoved = part.compacted === undefined && part.isRemoved;
    }
    if (last === undefined) {
      moved = Math.max(moved, part.log.at(-1)?.last ?? 0);
      last = index.last(shard, undefined);
    }
    if (released === 0) released = part.released;
    if (base !== undefined && state !== undefined && last !== undefined && released > 0) break;
  }
  base ??= noBase;
  // Where nothing was appended any more there are copies at most, and the log ends with the last of them.
  const end = Math.max(last ?? 0, moved, base.index);
  return { hasLog, base, isRemoved, state: state ?? noState, released: asIndex(released), last: asIndex(end) };
}
