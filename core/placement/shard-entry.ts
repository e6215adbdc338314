/** One shard as the map has it: keys, members, who leads, and what is under way. */
import {
  asIndex,
  asNodeId,
  asShardId,
  asTerm,
  type Index,
  type Key,
  type KeyRange,
  type NodeId,
  type ShardId,
  type Term,
} from "#core/base";
import { type Replicas, type RetiredShardState, ShardChangeKind, type ShardChangeState, type ShardState } from "#proto";

/** Members of a Raft group as its leader told last, each list ascending. */
export interface ReplicaSet {
  readonly voters: readonly NodeId[];
  /** Voters on their way out of a joint configuration; empty = it is not joint. */
  readonly outgoing: readonly NodeId[];
  readonly learners: readonly NodeId[];
  /** Log index of the configuration; 0 = the one that the group began with. */
  readonly configIndex: Index;
}

/** A leadership lease. */
export interface ShardLease {
  readonly node: NodeId;
  readonly term: Term;
  readonly epoch: number;
}

/** A change of keys that is wanted and not done. `change` numbers it, over the cluster. */
export type PendingChange =
  /** Keys from `at` on are to belong to `child`. */
  | { readonly kind: "split"; readonly change: number; readonly sinceMs: number; readonly at: Key; readonly child: ShardId }
  /** To take in `right`, once that is frozen. */
  | { readonly kind: "merge-left"; readonly change: number; readonly sinceMs: number; readonly right: ShardId }
  /** To freeze, and be taken in by `left`. */
  | { readonly kind: "merge-right"; readonly change: number; readonly sinceMs: number; readonly left: ShardId }
  /** Decided: owns the keys of `right` already, and is to take its log in through this index. */
  | { readonly kind: "absorb"; readonly change: number; readonly sinceMs: number; readonly right: ShardId; readonly through: Index };

export interface ShardEntry extends ReplicaSet {
  readonly shard: ShardId;
  /** Placement, shard 0, has no keys: its range means nothing. */
  readonly range: KeyRange;
  /** Nodes that are to be the voters, ascending. */
  readonly wanted: readonly NodeId[];
  /** The newest one granted. */
  readonly lease: ShardLease | undefined;
  readonly change: PendingChange | undefined;
  /** Shards whose logs the histories of this one may lead into, nearest first. */
  readonly ancestors: readonly ShardId[];
  /** When its keys changed last, or a change of them was cancelled; 0 = never. */
  readonly settledMs: number;
  /** Version of the view in which it changed last. */
  readonly version: number;
}

/** A shard that `into` has taken in; its id is not used again. */
export interface RetiredShard {
  readonly shard: ShardId;
  readonly into: ShardId;
  /** Last index of its log. */
  readonly through: Index;
  readonly version: number;
}

export const sorted = (nodes: Iterable<NodeId>): NodeId[] => [...new Set(nodes)].sort((a, b) => a - b);

export const sameNodes = (a: readonly NodeId[], b: readonly NodeId[]) => a.length === b.length && a.every((node, i) => node === b[i]);

/** May vote, so may lead. */
export const isVoter = (set: ReplicaSet, node: NodeId) => set.voters.includes(node) || set.outgoing.includes(node);

/** Nodes that hold a replica, ascending. */
export const holders = (set: ReplicaSet): NodeId[] => sorted([...set.voters, ...set.outgoing, ...set.learners]);

/** The members are the wanted ones, and no change of them is under way. */
export const isSettled = (entry: ShardEntry) =>
  entry.outgoing.length === 0 && entry.learners.length === 0 && sameNodes(entry.voters, entry.wanted);

export function saveReplicas(set: ReplicaSet): Replicas {
  return { voter: [...set.voters], outgoing: [...set.outgoing], learner: [...set.learners], configIndex: set.configIndex };
}

export function loadReplicas(saved: Replicas | undefined): ReplicaSet {
  return {
    voters: sorted((saved?.voter ?? []).map(asNodeId)),
    outgoing: sorted((saved?.outgoing ?? []).map(asNodeId)),
    learners: sorted((saved?.learner ?? []).map(asNodeId)),
    configIndex: asIndex(saved?.configIndex ?? 0),
  };
}

function saveChange(change: PendingChange): ShardChangeState {
  const { change: number, sinceMs } = change;
  const none = { change: number, sinceMs, at: 0, through: 0 };
  switch (change.kind) {
    case "split":
      return { ...none, kind: ShardChangeKind.split, at: change.at, other: change.child };
    case "merge-left":
      return { ...none, kind: ShardChangeKind.mergeLeft, other: change.right };
    case "merge-right":
      return { ...none, kind: ShardChangeKind.mergeRight, other: change.left };
    case "absorb":
      return { ...none, kind: ShardChangeKind.absorb, other: change.right, through: change.through };
  }
}

function loadChange(saved: ShardChangeState | undefined): PendingChange | undefined {
  if (saved === undefined) return undefined;
  const { change, sinceMs, at } = saved;
  const other = asShardId(saved.other);
  switch (saved.kind) {
    case ShardChangeKind.split:
      return { kind: "split", change, sinceMs, at, child: other };
    case ShardChangeKind.mergeLeft:
      return { kind: "merge-left", change, sinceMs, right: other };
    case ShardChangeKind.mergeRight:
      return { kind: "merge-right", change, sinceMs, left: other };
    case ShardChangeKind.absorb:
      return { kind: "absorb", change, sinceMs, right: other, through: asIndex(saved.through) };
    default:
      return undefined;
  }
}

export function saveShard(entry: ShardEntry): ShardState {
  const { lease } = entry;
  return {
    shard: entry.shard,
    first: entry.range.first,
    last: entry.range.last,
    replicas: saveReplicas(entry),
    wanted: [...entry.wanted],
    leaseNode: lease?.node ?? 0,
    leaseTerm: lease?.term ?? 0,
    leaseEpoch: lease?.epoch ?? 0,
    change: entry.change === undefined ? undefined : saveChange(entry.change),
    ancestor: [...entry.ancestors],
    settledMs: entry.settledMs,
    version: entry.version,
  };
}

export function loadShard(saved: ShardState): ShardEntry {
  const hasLease = saved.leaseNode !== 0;
  return {
    ...loadReplicas(saved.replicas),
    shard: asShardId(saved.shard),
    range: { first: saved.first, last: saved.last },
    wanted: saved.wanted.map(asNodeId),
    lease: hasLease ? { node: asNodeId(saved.leaseNode), term: asTerm(saved.leaseTerm), epoch: saved.leaseEpoch } : undefined,
    change: loadChange(saved.change),
    ancestors: saved.ancestor.map(asShardId),
    settledMs: saved.settledMs,
    version: saved.version,
  };
}

export const saveRetired = (retired: RetiredShard): RetiredShardState => ({ ...retired });

export function loadRetired(saved: RetiredShardState): RetiredShard {
  const { version } = saved;
  return { shard: asShardId(saved.shard), into: asShardId(saved.into), through: asIndex(saved.through), version };
}
