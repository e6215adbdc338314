/** Placement's events for the eye: what became of the cluster's nodes, shards and entries. */
import { keyText, rangeText } from "#core/base";
import {
  decodeChangeCancelled,
  decodeClusterCreated,
  decodeClusterRestored,
  decodeEntrySet,
  decodeLeadershipGranted,
  decodeMergeDecided,
  decodeMergeDone,
  decodeMergeWanted,
  decodeNodeJoined,
  decodeNodeLeaving,
  decodeNodeRemoved,
  decodeNodeUpdated,
  decodeReplicasChanged,
  decodeReplicasWanted,
  decodeReplicationWanted,
  decodeShardCreated,
  decodeSplitDone,
  decodeSplitWanted,
  EventKind,
  type NodeInfo,
  type Replicas,
} from "#proto";
import { type Kind, kind, words } from "./event-kind.ts";

const shardText = (shard: number) => (shard === 0 ? "placement" : `shard ${shard}`);
const infoText = (info: NodeInfo | undefined) =>
  info === undefined ? "" : words(info.peer, info.zone !== "" && `zone ${info.zone}`, info.version !== "" && `version ${info.version}`);

function replicasText(replicas: Replicas | undefined): string {
  const { voter = [], outgoing = [], learner = [] } = replicas ?? {};
  return words(
    `on ${voter.join(", ") || "no node"}`,
    outgoing.length > 0 && `leaving ${outgoing.join(", ")}`,
    learner.length > 0 && `learning on ${learner.join(", ")}`,
  );
}

export const placementKinds: Readonly<Record<number, Kind>> = {
  [EventKind.clusterCreated]: kind("ClusterCreated", decodeClusterCreated, (m) =>
    words(m.clusterId, `${m.replicationWanted} replicas wanted`),
  ),
  [EventKind.clusterRestored]: kind("ClusterRestored", decodeClusterRestored, (m) =>
    words(m.cluster !== undefined && `as ${m.cluster.clusterId}`, m.state.length > 0 && `${m.state.length} parts of its state`),
  ),
  [EventKind.replicationWanted]: kind("ReplicationWanted", decodeReplicationWanted, (m) => words(`${m.count} replicas`, m.reason)),
  [EventKind.nodeJoined]: kind("NodeJoined", decodeNodeJoined, (m) => infoText(m.info)),
  [EventKind.nodeUpdated]: kind("NodeUpdated", decodeNodeUpdated, (m) => infoText(m.info)),
  [EventKind.nodeLeaving]: kind("NodeLeaving", decodeNodeLeaving, (m) =>
    words(m.lost && "lost", m.replacedBy !== 0 && `replaced by node ${m.replacedBy}`),
  ),
  [EventKind.nodeRemoved]: kind("NodeRemoved", decodeNodeRemoved, (m) => m.reason),
  [EventKind.shardCreated]: kind("ShardCreated", decodeShardCreated, (m) =>
    words(shardText(m.shard), m.shard !== 0 && rangeText(m), replicasText(m.replicas)),
  ),
  [EventKind.replicasWanted]: kind("ReplicasWanted", decodeReplicasWanted, (m) => `${shardText(m.shard)} on ${m.node.join(", ")}`),
  [EventKind.replicasChanged]: kind("ReplicasChanged", decodeReplicasChanged, (m) =>
    words(shardText(m.shard), replicasText(m.replicas), m.removed.length > 0 && `gone from ${m.removed.join(", ")}`),
  ),
  [EventKind.leadershipGranted]: kind(
    "LeadershipGranted",
    decodeLeadershipGranted,
    (m) => `${shardText(m.shard)} to node ${m.node}, epoch ${m.epoch}, term ${m.term}`,
  ),
  [EventKind.splitWanted]: kind("SplitWanted", decodeSplitWanted, (m) => `${shardText(m.shard)} at ${keyText(m.at)} into shard ${m.child}`),
  [EventKind.splitDone]: kind("SplitDone", decodeSplitDone, (m) =>
    words(`${shardText(m.shard)} at ${keyText(m.at)} into shard ${m.child}`, replicasText(m.replicas)),
  ),
  [EventKind.mergeWanted]: kind("MergeWanted", decodeMergeWanted, (m) => `shard ${m.right} into shard ${m.left}`),
  [EventKind.mergeDecided]: kind("MergeDecided", decodeMergeDecided, (m) => `shard ${m.right} through ${m.through} into shard ${m.left}`),
  [EventKind.mergeDone]: kind("MergeDone", decodeMergeDone, (m) => `shard ${m.right} into shard ${m.left}`),
  [EventKind.changeCancelled]: kind("ChangeCancelled", decodeChangeCancelled, (m) => words(shardText(m.shard), m.reason)),
  [EventKind.entrySet]: kind("EntrySet", decodeEntrySet, (m) =>
    words(`version ${m.version}`, m.removed ? "removed" : `${m.value.length} bytes`),
  ),
};
