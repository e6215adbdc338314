/**
 * Which of a shard's objects are looked at for expired events, and when they are written again for
 * them: an object costs as much to write for one event as for all.
 *
 * Looks of one round read so many bytes at most, and go round: the next one begins where it ended.
 */
import type { ShardId } from "#core/base";
import type { Timing } from "../timing.ts";

export interface RemovalPlanParts {
  readonly timing: Pick<Timing, "monotonicMs">;
  /** What expired is in no object for longer. */
  readonly graceMs: number;
}

const lookedBytesMax = 16 << 20;

interface Known {
  /** Since when expired events have been seen in each object. */
  readonly since: Map<string, number>;
  /** Objects that were looked at in this turn. */
  readonly looked: Set<string>;
  /** Read by this round. */
  bytes: number;
}

export class RemovalPlan {
  private readonly parts: RemovalPlanParts;
  private readonly known = new Map<ShardId, Known>();

  constructor(parts: RemovalPlanParts) {
    this.parts = parts;
  }

  /** The shards that are led here: what was seen of others counts for nothing any more. */
  lookAfter(shards: readonly ShardId[]): void {
    for (const shard of this.known.keys()) if (!shards.includes(shard)) this.known.delete(shard);
  }

  /** A round of looks at one shard; those that the last one had no room for come first. */
  begin(shard: ShardId): void {
    const known = this.of(shard);
    if (known.bytes < lookedBytesMax) known.looked.clear();
    known.bytes = 0;
  }

  isToLookAt(shard: ShardId, key: string, bytes: number): boolean {
    const known = this.of(shard);
    if (known.looked.has(key) || known.bytes >= lookedBytesMax) return false;
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
    const nowMs = this.parts.timing.monotonicMs();
    const sinceMs = since.get(key) ?? nowMs;
    since.set(key, sinceMs);
    if (!isMuch && nowMs - sinceMs < this.parts.graceMs) return false;
    since.delete(key);
    return true;
  }

  private of(shard: ShardId): Known {
    const known = this.known.get(shard) ?? { since: new Map<string, number>(), looked: new Set<string>(), bytes: 0 };
    this.known.set(shard, known);
    return known;
  }
}
