/** Asks the leader of a shard to merge its sealed segments, one merge at a time, wherever it is. */
import { asShardId, HopError, type NodeId, type ShardId } from "#core/base";
import {
  type CompactionStep,
  decodeCompactionStep,
  decodeCompactShardRequest,
  encodeCompactionStep,
  encodeCompactShardRequest,
  fromBytes,
  toBytes,
} from "#proto";
import type { PeerNet } from "../peer/peer-net.ts";
import type { Compaction } from "./compaction.ts";

const compactCall = "shard.compact";
/** One merge downloads what it merges, and uploads as much. */
const mergeMsMax = 15 * 60_000;

/** `compact` merges once, and resolves with undefined where nothing more is worth it. */
export function serveCompaction(net: PeerNet, compact: (shard: ShardId) => Promise<Compaction | undefined>): void {
  net.serve(compactCall, async (_, body) => {
    const { shard } = fromBytes(decodeCompactShardRequest, body);
    const done = await compact(asShardId(shard));
    return toBytes(encodeCompactionStep, done ?? {});
  });
}

/** Undefined where nothing more is worth it. Rejects with what the leader says. */
export async function askCompaction(
  net: PeerNet,
  { leader, shard, gone }: { readonly leader: NodeId; readonly shard: ShardId; readonly gone: AbortSignal },
): Promise<CompactionStep | undefined> {
  const body = toBytes(encodeCompactShardRequest, { shard });
  const step = fromBytes(decodeCompactionStep, await net.call(leader, compactCall, body, { timeoutMs: mergeMsMax, signal: gone }));
  return step.segments === 0 ? undefined : step;
}

/** Why a node without object storage merges nothing. */
export const nothingSealed = (shard: ShardId) =>
  new HopError(
    "BAD_REQUEST",
    `Cannot compact shard ${shard}: the node that leads it was started without --object-store, so nothing is sealed`,
  );
