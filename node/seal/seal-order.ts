/**
 * In which order shards are uploaded, so that a cluster can be rebuilt from what is there at any time:
 * keys that a split gave away stay in their parent's uploaded states until the child's are there, and a
 * shard that took its neighbour in uploads states of both.
 */
import { HopError, type KeyRange, rangeText, type ShardId } from "#core/base";
import type { CheckpointEntry, ManifestLog, ObjectTier } from "#store";

export interface UploadedShards {
  readonly manifests: Pick<ManifestLog, "shards">;
  readonly tier: Pick<ObjectTier, "newest">;
}

/** Whether what the shard has given away of the keys of its uploaded states is in states that others have uploaded. */
export async function mayNarrow(
  { manifests, tier }: UploadedShards,
  before: CheckpointEntry,
  { shard, range }: { shard: ShardId; range: KeyRange },
) {
  if (before.range.last <= range.last) return true;
  let next = range.last + 1;
  const others: KeyRange[] = [];
  for (const other of await manifests.shards()) {
    if (other === shard) continue;
    const manifest = (await tier.newest(other))?.manifest;
    if (manifest?.checkpoint !== undefined && manifest.ancestors.includes(shard)) others.push(manifest.checkpoint.range);
  }
  for (const { first, last } of others.sort((a, b) => a.first - b.first)) if (first <= next && last >= next) next = last + 1;
  return next > before.range.last;
}

/** Throws `HopError` STORE_UNAVAILABLE where the saved states are of before the shard took its neighbour in. */
export function requireWhole(shard: ShardId, states: KeyRange, range: KeyRange): void {
  if (states.last >= range.last) return;
  throw new HopError(
    "STORE_UNAVAILABLE",
    `Cannot seal shard ${shard}: its saved states are of keys ${rangeText(states)}, and it has ${rangeText(range)} now`,
  );
}
