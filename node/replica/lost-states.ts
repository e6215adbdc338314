/**
 * Shards whose states are lost on this node and can't be had from their own log alone: it begins behind
 * some, or tells of keys that came and went.
 *
 * They take the states that object storage has, one shard after the other, parents before their
 * children: where a parent's uploaded states are of before a split, its log gives birth to the child
 * again, and what object storage has of the child would be in the way.
 */
import { asIndex, type KeyRange, type ShardId } from "#core/base";
import { changeOf } from "#core/shard";
import type { LogStore } from "#store";
import type { Note } from "../shard/shard-host.ts";
import type { Timing } from "../timing.ts";

/** The node may have gone on meanwhile, so that these states are of no use any more. */
export type MayTakeStates = (index: number, range: KeyRange) => boolean;

/**
 * Saves the states that object storage has of a shard, where `mayTake` lets it when they are there;
 * resolves with false where there are none.
 */
export type StoredStatesOf = (shard: ShardId, mayTake: MayTakeStates) => Promise<boolean>;

export interface LostStatesParts {
  readonly log: LogStore;
  readonly timing: Timing;
  readonly note: Note;
  readonly storedStates: StoredStatesOf | undefined;
  /** The node is stopping, or the shard is open or gone. */
  readonly isOver: (shard: ShardId) => boolean;
  /** A replica here has keys of the range. */
  readonly isTaken: (range: KeyRange) => boolean;
  readonly open: (shard: ShardId) => void;
}

/** Object storage that did not answer is asked again. */
const againMs = 2000;

export class LostStates {
  /**
   * Shards whose turn is not over. Until then none may be begun anew here: two snapshots of one shard may
   * not mix, and a shard that one of these will give birth to would lose what it has acknowledged.
   */
  private pending: readonly ShardId[] = [];
  /** What object storage has of the first of them does not go with its log. */
  private isOfNoUse = false;
  private readonly parts: LostStatesParts;

  constructor(parts: LostStatesParts) {
    this.parts = parts;
  }

  /** Opens at once what its own log brings back, and returns the others, in the order in which they are to be recovered. */
  openWhole(shards: readonly ShardId[]): ShardId[] {
    const { log, open, storedStates } = this.parts;
    const left: ShardId[] = [];
    for (const shard of [...shards].sort((a, b) => a - b)) {
      const isWhole = log.base(shard).index === 0 && (storedStates === undefined || !this.tellsOfKeys(shard));
      if (isWhole) open(shard);
      else left.push(shard);
    }
    return left;
  }

  /** Whether a leader's snapshot of the shard may be taken: of a shard whose turn it is only if object storage has nothing of use. */
  mayBeSent(shard: ShardId): boolean {
    return this.pending.length === 0 || (this.pending[0] === shard && this.isOfNoUse);
  }

  /** Its log alone does not lead to its states. */
  isLost(shard: ShardId): boolean {
    return this.pending.includes(shard);
  }

  async recover(shards: readonly ShardId[]): Promise<void> {
    if (this.parts.storedStates === undefined) return;
    this.pending = shards;
    for (const shard of shards) {
      while (!(await this.one(shard))) await new Promise<void>((resolve) => void this.parts.timing.after(againMs, resolve));
      this.pending = this.pending.slice(1);
    }
  }

  /** False where it is to be tried again. */
  private async one(shard: ShardId): Promise<boolean> {
    const { log, storedStates, note, open, isOver, isTaken } = this.parts;
    if (isOver(shard)) return true;
    let isInTheWay = false;
    let isOfLog = true;
    this.isOfNoUse = false;
    const mayTake: MayTakeStates = (index, range) => {
      isInTheWay = isTaken(range);
      isOfLog = index >= log.base(shard).index && index <= log.durableIndex(shard);
      return !isOver(shard) && !isInTheWay && isOfLog;
    };
    try {
      const isThere = storedStates !== undefined && (await storedStates(shard, mayTake));
      if (isThere) note("info", "states were lost here, and taken from object storage", { shard });
      // Without any the log has to do, where it is whole; else the shard's leader has them, or its parent gives birth to it.
      if ((isThere || log.base(shard).index === 0) && !isOver(shard)) open(shard);
      return true;
    } catch (error) {
      if (isInTheWay || isOver(shard)) return true;
      this.isOfNoUse = !isOfLog;
      note("warn", "states were lost here, and can't be taken from object storage yet", { shard, reason: String(error) });
      return false;
    }
  }

  /** Keys came or went: the log alone does not say what states they had, or another shard's log goes on from it. */
  private tellsOfKeys(shard: ShardId): boolean {
    for (const { kind, body } of this.parts.log.replay(shard, asIndex(1))) {
      const change = kind === "data" && body.length > 0 ? changeOf(body) : undefined;
      if (change?.kind === "split" || change?.kind === "absorbed") return true;
    }
    return false;
  }
}
