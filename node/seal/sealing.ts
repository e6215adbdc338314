/** Object storage as a node uses it: what seals the shards that it leads, and where sealed histories are read. */
import { asIndex, type Hasher, type ShardId } from "#core/base";
import { type LogStore, ManifestLog, type ObjectStore, ObjectTier, type SealWork } from "#store";
import type { Replicas } from "../replica/replicas.ts";
import type { ShardReplica } from "../replica/shard-replica.ts";
import type { SnapshotStores } from "../replica/snapshot.ts";
import { firstRestoreEpoch } from "../restore/claims.ts";
import type { Note } from "../shard/shard-host.ts";
import type { Timing } from "../timing.ts";
import type { BlobUploads } from "./blob-uploads.ts";
import type { HotTails } from "./hot-tails.ts";
import type { SealPolicy } from "./seal-policy.ts";
import { type SealableShard, Sealer } from "./sealer.ts";

/** Where a cluster's objects are. */
export interface ColdStore {
  readonly objects: ObjectStore;
  readonly manifests: ManifestLog;
  readonly tier: ObjectTier;
}

/** `cluster` begins the keys of its objects. */
export function openColdStore(objects: ObjectStore, cluster: string, hasher: Hasher): ColdStore {
  const manifests = new ManifestLog(objects, cluster, hasher);
  return { objects, manifests, tier: new ObjectTier(objects, manifests) };
}

export interface SealingParts {
  readonly cold: ColdStore;
  readonly policy: SealPolicy;
  readonly bytesOf: (shard: ShardId) => number;
  readonly tails: HotTails;
  readonly node: number;
  readonly cluster: string;
  /** Left out: that of a cluster that was never rebuilt. */
  readonly restoreEpoch?: number;
  readonly log: LogStore;
  readonly states: SnapshotStores;
  readonly hasher: Hasher;
  readonly timing: Timing;
  readonly note: Note;
  readonly replicas: () => Replicas;
  readonly blobs: BlobUploads;
  /** Shards whose states are to be uploaded anew, for who seals. */
  readonly statesWanted: Set<ShardId>;
  /** Code that placement names, where this node is to upload it. */
  readonly bundles: () => Iterable<Uint8Array>;
  readonly isReady: () => boolean;
  readonly isRetired: (shard: ShardId) => boolean;
  readonly work: SealWork;
}

export function sealerOf(parts: SealingParts): Sealer {
  const { log, replicas } = parts;
  return new Sealer({
    ...parts,
    ...parts.cold,
    restoreEpoch: parts.restoreEpoch ?? firstRestoreEpoch,
    relatives: function* () {
      for (const { shard, replica } of replicas().all()) yield { shard, ancestors: replica.machine.header().ancestor };
    },
    shards: () => sealableShards(replicas(), log),
  });
}

/** The shards that are led here. */
export function* sealableShards(replicas: Replicas, log: LogStore): Generator<SealableShard> {
  for (const replica of replicas.all()) {
    const shard = sealable(replica, log);
    if (shard !== undefined) yield shard;
  }
}

/** The shard as the sealer sees it, where it is led here. */
function sealable(replica: ShardReplica, log: LogStore): SealableShard | undefined {
  const { host, shard } = replica;
  if (host === undefined) return undefined;
  const { machine } = replica.replica;
  const header = machine.header();
  return {
    shard,
    range: { first: header.first, last: header.last },
    epoch: header.epoch,
    clockMs: machine.clockMs,
    through: asIndex(Math.min(replica.replica.appliedIndex, log.durableIndex(shard))),
    header: () => machine.header(),
    record: (sealed) =>
      replica.host === host
        ? host.change((own, nowMs) => own.seal(sealed, nowMs))
        : { reject: "NOT_LEADER", message: `Shard ${shard} is not led here any more` },
  };
}
