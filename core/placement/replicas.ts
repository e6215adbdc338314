/** Who holds a shard and who leads it: leadership leases, and members wanted and reported. */
import { asNodeId, type NodeId, type ShardId } from "#core/base";
import { EventKind } from "#proto";
import type { Lease, ReplicasChangedReport, WantReplicas } from "./command.ts";
import { type Decided, type Decision, decided, done, onMap, refused } from "./decision.ts";
import type { PlacementState } from "./placement-state.ts";
import { holders, isVoter, loadReplicas, type ReplicaSet, type ShardEntry, sameNodes, saveReplicas, sorted } from "./shard-entry.ts";

export const busyRetryMs = 1000;
/** The first that a group can have a leader in. */
const firstTerm = 1;

export function shardMissing(state: PlacementState, shard: ShardId, what: string): Decision {
  const retired = state.map.retired.get(shard);
  const why = retired === undefined ? "there is no such shard" : `it is part of shard ${retired.into} now`;
  return refused("SHARD_NOT_FOUND", `Cannot ${what} shard ${shard}: ${why}`, { epoch: state.map.epoch });
}

export function decideLease(state: PlacementState, command: Lease): Decision {
  const entry = state.map.shards.get(command.shard);
  if (entry === undefined)
    return command.born === undefined ? shardMissing(state, command.shard, "lead") : decideBirth(state, command, command.born);
  const barred = leaderProblem(state, command, entry);
  if (barred !== undefined) return barred;
  const { lease } = entry;
  if (lease !== undefined && lease.term === command.term && lease.node === command.node)
    return decided({ kind: "leased", epoch: lease.epoch, version: 0 });
  if (lease !== undefined && (lease.term > command.term || (lease.term === command.term && !isOutvoted(entry, command))))
    return refused(
      "NOT_LEADER",
      `Cannot lead shard ${command.shard}: its term is ${command.term}, node ${lease.node} has a lease of term ${lease.term}`,
    );
  return grant(state, command);
}

/**
 * The lease of a child's first term may have been asked for ahead, by a node that was then not elected: one that was
 * gets the next epoch. Nobody is ever elected under the one before, since a term has one leader.
 */
function isOutvoted({ lease, ancestors }: ShardEntry, { term, isAhead }: Lease): boolean {
  return isAhead !== true && lease?.term === term && term === firstTerm && ancestors.length > 0;
}

/** The child of a split asks for the first time: with its lease the map learns that the split happened. */
function decideBirth(state: PlacementState, command: Lease, born: NonNullable<Lease["born"]>): Decision {
  const parent = state.map.shards.get(born.parent);
  const change = parent?.change;
  if (parent === undefined || change?.kind !== "split" || change.child !== command.shard || change.at !== born.at)
    return shardMissing(state, command.shard, "lead");
  const replicas = born.replicas ?? { ...parent, configIndex: 0 as ReplicaSet["configIndex"] };
  const barred = replicasProblem(state, command.shard, replicas) ?? leaderProblem(state, command, replicas);
  if (barred !== undefined) return barred;
  const body = { shard: born.parent, at: born.at, child: command.shard, replicas: saveReplicas(loadReplicas(saveReplicas(replicas))) };
  return grant(state, command, onMap({ kind: EventKind.splitDone, body }));
}

function grant(state: PlacementState, { shard, node, term }: Lease, ...before: Decided[]): Decision {
  const epoch = state.map.leaseEpoch + 1;
  const event = onMap({ kind: EventKind.leadershipGranted, body: { shard, node, term, epoch } });
  return decided({ kind: "leased", epoch, version: 0 }, ...before, event);
}

function leaderProblem(state: PlacementState, { shard, node }: Lease, replicas: ReplicaSet): Decision | undefined {
  const standing = state.nodes.get(node)?.standing;
  const why =
    standing === undefined
      ? "it is no member of the cluster"
      : standing === "removed"
        ? "it was removed from the cluster"
        : isVoter(replicas, node)
          ? undefined
          : `it has no vote: the voters are ${replicas.voters.join(", ")}`;
  return why === undefined ? undefined : refused("NOT_A_MEMBER", `Cannot give node ${node} the lead of shard ${shard}: ${why}`);
}

export function decideReplicasChanged(state: PlacementState, command: ReplicasChangedReport): Decision {
  const entry = state.map.shards.get(command.shard);
  if (entry === undefined) return shardMissing(state, command.shard, "change the replicas of");
  const replicas = loadReplicas(saveReplicas(command.replicas));
  if (replicas.configIndex <= entry.configIndex) return decided(done);
  const problem = replicasProblem(state, command.shard, replicas);
  if (problem !== undefined) return problem;
  const now = holders(replicas);
  const removed = holders(entry).filter((node) => !now.includes(node));
  const body = { shard: command.shard, replicas: saveReplicas(replicas), removed };
  return decided(done, onMap({ kind: EventKind.replicasChanged, body }));
}

function replicasProblem(state: PlacementState, shard: ShardId, replicas: ReplicaSet): Decision | undefined {
  if (replicas.voters.length === 0) return refused("BAD_REQUEST", `Cannot change the replicas of shard ${shard}: it would have no voter`);
  const stranger = holders(replicas).find((node) => !state.nodes.has(node));
  return stranger === undefined
    ? undefined
    : refused("NODE_NOT_FOUND", `Cannot change the replicas of shard ${shard}: the cluster has no node ${stranger}`);
}

export function decideWantReplicas(state: PlacementState, command: WantReplicas): Decision {
  const { shard } = command;
  const entry = state.map.shards.get(shard);
  if (entry === undefined) return shardMissing(state, shard, "move");
  const nodes = sorted(command.nodes);
  if (sameNodes(nodes, entry.wanted)) return decided(done);
  if (![1, 3, 5, 7].includes(nodes.length) || nodes.length !== command.nodes.length)
    return refused("BAD_REQUEST", `Cannot move shard ${shard}: got nodes ${command.nodes.join(", ")}, want 1, 3, 5 or 7 different ones`);
  const barred = nodes.find((node) => !mayHold(state, entry, node));
  if (barred !== undefined) return barredNode(state, shard, barred);
  return entry.change === undefined ? decided(done, wantReplicas(shard, nodes)) : busy(entry);
}

export const wantReplicas = (shard: ShardId, nodes: readonly NodeId[]) =>
  onMap({ kind: EventKind.replicasWanted, body: { shard, node: [...nodes] } });

export function busy(entry: ShardEntry): Decision {
  const what = entry.change === undefined ? "its replicas are being moved" : `it has a ${entry.change.kind.replace("-", " ")} under way`;
  return refused("SHARD_BUSY", `Cannot change shard ${entry.shard}: ${what}`, { retryAfterMs: busyRetryMs });
}

/** Members may; whoever leaves may stay where it is, until its turn comes. */
function mayHold(state: PlacementState, entry: ShardEntry, node: NodeId): boolean {
  const standing = state.nodes.get(node)?.standing;
  return (
    standing === "member" || (standing !== undefined && standing !== "removed" && (isVoter(entry, node) || entry.wanted.includes(node)))
  );
}

function barredNode(state: PlacementState, shard: ShardId, node: NodeId): Decision {
  const standing = state.nodes.get(asNodeId(node))?.standing;
  const why = standing === undefined ? "the cluster has none of this number" : `it is ${standing}`;
  return refused("NODE_NOT_FOUND", `Cannot move shard ${shard} to node ${node}: ${why}`);
}
