/**
 * Which of a shard's objects are looked at for expired events, and when they are written again for
 * them: a look costs a read, and an object costs as much to write for one event as for all.
 *
 * An object is looked at once; again when more has expired and all that would tell is sealed and saved,
 * a few times a grace at most; and when the grace of what was found there is over.
 */
import type { ShardId } from "#core/base";
import type { Timing } from "../timing.ts";

export interface RemovalPlanParts {
  readonly timing: Pick<Timing, "monotonicMs">;
  /** What expired is in no object for much longer. */
  readonly graceMs: number;
}

/** How far a shard is sealed, and its states are saved. */
export interface Progress {
  readonly sealedThrough: number;
  readonly savedThrough: number;
}

/** Read by the looks of one round at one shard, about; the next one goes on. */
const lookedBytesMax = 16 << 20;
/** Looks at everything are at least this part of a grace apart. */
const turnsMax = 24;

interface Known {
  /** Since when expired events have been seen in each object. */
  readonly since: Map<string, number>;
  readonly looked: Set<string>;
  /** Read by this round. */
  bytes: number;
}

export class RemovalPlan {
  private readonly parts: RemovalPlanParts;
  private readonly known = new Map<ShardId, Known>();
  /** By shard, the log's end when histories of it expired, until it is certain that looks find them. */
  private readonly expired = new Map<ShardId, number>();
  private isStale = false;
  private turnMs = Number.NEGATIVE_INFINITY;

  constructor(parts: RemovalPlanParts) {
    this.parts = parts;
  }

  /** The shards that are led here: what was seen of others counts for nothing any more. */
  lookAfter(shards: readonly ShardId[]): void {
    for (const shard of this.known.keys()) if (!shards.includes(shard)) this.known.delete(shard);
    for (const shard of this.expired.keys()) if (!shards.includes(shard)) this.expired.delete(shard);
  }

  /** Histories of the shard expired, by events in its log through `index`. */
  note(shard: ShardId, index: number): void {
    this.expired.set(shard, index);
  }

  /** A round of looks at one shard begins; `end` is the end of its log. */
  begin(shard: ShardId, end: number, { sealedThrough, savedThrough }: Progress): void {
    // Whoever led before may have had histories expire that are not sealed yet.
    if (!this.known.has(shard)) this.note(shard, Math.max(end, this.expired.get(shard) ?? 0));
    this.of(shard).bytes = 0;
    const index = this.expired.get(shard);
    if (index !== undefined && Math.min(sealedThrough, savedThrough) >= index) {
      this.expired.delete(shard);
      this.isStale = true;
    }
    const nowMs = this.parts.timing.monotonicMs();
    if (!this.isStale || nowMs - this.turnMs < this.parts.graceMs / turnsMax) return;
    // A split's parent has older events of its child's histories: all shards are looked at again.
    for (const { looked } of this.known.values()) looked.clear();
    this.isStale = false;
    this.turnMs = nowMs;
  }

  isToLookAt(shard: ShardId, key: string, bytes: number): boolean {
    const known = this.of(shard);
    const sinceMs = known.since.get(key);
    const isOver = sinceMs !== undefined && this.isOver(sinceMs);
    if ((known.looked.has(key) && !isOver) || known.bytes >= lookedBytesMax) return false;
    known.looked.add(key);
    known.bytes += bytes;
    return true;
  }

  /** Whether the object is written again now; `isMuch` of it expired. */
  isDue(shard: ShardId, key: string, events: number, isMuch: boolean): boolean {
    const { since } = this.of(shard);
    if (events === 0) {
      since.delete(key);
      return false;
    }
    const sinceMs = since.get(key) ?? this.parts.timing.monotonicMs();
    since.set(key, sinceMs);
    if (!isMuch && !this.isOver(sinceMs)) return false;
    since.delete(key);
    return true;
  }

  /** It was not written again after all. */
  putBack(shard: ShardId, key: string): void {
    this.of(shard).looked.delete(key);
  }

  private isOver(sinceMs: number): boolean {
    return this.parts.timing.monotonicMs() - sinceMs >= this.parts.graceMs;
  }

  private of(shard: ShardId): Known {
    const known = this.known.get(shard) ?? { since: new Map<string, number>(), looked: new Set<string>(), bytes: 0 };
    this.known.set(shard, known);
    return known;
  }
}
