/**
 * What everybody may know of the cluster: a picture of placement's state at one version.
 *
 * A view never changes; a change makes another one. Its version is the log index of the last
 * record in it, so a view may be shown to others when that index is committed.
 */
import type { Epoch, Key, NodeId, ShardId } from "#core/base";
import type { ReplicationSetting } from "#proto";
import { type Entry, entryPartition } from "./entry.ts";
import type { NodeEntry } from "./node-entry.ts";
import type { PlacementState } from "./placement-state.ts";
import { bundleOfStart, type DeployedType, type NamespaceDeployments } from "./registry.ts";
import type { RetiredShard, ShardEntry } from "./shard-entry.ts";
import { orderedRanges, ownerOf } from "./shard-map.ts";

export interface ClusterView {
  /** Empty until the cluster is made. */
  readonly clusterId: string;
  /** Raised with anything: log index of the last record in the view. */
  readonly version: number;
  /** Raised with what matters to routing: ranges, members, leaders. */
  readonly mapEpoch: Epoch;
  readonly replicationWanted: number;
  /** Who set that; undefined while it is what the cluster was made with. */
  readonly replicationSet: ReplicationSetting | undefined;
  /** By id; removed ones among them. */
  readonly nodes: ReadonlyMap<NodeId, NodeEntry>;
  /** Shard 0; it has no keys. */
  readonly placement: ShardEntry | undefined;
  /** Shards of data that are live. */
  readonly shards: ReadonlyMap<ShardId, ShardEntry>;
  /** The same by their first key: together they own every key exactly once. */
  readonly ranges: readonly ShardEntry[];
  readonly retired: ReadonlyMap<ShardId, RetiredShard>;
  readonly deployments: ReadonlyMap<string, NamespaceDeployments>;
  /** By class, then by name; removed ones are left out. */
  readonly entries: ReadonlyMap<string, ReadonlyMap<string, Entry>>;
  /** What is left of removed ones. */
  readonly removedEntries: readonly Entry[];
}

/** What a view is made of. */
export interface ViewParts {
  readonly clusterId: string;
  readonly version: number;
  readonly mapEpoch: number;
  readonly replicationWanted: number;
  /** Who set that; undefined while it is what the cluster was made with. */
  readonly replicationSet: ReplicationSetting | undefined;
  readonly nodes: Iterable<NodeEntry>;
  readonly shards: Iterable<ShardEntry>;
  readonly retired: Iterable<RetiredShard>;
  readonly deployments: Iterable<NamespaceDeployments>;
  readonly entries: Iterable<Entry>;
}

/** Throws `InvariantError` where a key has no owner, or two. */
export function makeView(parts: ViewParts): ClusterView {
  const entries = [...parts.entries].sort((a, b) => (entryPartition(a) < entryPartition(b) ? -1 : 1));
  const all = [...parts.shards].sort((a, b) => a.shard - b.shard);
  const shards = all.filter((each) => each.shard !== 0);
  return {
    clusterId: parts.clusterId,
    version: parts.version,
    mapEpoch: parts.mapEpoch as Epoch,
    replicationWanted: parts.replicationWanted,
    replicationSet: parts.replicationSet,
    nodes: new Map([...parts.nodes].sort((a, b) => a.node - b.node).map((each) => [each.node, each])),
    placement: all.find((each) => each.shard === 0),
    shards: new Map(shards.map((each) => [each.shard, each])),
    ranges: orderedRanges(shards),
    retired: new Map([...parts.retired].sort((a, b) => a.shard - b.shard).map((each) => [each.shard, each])),
    deployments: new Map([...parts.deployments].sort((a, b) => (a.namespace < b.namespace ? -1 : 1)).map((each) => [each.namespace, each])),
    entries: byClass(entries),
    removedEntries: entries.filter((each) => each.removed),
  };
}

export function viewOf(state: PlacementState, version: number): ClusterView {
  const { settings, map } = state;
  return makeView({
    clusterId: settings?.clusterId ?? "",
    version,
    mapEpoch: map.epoch,
    replicationWanted: settings?.replicationWanted ?? 0,
    replicationSet: settings?.replicationSet,
    nodes: state.nodes.values(),
    shards: map.shards.values(),
    retired: map.retired.values(),
    deployments: state.namespaces.values(),
    entries: state.entries.values(),
  });
}

export const emptyView: ClusterView = makeView({
  clusterId: "",
  version: 0,
  mapEpoch: 0,
  replicationWanted: 0,
  replicationSet: undefined,
  nodes: [],
  shards: [],
  retired: [],
  deployments: [],
  entries: [],
});

function byClass(entries: Iterable<Entry>): Map<string, Map<string, Entry>> {
  const classes = new Map<string, Map<string, Entry>>();
  for (const entry of entries) {
    if (entry.removed) continue;
    const names = classes.get(entry.class) ?? new Map<string, Entry>();
    classes.set(entry.class, names.set(entry.name, entry));
  }
  return classes;
}

/** Removed ones among them. */
export const allEntries = (view: ClusterView): Entry[] => [
  ...[...view.entries.values()].flatMap((names) => [...names.values()]),
  ...view.removedEntries,
];

/** The shard that owns `key`, or undefined before there is one. */
export function shardAt(view: ClusterView, key: Key): ShardEntry | undefined {
  return view.ranges.length === 0 ? undefined : ownerOf(view.ranges, key);
}

/** The shard by its number, placement too. */
export const shardOf = (view: ClusterView, shard: ShardId): ShardEntry | undefined =>
  shard === 0 ? view.placement : view.shards.get(shard);

/** Bundle that a start of `run` is pinned to; without one, that of the current version of the type. */
export function bundleFor(
  { deployments }: Pick<ClusterView, "deployments">,
  namespace: string,
  { type, run }: { readonly type: string; readonly run?: string },
): Uint8Array | undefined {
  const deployed = deployments.get(namespace)?.types.get(type);
  return deployed === undefined || run === undefined ? deployed?.bundle : bundleOfStart(deployed, run);
}

/** The types of a namespace, in alphabetical order. */
export function deployedTypes(view: ClusterView, namespace: string): DeployedType[] {
  return [...(view.deployments.get(namespace)?.types.values() ?? [])].sort((a, b) => (a.type < b.type ? -1 : 1));
}

/** The node that leads the shard as far as placement knows. */
export const leaderOf = (entry: ShardEntry): NodeId | undefined => entry.lease?.node;
