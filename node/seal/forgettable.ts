/**
 * How far the replicas of a shard may forget its log, once a manifest is published: as far as a node
 * that has lost its states could come by them from object storage and what its logs still hold.
 *
 * A split hands keys from a shard's log to another's. A child's log alone is worth nothing before its
 * parent's uploaded states are behind the split, and a parent's log may not be forgotten past the
 * split before the child's states are uploaded: else nobody could give birth to the child again.
 */
import { overlaps, type ShardId } from "#core/base";
import type { Manifest, ObjectTier } from "#store";

export interface Relative {
  readonly shard: ShardId;
  readonly ancestors: readonly number[];
}

export interface ForgettableParts {
  readonly tier: Pick<ObjectTier, "newest">;
  /** Replicas on this node. */
  readonly relatives: () => Iterable<Relative>;
  /** The shard was merged away: its log ends, and nobody leads it. */
  readonly isRetired: (shard: ShardId) => boolean;
}

/** Index through which states lie in object storage that lead on; `before` where the new ones do not yet. */
export async function forgettable(
  parts: ForgettableParts,
  { manifest, before }: { readonly manifest: Manifest; readonly before: number },
): Promise<number> {
  const { shard, checkpoint, range, ancestors } = manifest;
  if (checkpoint === undefined) return before;
  for (const ancestor of ancestors) {
    if (ancestor === shard || parts.isRetired(ancestor)) continue;
    const states = (await parts.tier.newest(ancestor))?.manifest.checkpoint;
    if (states === undefined || overlaps(states.range, range)) return before;
  }
  for (const relative of parts.relatives()) {
    if (relative.shard === shard || !relative.ancestors.includes(shard)) continue;
    if ((await parts.tier.newest(relative.shard))?.manifest.checkpoint === undefined) return before;
  }
  return Math.max(before, checkpoint.appliedIndex);
}
