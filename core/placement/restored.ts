/**
 * Placement rebuilt from object storage: what it knew goes on, of one node that holds every shard.
 *
 * Runs, deployments, namespaces and policies keep their versions; nodes of before are removed ones,
 * so that their numbers are not given again; who led what is void, and epochs of leadership leases
 * begin above all that the old cluster can have given.
 */
import { asIndex, asShardId, type KeyRange, type NodeId, present, type ShardId } from "#core/base";
import { type ClusterRestored, decodePlacementStates, fromBytes, type NodeInfo } from "#proto";
import { nextNodeId, nodePartition } from "./node-entry.ts";
import { clusterPartition, emptyState, mapPartition, type Part, type PlacementState, partOf } from "./placement-state.ts";
import { encodePart, loadPart } from "./saved-state.ts";
import type { ReplicaSet, ShardEntry } from "./shard-entry.ts";
import { orderedRanges, type ShardMap } from "./shard-map.ts";
import { bundleFor } from "./view.ts";

/** The old cluster may have given leases that its uploaded placement does not know of: fewer than this. */
export const leaseEpochsSkipped = 1_000_000;
/** States that one event carries. */
const eventBytesMax = 512 * 1024;

/** A shard as it was rebuilt. */
export interface RestoredShard {
  readonly shard: ShardId;
  readonly range: KeyRange;
  readonly ancestors: readonly ShardId[];
  /** Of its newest leadership lease. */
  readonly epoch: number;
}

export interface RestoredCluster {
  readonly clusterId: string;
  readonly objects: string;
  readonly restoreEpoch: number;
  /** Of the one node. */
  readonly info: NodeInfo;
  readonly shards: readonly RestoredShard[];
  readonly nowMs: number;
}

/** Shards of an uploaded placement, as far as it knew. */
export interface UploadedPlacement {
  readonly shards: readonly { readonly shard: ShardId; readonly range: KeyRange }[];
  readonly lastShard: number;
  readonly nextNode: NodeId;
  readonly clusterId: string;
  /** Of code that new runs start on. */
  readonly bundles: readonly Uint8Array[];
  /** Of these, the one that a start of `run` is pinned to. */
  readonly bundleFor: (namespace: string, of: { readonly type: string; readonly run: string }) => Uint8Array | undefined;
}

/** Throws `RangeError` where it is of another format, `CodecError` where it is none. */
export function uploadedPlacement(states: Uint8Array): UploadedPlacement {
  const state = loaded(states);
  const { map, nodes, settings, namespaces } = state;
  const shards = [...map.shards.values()].filter(({ shard }) => shard !== 0).map(({ shard, range }) => ({ shard, range }));
  const bundles = [...namespaces.values()].flatMap(({ types }) => [...types.values()].map(({ bundle }) => bundle));
  return {
    shards,
    lastShard: map.lastShard,
    nextNode: nextNodeId(nodes),
    clusterId: settings?.clusterId ?? "",
    bundles,
    bundleFor: (namespace, of) => bundleFor({ deployments: namespaces }, namespace, of),
  };
}

/** Events of partition `cluster`, the first ones of the new placement. `states` are what `encodeState` wrote. */
export function restoredPlacement(states: Uint8Array, cluster: RestoredCluster): ClusterRestored[] {
  const state = loaded(states);
  const { nowMs, info, shards } = cluster;
  const settings = present(state.settings, "the settings of an uploaded placement");
  const self = nextNodeId(state.nodes);
  for (const node of state.nodes.values()) state.nodes.set(node.node, { ...node, standing: "removed", sinceMs: nowMs });
  state.nodes.set(self, { node: self, info, standing: "member", replacedBy: undefined, joinedMs: nowMs, sinceMs: nowMs, version: 0 });
  partOf(state, nodePartition(self));
  state.map = mapOf(state.map, shards, self);
  partOf(state, mapPartition);
  const rows: Uint8Array[] = [];
  for (const [partition, part] of [...state.parts].sort(([a], [b]) => (a < b ? -1 : 1))) {
    // Where the old log had its last event says nothing in the new one.
    part.chain.lastIndex = 0;
    if (partition !== clusterPartition) rows.push(encodePart(state, part));
  }
  const { clusterId, objects, restoreEpoch } = cluster;
  const { replicationWanted, replicationSet } = settings;
  return inEvents(rows, {
    state: [],
    cluster: { clusterId, replicationWanted, objects, restoreEpoch },
    replication: replicationSet,
  });
}

export interface RestoredAt {
  /** Version of the view that the event makes. */
  readonly version: number;
  /** Told of each part: its time was seen. */
  readonly witness: (part: Part) => void;
}

/** Folds one of the events in. Returns whether it was the last one. */
export function applyRestored(state: PlacementState, body: ClusterRestored, at: RestoredAt): boolean {
  for (const row of body.state) at.witness(loadPart(state, row));
  const { version } = at;
  for (const node of state.nodes.values()) state.nodes.set(node.node, { ...node, version });
  for (const shard of state.map.shards.values()) state.map.shards.set(shard.shard, { ...shard, version });
  for (const retired of state.map.retired.values()) state.map.retired.set(retired.shard, { ...retired, version });
  for (const deployed of state.namespaces.values()) state.namespaces.set(deployed.namespace, { ...deployed, changedIn: version });
  for (const [partition, entry] of state.entries) state.entries.set(partition, { ...entry, changedIn: version });
  if (body.cluster === undefined) return false;
  state.settings = { ...body.cluster, replicationSet: body.replication };
  return true;
}

function loaded(states: Uint8Array): PlacementState {
  const state = emptyState();
  for (const row of fromBytes(decodePlacementStates, states).state) loadPart(state, row);
  return state;
}

function mapOf(before: ShardMap, shards: readonly RestoredShard[], self: NodeId): ShardMap {
  const alone: ReplicaSet = { voters: [self], outgoing: [], learners: [], configIndex: asIndex(0) };
  const entry = ({ shard, range, ancestors }: Omit<RestoredShard, "epoch">): ShardEntry => ({
    ...alone,
    shard,
    range,
    wanted: [self],
    lease: undefined,
    change: undefined,
    ancestors,
    settledMs: 0,
    version: 0,
  });
  const all = [entry({ shard: asShardId(0), range: { first: 0, last: 0 }, ancestors: [] }), ...shards.map(entry)];
  orderedRanges(all);
  const live = new Set(all.map(({ shard }) => shard));
  return {
    epoch: before.epoch + 1,
    leaseEpoch: Math.max(before.leaseEpoch, ...shards.map(({ epoch }) => epoch)) + leaseEpochsSkipped,
    lastShard: Math.max(before.lastShard, ...live),
    lastChange: before.lastChange + 1,
    shards: new Map(all.map((each) => [each.shard, each])),
    retired: new Map([...before.retired].filter(([shard]) => !live.has(shard))),
  };
}

function inEvents(rows: readonly Uint8Array[], last: ClusterRestored): ClusterRestored[] {
  const events: ClusterRestored[] = [];
  let state: Uint8Array[] = [];
  let bytes = 0;
  for (const row of rows) {
    if (bytes > 0 && bytes + row.length > eventBytesMax) {
      events.push({ state, cluster: undefined, replication: undefined });
      state = [];
      bytes = 0;
    }
    state.push(row);
    bytes += row.length;
  }
  return [...events, { ...last, state }];
}
