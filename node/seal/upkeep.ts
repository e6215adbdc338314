/** What is done about sealed logs beside sealing them, put together for a node and for the simulator. */
import { asShardId, HopError, type Index, type ShardId } from "#core/base";
import type { RetiredShard } from "#core/placement";
import type { ShardReplica } from "../replica/shard-replica.ts";
import { firstRestoreEpoch } from "../restore/claims.ts";
import { ArchiveKeeper, type ArchiveOwner } from "./archive-keeper.ts";
import { BlobUploader } from "./blob-uploader.ts";
import { type Compaction, Compactor } from "./compaction.ts";
import { Garbage, type GarbagePolicy, garbageDefault } from "./compaction-garbage.ts";
import { type CompactionPolicy, compactionDefault } from "./compaction-plan.ts";
import { expirableShards, Retention, type RetentionParts } from "./retention.ts";
import { type SealingParts, sealableShards } from "./sealing.ts";

/** Looks at what is sealed come once in so many of those at what is to be sealed: once a minute. */
const seldom = 60;
const lookMsUsual = 60_000;

/** How often, and how much of it; what is left out is as usual. */
export interface UpkeepPace {
  readonly lookMs?: number;
  readonly compaction?: CompactionPolicy;
  readonly garbage?: GarbagePolicy;
}

/** Where objects are to go away sooner than usual, everything is looked at more often. */
export function upkeepPaceOf(graceMs = garbageDefault.graceMs): UpkeepPace {
  const { everyMs, manifestsKept } = garbageDefault;
  const garbage = { graceMs, everyMs: Math.min(everyMs, graceMs), manifestsKept };
  return graceMs >= lookMsUsual ? { garbage } : { garbage, lookMs: Math.max(1000, graceMs) };
}

export interface UpkeepParts extends SealingParts {
  readonly retired: (shard: ShardId) => RetiredShard | undefined;
  /** Others who read the log have read it through here. */
  readonly readThrough: (shard: ShardId) => Index;
  /** Policies of namespaces, and the runs that they are about; left out: histories are kept for ever. */
  readonly retention?: Pick<RetentionParts, "namespaces" | "runs">;
  readonly pace?: UpkeepPace;
}

export interface Upkeep {
  /** Merges sealed segments of a shard that is led here, once, where any two are worth it. Rejects with NOT_LEADER, STORE_UNAVAILABLE. */
  compact(shard: ShardId): Promise<Compaction | undefined>;
  start(): void;
  stop(): void;
}

export function upkeepOf(parts: UpkeepParts): Upkeep {
  const { replicas, policy, cold, pace } = parts;
  const lookMs = pace?.lookMs ?? policy.lookMs * seldom;
  const shared = { ...parts, ...cold, restoreEpoch: parts.restoreEpoch ?? firstRestoreEpoch, lookMs };
  const shards = () => sealableShards(replicas(), parts.log);
  const archives = new ArchiveKeeper({
    ...shared,
    bytesMax: policy.bytesMax,
    owners: function* () {
      for (const replica of replicas().all()) {
        const owner = ownerOf(replica);
        if (owner !== undefined) yield owner;
      }
    },
    hasReplica: (shard) => replicas().get(shard) !== undefined,
  });
  const compactor = new Compactor({
    ...shared,
    shards,
    policy: pace?.compaction ?? compactionDefault,
    hasExpired: () => parts.retention?.runs.hasExpired() ?? false,
    garbage: new Garbage({ ...shared, ...(pace?.garbage ?? garbageDefault) }),
  });
  const retention =
    parts.retention === undefined
      ? undefined
      : new Retention({
          ...shared,
          ...parts.retention,
          shards: () => expirableShards(replicas()),
          expired: (shard, index) => compactor.expired(shard, index),
        });
  const blobs = new BlobUploader({ ...parts, uploads: parts.blobs, shards });
  return {
    compact: async (wanted) => {
      const shard = [...shards()].find((each) => each.shard === wanted);
      if (shard === undefined) throw new HopError("NOT_LEADER", `Shard ${wanted} is not led here`);
      if (!parts.isReady())
        throw new HopError("STORE_UNAVAILABLE", `Cannot compact shard ${wanted}: object storage can't be used now`, { retryAfterMs: 1000 });
      return compactor.compact(shard, { ...compactionDefault, segmentsMin: 2 });
    },
    start: () => {
      archives.start();
      compactor.start();
      retention?.start();
      blobs.start();
    },
    stop: () => {
      archives.stop();
      compactor.stop();
      retention?.stop();
      blobs.stop();
    },
  };
}

/** The shard with the logs that its histories lead into, where it is led here. */
function ownerOf({ host, shard, replica }: ShardReplica): ArchiveOwner | undefined {
  if (host === undefined) return undefined;
  const { machine } = replica;
  const { first, last, epoch, ancestor } = machine.header();
  return { shard, range: { first, last }, epoch, clockMs: machine.clockMs, ancestors: ancestor.map(asShardId) };
}
