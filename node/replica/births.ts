/**
 * Shards that splits of one shard gave birth to, from the split until they are saved.
 *
 * A child's log begins as soon as the split is applied; then its part of the states, and what it begins
 * with, are saved with the first header of the parent that is behind the split, all at once: a crash in
 * between comes by the split again. Several splits may be waiting, and one header may be behind all of them.
 */
import { asIndex, asShardId, assert, asTerm, type ShardId } from "#core/base";
import type { ConfState } from "#core/raft";
import { type AppliedChange, bornHeader, encodeHeader } from "#core/shard";
import { encodeConfState, toBytes } from "#proto";
import type { CheckpointMeta, LogStore } from "#store";
import type { PlacementDoor } from "./surroundings.ts";

/** Where the log of a shard begins that a split made: behind an entry that nobody sees, so that a new member needs its states. */
export const birthIndex = asIndex(1);
const birthTerm = asTerm(1);
/** The first term that a child can be led in: its entry of `birthTerm` is nobody's. */
const firstTerm = asTerm(1);

interface Birth {
  readonly meta: CheckpointMeta;
  /** The log is durable so far when the child's log has begun. */
  readonly position: number;
  /** A header behind the split is saved, and with it what the child begins with. */
  isSaved: boolean;
}

interface Beginning {
  /** Index through which the log is applied. */
  readonly through: number;
  /** The parent's membership as of an index. */
  readonly membersAt: (index: number) => ConfState;
  /** The parent is led here. */
  readonly leads: boolean;
}

/** A split that was applied, with what its child begins with. */
export const isSplit = ({ change, child }: AppliedChange): boolean => change.kind === "split" && child !== undefined;

export class Births {
  private readonly log: LogStore;
  private readonly placement: Pick<PlacementDoor, "leaseAhead">;
  private readonly waiting = new Map<number, Birth>();

  constructor(log: LogStore, placement: Pick<PlacementDoor, "leaseAhead">) {
    this.log = log;
    this.placement = placement;
  }

  /** Begins the children of all splits through an index: one header may be behind several. */
  begin(changes: readonly AppliedChange[], { through, membersAt, leads }: Beginning): void {
    for (const { index, change, child } of changes) {
      if (index > through || change.kind !== "split" || child === undefined || this.waiting.has(index)) continue;
      const { log } = this;
      const shard = asShardId(change.value.child);
      const members = membersAt(index);
      if (log.base(shard).index === 0 && !log.isRemoved(shard)) log.setBase(shard, birthIndex, birthTerm);
      const header = encodeHeader(bornHeader(child));
      const conf = toBytes(encodeConfState, members);
      const meta = { shard, appliedIndex: birthIndex, clockMs: child.clockMs, conf, header, headerIndex: birthIndex };
      this.waiting.set(index, { meta, position: log.position(), isSaved: false });
      log.kick(true);
      if (leads) this.askLease(shard, members);
    }
  }

  /** Whoever leads the parent stands for the child's first term. */
  private askLease(shard: ShardId, { voters, votersOutgoing: outgoing, learners }: ConfState): void {
    const replicas = { voters, outgoing, learners, configIndex: asIndex(0) };
    this.placement.leaseAhead({ shard, term: firstTerm, replicas });
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
    const birth = this.waiting.get(index);
    assert(birth !== undefined, `what the split at ${index} gives birth to has begun before a header behind it is saved`);
    birth.isSaved = true;
  }

  isSaved(index: number): boolean {
    return this.waiting.get(index)?.isSaved === true;
  }

  over(index: number): void {
    this.waiting.delete(index);
  }

  clear(): void {
    this.waiting.clear();
  }
}
