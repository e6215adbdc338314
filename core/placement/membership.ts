/** Who belongs to the cluster: its making, and nodes that join, leave and are removed. */
import { asNodeId, keyMax, limits, type NodeId, utf8Bytes } from "#core/base";
import { EventKind, type NodeInfo } from "#proto";
import { addressProblem, isLoopbackAddress } from "./address.ts";
import type { Bootstrap, Join, PlacementReply, SetReplication } from "./command.ts";
import { type Decided, type Decision, decided, done, onMap, refused } from "./decision.ts";
import { type NodeEntry, nextNodeId, nodePartition } from "./node-entry.ts";
import { clusterPartition, type PlacementState, type Settings } from "./placement-state.ts";
import { shardsOn } from "./shard-map.ts";

export const replicationDefault = 3;
const shardsMax = 1024;
const firstNode = asNodeId(1);

export function decideBootstrap(state: PlacementState, command: Bootstrap): Decision {
  const { clusterId, info, replicationWanted = replicationDefault, shards = 1 } = command;
  if (state.settings !== undefined) {
    const isRepeat = state.settings.clusterId === clusterId && state.nodes.get(firstNode)?.info.disk === info.disk;
    if (isRepeat) return decided({ kind: "joined", clusterId, node: firstNode });
    return refused("ALREADY_MEMBER", `Cannot make a cluster: this node belongs to cluster ${state.settings.clusterId} already`);
  }
  const problem = textProblem(clusterId) ?? infoProblem(info) ?? countProblem(replicationWanted);
  if (clusterId === "" || problem !== undefined) return refused("BAD_REQUEST", `Cannot make a cluster: ${problem ?? "its id is empty"}`);
  if (!Number.isInteger(shards) || shards < 1 || shards > shardsMax)
    return refused("BAD_REQUEST", `Cannot make a cluster: it is to have ${shards} shards, want 1–${shardsMax}`);
  const replicas = { voter: [firstNode], outgoing: [], learner: [], configIndex: 0 };
  const created = (shard: number, first: number, last: number) =>
    onMap({ kind: EventKind.shardCreated, body: { shard, first, last, replicas } });
  const edge = (i: number) => Math.floor(((keyMax + 1) / shards) * i);
  return decided(
    { kind: "joined", clusterId, node: firstNode },
    {
      partition: clusterPartition,
      event: { kind: EventKind.clusterCreated, body: { clusterId, replicationWanted, objects: "", restoreEpoch: 0 } },
    },
    { partition: nodePartition(firstNode), event: { kind: EventKind.nodeJoined, body: { info } } },
    created(0, 0, 0),
    ...Array.from({ length: shards }, (_, i) => created(i + 1, edge(i), edge(i + 1) - 1)),
  );
}

export function decideJoin(state: PlacementState, command: Join): Decision {
  const { info } = command;
  if (state.settings === undefined) return refused("STORE_UNAVAILABLE", "Cannot join: the cluster is not made yet");
  const { clusterId } = state.settings;
  if (command.clusterId !== undefined && command.clusterId !== clusterId)
    return refused("FOREIGN_CLUSTER", `Cannot join: the node is of cluster ${command.clusterId}, this is cluster ${clusterId}`);
  const problem = infoProblem(info) ?? loopbackProblem(state, info, command.node);
  if (problem !== undefined) return refused("BAD_REQUEST", `Cannot join: ${problem}`);
  const known = command.node === undefined ? knownByDisk(state, info) : state.nodes.get(command.node);
  if (command.node !== undefined && known === undefined)
    return refused("NODE_NOT_FOUND", `Cannot join: node ${command.node} was never a member of cluster ${clusterId}`);
  return known === undefined ? joinNew(state, state.settings, info) : joinAgain(state.settings, known, info);
}

/** Who joins is told where the cluster's objects are, if not under its id. */
function joined({ clusterId, objects, restoreEpoch }: Settings, node: NodeId): PlacementReply {
  return { kind: "joined", clusterId, node, ...(restoreEpoch > 0 ? { objects, restoreEpoch } : {}) };
}

function joinNew(state: PlacementState, settings: Settings, info: NodeInfo): Decision {
  const node = nextNodeId(state.nodes);
  const events: Decided[] = [{ partition: nodePartition(node), event: { kind: EventKind.nodeJoined, body: { info } } }];
  for (const old of state.nodes.values()) {
    if (old.info.peer !== info.peer || old.standing === "lost" || old.standing === "removed") continue;
    const event = { kind: EventKind.nodeLeaving, body: { lost: true, replacedBy: node } } as const;
    events.push({ partition: nodePartition(old.node), event });
  }
  return decided(joined(settings, node), ...events);
}

function joinAgain(settings: Settings, known: NodeEntry, info: NodeInfo): Decision {
  const { node } = known;
  if (known.standing === "removed")
    return refused("NOT_A_MEMBER", `Cannot join: node ${node} was removed from the cluster; begin again with an empty data folder`);
  if (known.info.disk !== info.disk)
    return refused("NOT_A_MEMBER", `Cannot join: node ${node} has another data folder; begin again with an empty one`);
  const reply = joined(settings, node);
  if (sameInfo(known.info, info)) return decided(reply);
  return decided(reply, { partition: nodePartition(node), event: { kind: EventKind.nodeUpdated, body: { info } } });
}

export function decideLeave(state: PlacementState, node: NodeId): Decision {
  const entry = state.nodes.get(node);
  if (entry === undefined) return refused("NODE_NOT_FOUND", `Cannot leave: the cluster has no node ${node}`);
  if (entry.standing !== "member") return decided(done);
  if (isLast(state, node)) return refused("BAD_REQUEST", `Cannot leave: node ${node} is the last member; nothing could take its shards`);
  return decided(done, leaving(node, false));
}

/** Of a node that is gone for ever. */
export function decideRemove(state: PlacementState, node: NodeId): Decision {
  const entry = state.nodes.get(node);
  if (entry === undefined) return refused("NODE_NOT_FOUND", `Cannot remove node ${node}: the cluster has none of this number`);
  if (entry.standing === "removed") return decided({ kind: "removed", gone: true });
  if (shardsOn(state.map.shards.values(), node).length === 0 && !isLast(state, node))
    return decided(
      { kind: "removed", gone: true },
      { partition: nodePartition(node), event: { kind: EventKind.nodeRemoved, body: { reason: entry.standing } } },
    );
  if (entry.standing === "lost") return decided({ kind: "removed", gone: false });
  if (isLast(state, node))
    return refused("BAD_REQUEST", `Cannot remove node ${node}: it is the last member; nothing could take its shards`);
  return decided({ kind: "removed", gone: false }, leaving(node, true));
}

export function decideReplication(state: PlacementState, command: SetReplication): Decision {
  const problem = countProblem(command.count);
  if (problem !== undefined) return refused("BAD_REQUEST", `Cannot set the replication factor: ${problem}`);
  if (state.settings === undefined) return refused("STORE_UNAVAILABLE", "Cannot set the replication factor: the cluster is not made yet");
  if (state.settings.replicationWanted === command.count) return decided(done);
  const { count, reason = "" } = command;
  return decided(done, { partition: clusterPartition, event: { kind: EventKind.replicationWanted, body: { count, reason } } });
}

function leaving(node: NodeId, lost: boolean): Decided {
  return { partition: nodePartition(node), event: { kind: EventKind.nodeLeaving, body: { lost, replacedBy: 0 } } };
}

function isLast(state: PlacementState, node: NodeId): boolean {
  for (const each of state.nodes.values()) if (each.standing === "member" && each.node !== node) return false;
  return true;
}

/** A node whose answer was lost asks again: the same data folder is the same node. */
function knownByDisk(state: PlacementState, info: NodeInfo): NodeEntry | undefined {
  if (info.disk === "") return undefined;
  for (const entry of state.nodes.values()) if (entry.info.disk === info.disk) return entry;
  return undefined;
}

const fields = ["peer", "grpc", "http", "zone", "version", "protocol", "disk"] as const satisfies readonly (keyof NodeInfo)[];

const sameInfo = (a: NodeInfo, b: NodeInfo) => fields.every((field) => a[field] === b[field]);

function infoProblem(info: NodeInfo): string | undefined {
  for (const field of ["peer", "grpc", "http"] as const) {
    // A node may serve no clients.
    const problem = field !== "peer" && info[field] === "" ? undefined : addressProblem(info[field]);
    if (problem !== undefined) return `its ${field} address ${JSON.stringify(info[field])} ${problem}`;
  }
  return textProblem(info.zone) ?? textProblem(info.version) ?? textProblem(info.disk);
}

/** Others could not reach a loopback address: they would reach themselves. */
function loopbackProblem(state: PlacementState, info: NodeInfo, self: NodeId | undefined): string | undefined {
  const local = [info.peer, info.grpc, info.http].find((address) => address !== "" && isLoopbackAddress(address));
  if (local === undefined) return undefined;
  for (const { node, info: other, standing } of state.nodes.values()) {
    if (node === self || standing === "removed" || standing === "lost" || isLoopbackAddress(other.peer)) continue;
    return `it advertises ${local}, which only its own machine reaches, and node ${node} is at ${other.peer}; give it an address that others reach`;
  }
  return undefined;
}

function textProblem(text: string): string | undefined {
  if (utf8Bytes(text) > limits.nameBytesMax) return `a name has ${utf8Bytes(text)} bytes, at most ${limits.nameBytesMax} are allowed`;
  return text.isWellFormed() ? undefined : "a name is not well-formed Unicode";
}

function countProblem(count: number): string | undefined {
  return [1, 3, 5, 7].includes(count) ? undefined : `the replication factor is ${count}, want 1, 3, 5 or 7`;
}
