/** What placement can be asked, and what it answers. Each is safe to send again: a repeat finds the outcome of the first. */
import type { Barrier, Index, Key, NodeId, Rejection, RequestId, ShardId, Term } from "#core/base";
import type { Identity, NodeInfo } from "#proto";
import type { SetEntry } from "./entry.ts";
import type { Deploy, Route } from "./registry.ts";
import type { ReplicaSet } from "./shard-entry.ts";

/** Makes the cluster, of one node (number 1) that holds every replica. */
export interface Bootstrap {
  readonly kind: "bootstrap";
  readonly clusterId: string;
  readonly info: NodeInfo;
  /** Left out: 3. */
  readonly replicationWanted?: number;
  /** Data shards to begin with; left out: 1. */
  readonly shards?: number;
}

/**
 * A node wants in, or says what it is now (`node`: the id it has). A new node is told by its
 * disk: a repeat gets the same id. Another member under its peer address counts as lost.
 */
export interface Join {
  readonly kind: "join";
  /** Of the cluster that it belongs to or was told of; left out: any. */
  readonly clusterId?: string;
  readonly node?: NodeId;
  readonly info: NodeInfo;
}

/** The node gives its replicas away and is removed then. */
export interface Leave {
  readonly kind: "leave";
  readonly node: NodeId;
}

/** The node does not come back. While it holds replicas it counts as lost, and is removed when they are replaced. */
export interface Remove {
  readonly kind: "remove";
  readonly node: NodeId;
}

/**
 * A leader asks for its leadership lease. Refused with NOT_LEADER where a later term has one,
 * NOT_A_MEMBER where the node has no vote, SHARD_NOT_FOUND where the shard is none.
 */
export interface Lease {
  readonly kind: "lease";
  readonly shard: ShardId;
  readonly node: NodeId;
  readonly term: Term;
  /** The shard came to be by a split: its first lease is what tells placement so. */
  readonly born?: {
    readonly parent: ShardId;
    readonly at: Key;
    /** The child's members; left out: those of the parent that placement knows. */
    readonly replicas?: ReplicaSet;
  };
  /** Asked before the election: the split is committed, and this node is about to stand for the child's first term. */
  readonly isAhead?: boolean;
}

/** The group's configuration as of `configIndex` of its log. An older one than is known changes nothing. */
export interface ReplicasChangedReport {
  readonly kind: "replicas-changed";
  readonly shard: ShardId;
  readonly replicas: ReplicaSet;
}

export interface WantReplicas {
  readonly kind: "want-replicas";
  readonly shard: ShardId;
  /** 1, 3, 5 or 7 nodes. */
  readonly nodes: readonly NodeId[];
}

export interface WantSplit {
  readonly kind: "want-split";
  readonly shard: ShardId;
  /** First key of the new shard. */
  readonly at: Key;
}

/** Where the two have other nodes, those of the right one are moved first: ask again then. */
export interface WantMerge {
  readonly kind: "want-merge";
  readonly left: ShardId;
  readonly right: ShardId;
}

/** The right one decides nothing after `through`, and all its replicas have applied that. This decides the merge. */
export interface MergeFrozen {
  readonly kind: "merge-frozen";
  readonly left: ShardId;
  readonly right: ShardId;
  /** Number of the change under which it froze. */
  readonly change: number;
  readonly through: Index;
  /** Of the right one's leadership lease. */
  readonly epoch: number;
}

/** The left one's log has taken the right one in. */
export interface MergeDoneReport {
  readonly kind: "merge-done";
  readonly left: ShardId;
  readonly right: ShardId;
}

export interface MergeCancel {
  readonly kind: "merge-cancel";
  readonly left: ShardId;
  readonly right: ShardId;
}

/**
 * Gives up a split or merge of the shard. A split only its leader can give up, for it alone
 * knows that its log does not hold it: `epoch` is that of its leadership lease.
 */
export interface CancelChange {
  readonly kind: "cancel-change";
  readonly shard: ShardId;
  readonly epoch?: number;
  readonly reason?: string;
}

export interface SetReplication {
  readonly kind: "set-replication";
  /** 1, 3, 5 or 7. */
  readonly count: number;
  /** For people. */
  readonly reason?: string;
}

export type PlacementCommand =
  | Bootstrap
  | Join
  | Leave
  | Remove
  | Lease
  | ReplicasChangedReport
  | WantReplicas
  | WantSplit
  | WantMerge
  | MergeFrozen
  | MergeDoneReport
  | MergeCancel
  | CancelChange
  | SetReplication
  | ({ readonly kind: "set-entry" } & SetEntry)
  | { readonly kind: "deploy"; readonly namespace: string; readonly deploy: Deploy }
  | { readonly kind: "route"; readonly namespace: string; readonly route: Route };

export interface PlacementInput {
  readonly nowMs: number;
  readonly request: RequestId;
  readonly identity: Identity;
  readonly command: PlacementCommand;
}

export type PlacementReply =
  | { readonly kind: "done" }
  /** `objects` and `restoreEpoch` of a cluster that was rebuilt from object storage. */
  | {
      readonly kind: "joined";
      readonly clusterId: string;
      readonly node: NodeId;
      readonly objects?: string;
      readonly restoreEpoch?: number;
    }
  /** `version`: whoever leads under this lease acts on no view older than this. */
  | { readonly kind: "leased"; readonly epoch: number; readonly version: number }
  | { readonly kind: "split"; readonly child: ShardId; readonly change: number }
  /** `change` 0: the replicas of the right one are moved first. */
  | { readonly kind: "merge"; readonly change: number }
  /** Not `gone`: it still holds replicas. */
  | { readonly kind: "removed"; readonly gone: boolean }
  /** Of an entry, or of a deployment. */
  | { readonly kind: "version"; readonly version: number }
  | { readonly kind: "rejected"; readonly rejection: Rejection };

/** Answers a request once its barrier is reached. */
export interface PlacementEffect {
  readonly kind: "reply";
  readonly request: RequestId;
  readonly reply: PlacementReply;
  readonly after: Barrier;
}
