/** Placement's partitions to and from the bytes that a checkpoint keeps: one row each. */
import type { Partition } from "#core/base";
import { PartitionChain } from "#core/merkle";
import { decodePlacementState, encodePlacementState, fromBytes, type PlacementStateInit, toBytes } from "#proto";
import { entryOfPartition, loadEntry, saveEntry } from "./entry.ts";
import { loadNode, nodeOfPartition, saveNode } from "./node-entry.ts";
import { clusterPartition, mapPartition, type Part, type PlacementState } from "./placement-state.ts";
import { loadDeployments, namespaceOfDeploy, saveDeployments } from "./registry.ts";
import { loadMap, saveMap } from "./shard-map.ts";

/** Raised with every change of meaning: another number is rebuilt from the log. */
export const placementFormat = 1;

export function encodePart(state: PlacementState, part: Part): Uint8Array {
  const { partition } = part.chain;
  const { timeMs, logical } = part;
  const saved = { format: placementFormat, partition, ...part.chain.head(), timeMs, logical, ...contentOf(state, partition) };
  return toBytes(encodePlacementState, saved);
}

function contentOf(state: PlacementState, partition: Partition): PlacementStateInit {
  if (partition === clusterPartition) return { cluster: state.settings, replication: state.settings?.replicationSet };
  if (partition === mapPartition) return { map: saveMap(state.map) };
  const node = nodeOfPartition(partition);
  const entry = node === undefined ? undefined : state.nodes.get(node);
  if (entry !== undefined) return { node: saveNode(entry) };
  const namespace = namespaceOfDeploy(partition);
  const deployments = namespace === undefined ? undefined : state.namespaces.get(namespace);
  if (deployments !== undefined) return { deploy: saveDeployments(deployments) };
  const set = entryOfPartition(partition) === undefined ? undefined : state.entries.get(partition);
  return set === undefined ? {} : { entry: saveEntry(set) };
}

/** Puts the row of a partition into `state`. Throws `RangeError` where it is of another format. */
export function loadPart(state: PlacementState, bytes: Uint8Array): Part {
  const saved = fromBytes(decodePlacementState, bytes);
  const partition = saved.partition as Partition;
  if (saved.format !== placementFormat)
    throw new RangeError(`Cannot load ${partition}: state format ${saved.format}, want ${placementFormat}`);
  const part = { chain: new PartitionChain(partition, { ...saved, lastShard: 0 }), timeMs: saved.timeMs, logical: saved.logical };
  state.parts.set(partition, part);
  if (saved.cluster !== undefined) state.settings = { ...saved.cluster, replicationSet: saved.replication };
  if (saved.map !== undefined) state.map = loadMap(saved.map);
  if (saved.node !== undefined) {
    const entry = loadNode(saved.node);
    state.nodes.set(entry.node, entry);
  }
  if (saved.deploy !== undefined) {
    const deployments = loadDeployments(saved.deploy);
    state.namespaces.set(deployments.namespace, deployments);
  }
  if (saved.entry !== undefined) state.entries.set(partition, loadEntry(saved.entry));
  return part;
}
