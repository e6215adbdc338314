/**
 * Views to and from bytes: the whole, or what changed after a version that the watcher has.
 *
 * Whoever applies changes to a view of their `since`, or of any later version, has the new view.
 */
import { assert, type NodeId, type ShardId } from "#core/base";
import { CodecError, decodePlacementView, encodePlacementView, fromBytes, type PlacementView, toBytes } from "#proto";
import { type Entry, entryPartition, loadEntry, saveEntry } from "./entry.ts";
import { loadNode, type NodeEntry, saveNode } from "./node-entry.ts";
import { loadDeployments, type NamespaceDeployments, saveDeployments } from "./registry.ts";
import { loadRetired, loadShard, type RetiredShard, type ShardEntry, saveRetired, saveShard } from "./shard-entry.ts";
import { allEntries, type ClusterView, makeView } from "./view.ts";

export const encodeView = (view: ClusterView): Uint8Array => encodeAfter(view, 0);

/** What a watcher that has version `since` lacks. */
export const encodeChanges = (view: ClusterView, since: number): Uint8Array => encodeAfter(view, since);

function encodeAfter(view: ClusterView, since: number): Uint8Array {
  const isNew = (each: { readonly version: number }) => each.version > since;
  const isFresh = (each: { readonly changedIn: number }) => each.changedIn > since;
  const shards = view.placement === undefined ? [...view.shards.values()] : [view.placement, ...view.shards.values()];
  return toBytes(encodePlacementView, {
    clusterId: view.clusterId,
    version: view.version,
    since,
    mapEpoch: view.mapEpoch,
    replicationWanted: view.replicationWanted,
    replication: view.replicationSet,
    node: [...view.nodes.values()].filter(isNew).map(saveNode),
    shard: shards.filter(isNew).map(saveShard),
    retired: [...view.retired.values()].filter(isNew).map(saveRetired),
    deploy: [...view.deployments.values()].filter(isFresh).map(saveDeployments),
    entry: allEntries(view).filter(isFresh).map(saveEntry),
  });
}

/** Reads a whole view. Throws `CodecError`. */
export function decodeView(bytes: Uint8Array): ClusterView {
  const saved = fromBytes(decodePlacementView, bytes);
  if (saved.since !== 0) throw new CodecError(`Cannot read a view: it has only what changed after version ${saved.since}`);
  return merged(undefined, saved);
}

/** The view after `bytes`, which hold changes or a whole view. An older one than `view` changes nothing. Throws `CodecError`. */
export function applyChanges(view: ClusterView, bytes: Uint8Array): ClusterView {
  const saved = fromBytes(decodePlacementView, bytes);
  if (saved.version <= view.version) return view;
  if (saved.since > view.version)
    throw new CodecError(`Cannot apply changes after version ${saved.since} to a view of version ${view.version}: some are missing`);
  return merged(saved.since === 0 ? undefined : view, saved);
}

function merged(view: ClusterView | undefined, saved: PlacementView): ClusterView {
  const nodes = new Map<NodeId, NodeEntry>(view?.nodes);
  for (const node of saved.node.map(loadNode)) nodes.set(node.node, node);
  const shards = new Map<ShardId, ShardEntry>(view?.shards);
  if (view?.placement !== undefined) shards.set(view.placement.shard, view.placement);
  for (const shard of saved.shard.map(loadShard)) shards.set(shard.shard, shard);
  const retired = new Map<ShardId, RetiredShard>(view?.retired);
  for (const each of saved.retired.map(loadRetired)) {
    retired.set(each.shard, each);
    shards.delete(each.shard);
  }
  const deployments = new Map<string, NamespaceDeployments>(view?.deployments);
  for (const each of saved.deploy.map(loadDeployments)) deployments.set(each.namespace, each);
  const entries = new Map<string, Entry>((view === undefined ? [] : allEntries(view)).map((each) => [entryPartition(each), each]));
  for (const each of saved.entry.map(loadEntry)) entries.set(entryPartition(each), each);
  assert(saved.version >= (view?.version ?? 0), "a view only goes on");
  return makeView({
    clusterId: saved.clusterId,
    version: saved.version,
    mapEpoch: saved.mapEpoch,
    replicationWanted: saved.replicationWanted,
    replicationSet: saved.replication,
    nodes: nodes.values(),
    shards: shards.values(),
    retired: retired.values(),
    deployments: deployments.values(),
    entries: entries.values(),
  });
}
