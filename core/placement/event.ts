/** Events of placement: the union and its codec. A kind that this version does not know stays in the chain and changes nothing. */
import {
  type BundleDeployed,
  type ChangeCancelled,
  type ClusterCreated,
  type ClusterRestored,
  type DeploymentRouted,
  decodeBundleDeployed,
  decodeChangeCancelled,
  decodeClusterCreated,
  decodeClusterRestored,
  decodeDeploymentRouted,
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
  type EntrySet,
  EventKind,
  encodeBundleDeployed,
  encodeChangeCancelled,
  encodeClusterCreated,
  encodeClusterRestored,
  encodeDeploymentRouted,
  encodeEntrySet,
  encodeLeadershipGranted,
  encodeMergeDecided,
  encodeMergeDone,
  encodeMergeWanted,
  encodeNodeJoined,
  encodeNodeLeaving,
  encodeNodeRemoved,
  encodeNodeUpdated,
  encodeReplicasChanged,
  encodeReplicasWanted,
  encodeReplicationWanted,
  encodeShardCreated,
  encodeSplitDone,
  encodeSplitWanted,
  fromBytes,
  type LeadershipGranted,
  type MergeDecided,
  type MergeDone,
  type MergeWanted,
  type NodeJoined,
  type NodeLeaving,
  type NodeRemoved,
  type NodeUpdated,
  type ReplicasChanged,
  type ReplicasWanted,
  type ReplicationWanted,
  type ShardCreated,
  type SplitDone,
  type SplitWanted,
  type Writer,
} from "#proto";

export type ClusterEvent =
  | { readonly kind: typeof EventKind.clusterCreated; readonly body: ClusterCreated }
  | { readonly kind: typeof EventKind.clusterRestored; readonly body: ClusterRestored }
  | { readonly kind: typeof EventKind.replicationWanted; readonly body: ReplicationWanted };

export type NodeEvent =
  | { readonly kind: typeof EventKind.nodeJoined; readonly body: NodeJoined }
  | { readonly kind: typeof EventKind.nodeUpdated; readonly body: NodeUpdated }
  | { readonly kind: typeof EventKind.nodeLeaving; readonly body: NodeLeaving }
  | { readonly kind: typeof EventKind.nodeRemoved; readonly body: NodeRemoved };

export type MapEvent =
  | { readonly kind: typeof EventKind.shardCreated; readonly body: ShardCreated }
  | { readonly kind: typeof EventKind.replicasWanted; readonly body: ReplicasWanted }
  | { readonly kind: typeof EventKind.replicasChanged; readonly body: ReplicasChanged }
  | { readonly kind: typeof EventKind.leadershipGranted; readonly body: LeadershipGranted }
  | { readonly kind: typeof EventKind.splitWanted; readonly body: SplitWanted }
  | { readonly kind: typeof EventKind.splitDone; readonly body: SplitDone }
  | { readonly kind: typeof EventKind.mergeWanted; readonly body: MergeWanted }
  | { readonly kind: typeof EventKind.mergeDecided; readonly body: MergeDecided }
  | { readonly kind: typeof EventKind.mergeDone; readonly body: MergeDone }
  | { readonly kind: typeof EventKind.changeCancelled; readonly body: ChangeCancelled };

export type DeployEvent =
  | { readonly kind: typeof EventKind.bundleDeployed; readonly body: BundleDeployed }
  | { readonly kind: typeof EventKind.deploymentRouted; readonly body: DeploymentRouted };
export type EntryEvent = { readonly kind: typeof EventKind.entrySet; readonly body: EntrySet };

export type PlacementEvent = ClusterEvent | NodeEvent | MapEvent | DeployEvent | EntryEvent;

/** Writes the payload that belongs to the event's kind. */
export function encodeBody(w: Writer, e: PlacementEvent): void {
  switch (e.kind) {
    case EventKind.clusterCreated:
      return encodeClusterCreated(w, e.body);
    case EventKind.clusterRestored:
      return encodeClusterRestored(w, e.body);
    case EventKind.replicationWanted:
      return encodeReplicationWanted(w, e.body);
    case EventKind.nodeJoined:
      return encodeNodeJoined(w, e.body);
    case EventKind.nodeUpdated:
      return encodeNodeUpdated(w, e.body);
    case EventKind.nodeLeaving:
      return encodeNodeLeaving(w, e.body);
    case EventKind.nodeRemoved:
      return encodeNodeRemoved(w, e.body);
    case EventKind.shardCreated:
      return encodeShardCreated(w, e.body);
    case EventKind.replicasWanted:
      return encodeReplicasWanted(w, e.body);
    case EventKind.replicasChanged:
      return encodeReplicasChanged(w, e.body);
    case EventKind.leadershipGranted:
      return encodeLeadershipGranted(w, e.body);
    case EventKind.splitWanted:
      return encodeSplitWanted(w, e.body);
    case EventKind.splitDone:
      return encodeSplitDone(w, e.body);
    case EventKind.mergeWanted:
      return encodeMergeWanted(w, e.body);
    case EventKind.mergeDecided:
      return encodeMergeDecided(w, e.body);
    case EventKind.mergeDone:
      return encodeMergeDone(w, e.body);
    case EventKind.changeCancelled:
      return encodeChangeCancelled(w, e.body);
    case EventKind.bundleDeployed:
      return encodeBundleDeployed(w, e.body);
    case EventKind.deploymentRouted:
      return encodeDeploymentRouted(w, e.body);
    case EventKind.entrySet:
      return encodeEntrySet(w, e.body);
  }
}

/** The event, or undefined where this version does not know the kind. */
export function decodeBody(kind: number, payload: Uint8Array): PlacementEvent | undefined {
  switch (kind) {
    case EventKind.clusterCreated:
      return { kind, body: fromBytes(decodeClusterCreated, payload) };
    case EventKind.clusterRestored:
      return { kind, body: fromBytes(decodeClusterRestored, payload) };
    case EventKind.replicationWanted:
      return { kind, body: fromBytes(decodeReplicationWanted, payload) };
    case EventKind.nodeJoined:
      return { kind, body: fromBytes(decodeNodeJoined, payload) };
    case EventKind.nodeUpdated:
      return { kind, body: fromBytes(decodeNodeUpdated, payload) };
    case EventKind.nodeLeaving:
      return { kind, body: fromBytes(decodeNodeLeaving, payload) };
    case EventKind.nodeRemoved:
      return { kind, body: fromBytes(decodeNodeRemoved, payload) };
    case EventKind.shardCreated:
      return { kind, body: fromBytes(decodeShardCreated, payload) };
    case EventKind.replicasWanted:
      return { kind, body: fromBytes(decodeReplicasWanted, payload) };
    case EventKind.replicasChanged:
      return { kind, body: fromBytes(decodeReplicasChanged, payload) };
    case EventKind.leadershipGranted:
      return { kind, body: fromBytes(decodeLeadershipGranted, payload) };
    case EventKind.splitWanted:
      return { kind, body: fromBytes(decodeSplitWanted, payload) };
    case EventKind.splitDone:
      return { kind, body: fromBytes(decodeSplitDone, payload) };
    case EventKind.mergeWanted:
      return { kind, body: fromBytes(decodeMergeWanted, payload) };
    case EventKind.mergeDecided:
      return { kind, body: fromBytes(decodeMergeDecided, payload) };
    case EventKind.mergeDone:
      return { kind, body: fromBytes(decodeMergeDone, payload) };
    case EventKind.changeCancelled:
      return { kind, body: fromBytes(decodeChangeCancelled, payload) };
    case EventKind.bundleDeployed:
      return { kind, body: fromBytes(decodeBundleDeployed, payload) };
    case EventKind.deploymentRouted:
      return { kind, body: fromBytes(decodeDeploymentRouted, payload) };
    case EventKind.entrySet:
      return { kind, body: fromBytes(decodeEntrySet, payload) };
    default:
      return undefined;
  }
}
