/**
 * Nodes of the cluster: who they are, and where they stand.
 *
 * An id is given once. A removed node stays in the registry by its id, so that it is known for
 * what it is when it comes back.
 */
import { asNodeId, type NodeId, type Partition } from "#core/base";
import { type NodeInfo, type NodeState, NodeStanding as StandingNumber } from "#proto";

/**
 * `leaving`: gives its replicas away, then it is removed. `lost`: does not come back, so its
 * replicas are replaced without it; then it is removed.
 */
export type NodeStanding = "member" | "leaving" | "lost" | "removed";

export interface NodeEntry {
  readonly node: NodeId;
  readonly info: NodeInfo;
  readonly standing: NodeStanding;
  /** The node that joined under its address, where one did. */
  readonly replacedBy: NodeId | undefined;
  readonly joinedMs: number;
  /** When its standing changed last. */
  readonly sinceMs: number;
  /** Version of the view in which it changed last. */
  readonly version: number;
}

const prefix = "node/";

export const nodePartition = (node: NodeId) => `${prefix}${node}` as Partition;

/** Node of a partition of nodes, or undefined for a partition of another kind. */
export function nodeOfPartition(partition: string): NodeId | undefined {
  if (!partition.startsWith(prefix)) return undefined;
  const number = Number(partition.slice(prefix.length));
  return Number.isSafeInteger(number) && number > 0 ? asNodeId(number) : undefined;
}

export function nextNodeId(nodes: ReadonlyMap<NodeId, NodeEntry>): NodeId {
  let last = 0;
  for (const node of nodes.keys()) last = Math.max(last, node);
  return asNodeId(last + 1);
}

const standings: Readonly<Record<NodeStanding, number>> = {
  member: StandingNumber.member,
  leaving: StandingNumber.leaving,
  lost: StandingNumber.lost,
  removed: StandingNumber.removed,
};
const byNumber = new Map(Object.entries(standings).map(([name, number]) => [number, name as NodeStanding]));

export const emptyInfo: NodeInfo = { peer: "", grpc: "", http: "", zone: "", version: "", protocol: 0, disk: "" };

export function saveNode(entry: NodeEntry): NodeState {
  const { node, info, joinedMs, sinceMs, version } = entry;
  return { node, info, standing: standings[entry.standing], replacedBy: entry.replacedBy ?? 0, joinedMs, sinceMs, version };
}

export function loadNode(saved: NodeState): NodeEntry {
  return {
    node: asNodeId(saved.node),
    info: saved.info ?? emptyInfo,
    // A standing of a later version: it takes no replicas, and nothing is taken from it.
    standing: byNumber.get(saved.standing) ?? "leaving",
    replacedBy: saved.replacedBy === 0 ? undefined : asNodeId(saved.replacedBy),
    joinedMs: saved.joinedMs,
    sinceMs: saved.sinceMs,
    version: saved.version,
  };
}
