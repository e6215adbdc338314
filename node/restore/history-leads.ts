/** How far the histories of a shard's saved states lead into logs of others. */
import { asShardId, type KeyRange, type ShardId } from "#core/base";
import { decodeRunState, fromBytes } from "#proto";
import type { CheckpointStore } from "#store";

const batchBytes = 1 << 20;

/** By shard, the last record of its log that a state of the range says its history goes on from. */
export async function historyLeads(checkpoint: CheckpointStore, shard: ShardId, range: KeyRange): Promise<Map<ShardId, number>> {
  const leads = new Map<ShardId, number>();
  const saved = checkpoint.exportRange(shard, range);
  try {
    for (const batch of saved.batches(batchBytes)) {
      for (const { state, shard: savedBy } of batch) {
        const { lastIndex, lastShard } = fromBytes(decodeRunState, state);
        const log = lastShard === 0 ? savedBy : asShardId(lastShard);
        if (log !== shard && lastIndex > (leads.get(log) ?? 0)) leads.set(log, lastIndex);
      }
      // Signs of life are shown in between.
      await new Promise<void>((resolve) => setImmediate(resolve));
    }
  } finally {
    saved.close();
  }
  return leads;
}
