/**
 * How large the shards are that are led here: their states are counted by walking them, a few at a time.
 *
 * A walk takes some microseconds for each run, and nobody waits for what it finds; so it rests for most of
 * the time, and commits go on in between.
 */
import { doIfAvailable, type Key, type KeyRange, type ShardId } from "#core/base";
import type { CheckpointStore } from "#store";
import type { Timing } from "../timing.ts";

export interface ShardSize {
  readonly bytes: number;
  readonly partitions: number;
  /** A key that halves them; left out where no key does. */
  readonly splitAt?: Key;
}

export interface ShardSizesParts {
  readonly checkpoint: Pick<CheckpointStore, "sizeOf" | "keyAt">;
  readonly timing: Timing;
  /** Keys of a shard that is led here; undefined for any other. */
  readonly rangeOf: (shard: ShardId) => KeyRange | undefined;
}

/** States that are walked in one go: about a millisecond. */
const sliceRows = 256;
/** A walk rests for so many times what it takes. */
const restShare = 20;
/** A size is good for so long. */
const everyMs = 20_000;

interface Slice extends KeyRange {
  readonly partitions: number;
}

interface Walk {
  readonly shard: ShardId;
  readonly range: KeyRange;
  readonly slices: Slice[];
  /** Where the next slice begins. */
  first: Key;
  bytes: number;
}

interface Known {
  readonly size: ShardSize;
  readonly range: KeyRange;
  readonly atMs: number;
}

export class ShardSizes {
  private readonly parts: ShardSizesParts;
  private readonly known = new Map<ShardId, Known>();
  private readonly wanted = new Set<ShardId>();
  private isWalking = false;

  constructor(parts: ShardSizesParts) {
    this.parts = parts;
  }

  /** As of seconds ago; undefined where it is not known for the keys that the shard has now. Where it is old or unknown it is counted anew. */
  of(shard: ShardId): ShardSize | undefined {
    const range = this.parts.rangeOf(shard);
    if (range === undefined) return undefined;
    const found = this.known.get(shard);
    const known = found !== undefined && isSame(found.range, range) ? found : undefined;
    if (known === undefined || this.parts.timing.monotonicMs() - known.atMs >= everyMs) {
      this.wanted.add(shard);
      this.walkNext();
    }
    return known?.size;
  }

  /** One walk at a time, each in its turn. */
  private walkNext(): void {
    if (this.isWalking) return;
    for (const shard of this.wanted) {
      this.wanted.delete(shard);
      const range = this.parts.rangeOf(shard);
      if (range === undefined) continue;
      this.isWalking = true;
      this.goOn({ shard, range, slices: [], first: range.first, bytes: 0 });
      return;
    }
  }

  /** It ends with the lead: the shard has no keys here then. */
  private goOn(walk: Walk): void {
    this.parts.timing.after(0, () => {
      const { timing, rangeOf } = this.parts;
      const range = rangeOf(walk.shard);
      const begunMs = timing.monotonicMs();
      const isOn = range !== undefined && isSame(range, walk.range) && doIfAvailable(() => this.step(walk));
      timing.after((timing.monotonicMs() - begunMs) * restShare, () => {
        if (isOn && walk.first <= walk.range.last) return this.goOn(walk);
        this.isWalking = false;
        this.walkNext();
      });
    });
  }

  private step(walk: Walk): void {
    const { checkpoint, timing } = this.parts;
    const { first, range, slices } = walk;
    const last = checkpoint.keyAt({ first, last: range.last }, sliceRows - 1) ?? range.last;
    const { partitions, bytes } = checkpoint.sizeOf({ first, last });
    slices.push({ first, last, partitions });
    walk.bytes += bytes;
    if (last >= range.last) this.known.set(walk.shard, { size: this.sizeOf(walk), range, atMs: timing.monotonicMs() });
    walk.first = last + 1;
  }

  private sizeOf({ range, slices, bytes }: Walk): ShardSize {
    const partitions = slices.reduce((sum, each) => sum + each.partitions, 0);
    let before = Math.floor(partitions / 2);
    const middle = slices.find((slice) => {
      if (before < slice.partitions) return true;
      before -= slice.partitions;
      return false;
    });
    const splitAt = middle === undefined ? undefined : this.parts.checkpoint.keyAt(middle, before);
    return splitAt === undefined || splitAt <= range.first ? { bytes, partitions } : { bytes, partitions, splitAt };
  }
}

const isSame = (a: KeyRange, b: KeyRange) => a.first === b.first && a.last === b.last;
