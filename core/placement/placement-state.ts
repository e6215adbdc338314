/**
 * All of placement's state: the fold of the events of its partitions.
 *
 * Invariant: what an event changes depends on its own partition only, so that a checkpoint may
 * hold each partition as of another index.
 */

import type { NodeId } from "#core/base";
import { asNodeId, type Partition, present } from "#core/base";
import { PartitionChain } from "#core/merkle";
import { EventKind, type Identity, type NodeInfo, type ReplicationSetting, type ReplicationWanted } from "#proto";
import { applyEntry, type Entry, entryOfPartition } from "./entry.ts";
import type { NodeEvent, PlacementEvent } from "./event.ts";
import { emptyInfo, type NodeEntry, nodeOfPartition } from "./node-entry.ts";
import { applyDeploy, applyRoute, emptyNamespace, type NamespaceDeployments, namespaceOfDeploy } from "./registry.ts";
import { applyMap, emptyMap, type LoggedAt, type ShardMap } from "./shard-map.ts";

export const clusterPartition = "cluster" as Partition;
export const mapPartition = "map" as Partition;

/** One partition: where its chain ends, and how far its state goes. */
export interface Part {
  readonly chain: PartitionChain;
  /** Time of its last event. */
  timeMs: number;
  logical: number;
}

export interface Settings {
  readonly clusterId: string;
  readonly replicationWanted: number;
  /** Who set that; undefined while it is what the cluster was made with. */
  readonly replicationSet: ReplicationSetting | undefined;
  /** Begins the keys of the cluster's objects; empty = its id. */
  readonly objects: string;
  /** 0 = it was never rebuilt. */
  readonly restoreEpoch: number;
}

export interface PlacementState {
  readonly parts: Map<Partition, Part>;
  /** Undefined until the cluster is made. */
  settings: Settings | undefined;
  readonly nodes: Map<NodeId, NodeEntry>;
  map: ShardMap;
  readonly namespaces: Map<string, NamespaceDeployments>;
  readonly entries: Map<Partition, Entry>;
}

export function emptyState(): PlacementState {
  return { parts: new Map(), settings: undefined, nodes: new Map(), map: emptyMap(), namespaces: new Map(), entries: new Map() };
}

/** The partition's part, made where there is none. */
export function partOf(state: PlacementState, partition: Partition): Part {
  const found = state.parts.get(partition);
  if (found !== undefined) return found;
  const part = { chain: new PartitionChain(partition), timeMs: 0, logical: 0 };
  state.parts.set(partition, part);
  return part;
}

export interface AppliedAt extends LoggedAt {
  readonly identity: Identity | undefined;
}

/** Folds one event in. */
export function applyEvent(state: PlacementState, partition: Partition, event: PlacementEvent, at: AppliedAt): void {
  switch (event.kind) {
    case EventKind.clusterCreated:
      state.settings = { ...event.body, replicationSet: undefined };
      return;
    case EventKind.clusterRestored:
      // It is of all partitions: the machine folds it in.
      return;
    case EventKind.replicationWanted:
      state.settings = afterReplication(state.settings, event.body, at);
      return;
    case EventKind.nodeJoined:
    case EventKind.nodeUpdated:
    case EventKind.nodeLeaving:
    case EventKind.nodeRemoved:
      return applyNode(state, present(nodeOfPartition(partition), `node of ${partition}`), event, at);
    case EventKind.bundleDeployed: {
      const namespace = present(namespaceOfDeploy(partition), `namespace of ${partition}`);
      state.namespaces.set(namespace, applyDeploy(state.namespaces.get(namespace) ?? emptyNamespace(namespace), event.body, at));
      return;
    }
    case EventKind.deploymentRouted: {
      const namespace = present(namespaceOfDeploy(partition), `namespace of ${partition}`);
      state.namespaces.set(namespace, applyRoute(state.namespaces.get(namespace) ?? emptyNamespace(namespace), event.body, at));
      return;
    }
    case EventKind.entrySet:
      state.entries.set(partition, applyEntry(present(entryOfPartition(partition), `entry of ${partition}`), event.body, at));
      return;
    default:
      return applyMap(state.map, event, at);
  }
}

function afterReplication(before: Settings | undefined, { count, reason }: ReplicationWanted, at: AppliedAt): Settings {
  const version = (before?.replicationSet?.version ?? 1) + 1;
  return {
    clusterId: before?.clusterId ?? "",
    objects: before?.objects ?? "",
    restoreEpoch: before?.restoreEpoch ?? 0,
    replicationWanted: count,
    replicationSet: { count, version, changedMs: at.timeMs, identity: at.identity, reason },
  };
}

function applyNode(state: PlacementState, node: NodeId, event: NodeEvent, at: AppliedAt): void {
  const { version, timeMs } = at;
  const info = (from: NodeInfo | undefined): NodeInfo => ({ ...emptyInfo, ...from });
  if (event.kind === EventKind.nodeJoined) {
    const joined = {
      node,
      info: info(event.body.info),
      standing: "member",
      replacedBy: undefined,
      joinedMs: timeMs,
      sinceMs: timeMs,
      version,
    } as const;
    state.nodes.set(node, joined);
    return;
  }
  const entry = present(state.nodes.get(node), `node ${node}`);
  if (event.kind === EventKind.nodeUpdated) state.nodes.set(node, { ...entry, info: info(event.body.info), version });
  else if (event.kind === EventKind.nodeRemoved) state.nodes.set(node, { ...entry, standing: "removed", sinceMs: timeMs, version });
  else {
    const replacedBy = event.body.replacedBy === 0 ? entry.replacedBy : asNodeId(event.body.replacedBy);
    state.nodes.set(node, { ...entry, standing: event.body.lost ? "lost" : "leaving", replacedBy, sinceMs: timeMs, version });
  }
}
