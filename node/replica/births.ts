/**
 * Shards that splits of one shard gave birth to, from the split until they are saved.
 *
 * A child's log begins as soon as the split is applied; then its part of the states, and what it begins
 * with, are saved with the first header of the parent that is behind the split, all at once: a crash in
 * between comes by the split again. Several splits may be waiting, and one header may be behind all of them.
 */
import { asIndex, asShardId, asTerm, type ShardId } from "#core/base";
import type { ConfState } from "#core/raft";
import { type AppliedChange, bornHeader, encodeHeader } from "#core/shard";
import { encodeConfState, toBytes } from "#proto";
import type { CheckpointMeta, LogStore } from "#store";

/** Where the log of a shard begins that a split made: behind an entry that nobody sees, so that a new member needs its states. */
export const birthIndex = asIndex(1);
const birthTerm = asTerm(1);

export interface Birth {
  readonly shard: ShardId;
  readonly meta: CheckpointMeta;
  /** The log is durable so far when the child's log has begun. */
  readonly position: number;
}

/** A split that was applied, with what its child begins with. */
export const isSplit = ({ change, child }: AppliedChange): boolean => change.kind === "split" && child !== undefined;

export class Births {
  private readonly log: LogStore;
  private readonly waiting = new Map<number, Birth>();
  private readonly savedSplits = new Set<number>();

  constructor(log: LogStore) {
    this.log = log;
  }

  /** The birth that the split makes, begun where it was not. `members` is the parent's membership as of the split. */
  of({ index, change, child }: AppliedChange, members: () => ConfState): Birth | undefined {
    if (change.kind !== "split" || child === undefined) return undefined;
    const known = this.waiting.get(index);
    if (known !== undefined) return known;
    const { log } = this;
    const shard = asShardId(change.value.child);
    if (log.base(shard).index === 0 && !log.isRemoved(shard)) log.setBase(shard, birthIndex, birthTerm);
    const header = encodeHeader(bornHeader(child));
    const conf = toBytes(encodeConfState, members());
    const meta = { shard, appliedIndex: birthIndex, clockMs: child.clockMs, conf, header, headerIndex: birthIndex };
    const birth = { shard, meta, position: log.position() };
    this.waiting.set(index, birth);
    log.kick(true);
    return birth;
  }

  private isBegun(birth: Birth): boolean {
    return this.log.durablePosition() >= birth.position;
  }

  /** Whether a header as of `headerIndex` may be saved: every child up to there has begun. */
  mayBeSaved(changes: readonly AppliedChange[], headerIndex: number): boolean {
    return changes.every((each) => {
      if (!isSplit(each) || each.index > headerIndex) return true;
      const birth = this.waiting.get(each.index);
      return birth !== undefined && this.isBegun(birth);
    });
  }

  /** What is to be saved with a header as of `headerIndex`. */
  savedWith(headerIndex: number): CheckpointMeta[] {
    return [...this.waiting].filter(([index]) => index <= headerIndex).map(([, { meta }]) => meta);
  }

  /** A header behind the split at `index` is saved, and with it what the child begins with. */
  saved(index: number): void {
    this.savedSplits.add(index);
  }

  isSaved(index: number): boolean {
    return this.savedSplits.has(index);
  }

  over(index: number): void {
    this.waiting.delete(index);
    this.savedSplits.delete(index);
  }

  clear(): void {
    this.waiting.clear();
    this.savedSplits.clear();
  }
}
