/** What a node's replicas share, and what they need of the rest of it. */
import type { Hasher, Index, NodeId, Rejection, ShardId, Term } from "#core/base";
import type { ReplicaSet, RetiredShard, ShardEntry } from "#core/placement";
import type { Message } from "#core/raft";
import type { CheckpointStore, LogStore, SegmentStore } from "#store";
import type { HotTails } from "../seal/hot-tails.ts";
import type { Mail, Note, ShardHost } from "../shard/shard-host.ts";
import type { Timing } from "../timing.ts";
import type { ShardReplica } from "./shard-replica.ts";
import type { TrimPolicy } from "./trim.ts";

/** What the replicas of a node share. */
export interface ReplicaSurroundings {
  readonly self: NodeId;
  readonly log: LogStore;
  readonly checkpoint: CheckpointStore;
  readonly segments: SegmentStore;
  readonly hasher: Hasher;
  readonly timing: Timing;
  readonly draw: (below: number) => number;
  readonly note: Note;
  readonly send: (shard: ShardId, message: Message) => void;
  readonly mail: Mail;
  /** A bug stopped a replica: what the node would do next can't be trusted. */
  readonly onFault: (cause: Error) => void;
  readonly placement: PlacementDoor;
  readonly shards: ShardNeighbours;
  /** What is sealed may be forgotten so; left out where there is no object storage. */
  readonly trimming?: TrimPolicy | undefined;
  readonly tails?: HotTails | undefined;
  readonly orphanGraceMs?: number;
  readonly idleMs?: number;
  /** See `ShardOptions`. */
  readonly keyRetentionMs?: number;
}

/** Leave to lead. Whoever leads under it acts on no view of placement that is older than `version`. */
export interface Lease {
  readonly epoch: number;
  readonly version: number;
}

export interface AskedLease {
  readonly shard: ShardId;
  readonly term: Term;
  /** The shard's members as this one knows them. */
  readonly replicas: ReplicaSet;
}

/** What replicas ask of placement and tell it. Answers may be lost: whatever matters is asked again. */
export interface PlacementDoor {
  /** Asks for leave to lead. `done` gets the lease's epoch, or why there is none now. */
  lease(asked: AskedLease, done: (result: Lease | Rejection) => void): void;
  /** The same for the first term of a child that is being born, before its election: `lease` gets it then without a wait. */
  leaseAhead(asked: AskedLease): void;
  replicasChanged(shard: ShardId, replicas: ReplicaSet): void;
  frozen(report: {
    readonly left: ShardId;
    readonly right: ShardId;
    readonly change: number;
    readonly through: Index;
    readonly epoch: number;
  }): void;
  absorbed(left: ShardId, right: ShardId): void;
  /** The shard as placement has it now; undefined where it is retired, or not known yet. */
  entry(shard: ShardId): ShardEntry | undefined;
  /** What became of a shard that was merged away; undefined where it is live, or the merge not known yet. */
  retired(shard: ShardId): RetiredShard | undefined;
  /** Version of the view that entries are of. */
  version(): number;
}

/** Other shards of this node. */
export interface ShardNeighbours {
  /** Opens the replica that a split gave this node, and lets it campaign where `campaigns`. False where what it begins with can't be read now. */
  born(child: ShardId, campaigns: boolean): boolean;
  replica(shard: ShardId): ShardReplica | undefined;
  all(): Iterable<ShardReplica>;
  /** The shard was absorbed: its replica ends, its log stays as archive. */
  retire(shard: ShardId): void;
  /** The node is no member any more. */
  removed(shard: ShardId): void;
  opened(shard: ShardId, host: ShardHost): void;
  closed(shard: ShardId): void;
  /** The shard, which is led here, decides for its neighbour's keys too. */
  widened(shard: ShardId): void;
  snapshotOffered(shard: ShardId, message: Message): void;
  /** A shard has committed further here. */
  committed(): void;
}
