/** The cluster as people are shown it: members, shards and the whole, from the view and the latest figures. */
import type { NodeId } from "#core/base";
import { placementShard, rangeText } from "#core/base";
import { type ClusterView, holders, isSettled, type NodeEntry, type ShardEntry, type ShardLoadReport } from "#core/placement";
import { type ClusterMemberInit, type ClusterStatusInit, MemberState, type ReplicaInfoInit, type ShardInfoInit } from "#proto";
import type { Page, PageRequest } from "../service/cluster-control.ts";
import { type Figures, isReachable } from "./figures.ts";

/** What a page is made of. */
export interface Shown {
  readonly view: ClusterView;
  readonly figures: Figures;
  readonly self: NodeId;
  /** Wall clock in milliseconds. */
  readonly nowMs: number;
}

export function pageOf<Item>(
  items: readonly Item[],
  position: (item: Item) => number | string,
  page: PageRequest<number | string>,
): Page<Item> {
  const { after, limit } = page;
  const from = after === undefined ? 0 : items.findIndex((item) => position(item) > after);
  if (from < 0) return { items: [], isMore: false };
  return { items: items.slice(from, from + limit), isMore: items.length > from + limit };
}

export const allShards = (view: ClusterView): ShardEntry[] =>
  view.placement === undefined ? [...view.shards.values()] : [view.placement, ...view.shards.values()];

/** All but what its disk holds, which it is asked. */
export function memberOf(shown: Shown, entry: NodeEntry): ClusterMemberInit {
  const { view, figures, self, nowMs } = shown;
  const { node, info, joinedMs, standing, sinceMs } = entry;
  const isHere = isReachable(figures, node, self);
  const heard = figures.nodes?.get(node);
  const state = stateOf(standing, isHere, figures.nodes !== undefined);
  const shards = allShards(view);
  const silentSince = standing === "lost" ? sinceMs : heard === undefined ? 0 : nowMs - heard.silentMs;
  return {
    node,
    peer: info.peer,
    grpc: info.grpc,
    http: info.http,
    zone: info.zone,
    version: info.version,
    state,
    unreachableSinceMs: state === MemberState.unreachable ? silentSince : 0,
    shardsLed: shards.filter((each) => leaderOf(shown, each) === node).length,
    replicas: shards.filter((each) => holders(each).includes(node)).length,
    joinedMs,
    placementVoter: view.placement?.voters.includes(node) === true,
  };
}

/** Where nobody can say whether a node is reachable, it counts as what placement has it for. */
function stateOf(standing: NodeEntry["standing"], isHere: boolean, isKnown: boolean): MemberState {
  if (standing === "removed") return MemberState.removed;
  if (standing === "lost") return MemberState.unreachable;
  if (isKnown && !isHere) return MemberState.unreachable;
  return standing === "leaving" ? MemberState.leaving : MemberState.live;
}

export function leaderOf({ figures }: Shown, entry: ShardEntry): NodeId | undefined {
  return entry.shard === placementShard ? figures.leader : entry.lease?.node;
}

/** What the shard's leader told last. */
function loadOf(shown: Shown, entry: ShardEntry): { readonly load: ShardLoadReport; readonly silentMs: number } | undefined {
  const leader = leaderOf(shown, entry);
  const heard = leader === undefined ? undefined : shown.figures.nodes?.get(leader);
  const load = heard?.loads.get(entry.shard);
  return heard === undefined || load?.leads !== true ? undefined : { load, silentMs: heard.silentMs };
}

export function shardInfo(shown: Shown, entry: ShardEntry): ShardInfoInit {
  const { shard, range, lease } = entry;
  const told = loadOf(shown, entry);
  const leader = leaderOf(shown, entry);
  const keys = shard === placementShard ? { first: 0, last: 0, range: "placement" } : { ...range, range: rangeText(range) };
  return {
    shard,
    ...keys,
    leader: leader ?? 0,
    epoch: lease?.epoch ?? 0,
    term: lease?.term ?? 0,
    lastIndex: told?.load.lastIndex ?? 0,
    replica: holders(entry).map((node) => replicaInfo(shown, entry, node)),
    bytes: told?.load.bytes ?? 0,
    rateMilli: Math.round((told?.load.eventsPerSecond ?? 0) * 1000),
    change: changeText(entry),
    reportedMs: told === undefined ? 0 : shown.nowMs - told.silentMs,
  };
}

function replicaInfo(shown: Shown, entry: ShardEntry, node: NodeId): ReplicaInfoInit {
  const told = loadOf(shown, entry);
  const isLeader = leaderOf(shown, entry) === node;
  const lag = isLeader ? 0 : told?.load.lag.get(node);
  const isKnown = told !== undefined && lag !== undefined;
  return {
    node,
    learner: entry.learners.includes(node),
    matchIndex: isKnown ? Math.max(told.load.lastIndex - lag, 0) : 0,
    lag: lag ?? 0,
    progress: isLeader ? "leader" : isKnown ? "replicate" : "",
    live: isReachable(shown.figures, node, shown.self),
  };
}

/** The change under way, in words; empty = none. */
export function changeText(entry: ShardEntry): string {
  const parts: string[] = [];
  const { change, voters, wanted } = entry;
  switch (change?.kind) {
    case "split":
      parts.push(`splits off shard ${change.child}`);
      break;
    case "merge-left":
      parts.push(`is to take in shard ${change.right}`);
      break;
    case "merge-right":
      parts.push(`is to be taken in by shard ${change.left}`);
      break;
    case "absorb":
      parts.push(`takes in shard ${change.right}`);
      break;
    default:
  }
  if (!isSettled(entry)) parts.push(`moves from nodes ${voters.join(", ")} to ${wanted.join(", ")}`);
  return parts.join("; ");
}

type WholeStatus = Omit<ClusterStatusInit, "phase" | "seed" | "version" | "peer" | "clusterId" | "node">;

/** The cluster's part of a status. */
export function statusOf(shown: Shown): WholeStatus {
  const { view, figures, self } = shown;
  const nodes = [...view.nodes.values()].filter(({ standing }) => standing !== "removed");
  const shards = allShards(view);
  const factor = largestOdd(Math.min(view.replicationWanted, nodes.filter(({ standing }) => standing === "member").length));
  const isThere = new Set(nodes.filter(({ standing }) => standing !== "lost").map(({ node }) => node));
  const isLive = (node: NodeId) => isThere.has(node) && (figures.nodes === undefined || isReachable(figures, node, self));
  const live = nodes.filter(({ node }) => isLive(node)).length;
  const isShort = (each: ShardEntry) =>
    each.voters.filter(isLive).length < Math.max(each.wanted.length, each.shard === placementShard ? 1 : factor);
  const isHeadless = (each: ShardEntry) => {
    const leader = leaderOf(shown, each);
    return leader === undefined || !isLive(leader);
  };
  const versions = new Map<string, number>();
  for (const { info } of nodes) versions.set(info.version, (versions.get(info.version) ?? 0) + 1);
  const moving = shards.flatMap((each) => (changeText(each) === "" ? [] : [`shard ${each.shard} ${changeText(each)}`]));
  const going = nodes.flatMap(({ node, standing }) =>
    standing === "leaving" || standing === "lost" ? [`node ${node} is ${standing}`] : [],
  );
  return {
    placementLeader: figures.leader ?? 0,
    placementVoter: [...(view.placement?.voters ?? [])],
    epoch: view.mapEpoch,
    nodesLive: live,
    nodesTotal: nodes.length,
    shardsTotal: view.shards.size,
    shardsUnderReplicated: shards.filter(isShort).length,
    shardsWithoutLeader: shards.filter(isHeadless).length,
    versions: [...versions].sort(([a], [b]) => (a < b ? -1 : 1)).map(([version, count]) => ({ version, nodes: count })),
    replicationFactor: factor,
    replicationWanted: view.replicationWanted,
    replication: view.replicationSet,
    underWay: [...going, ...moving],
  };
}

const largestOdd = (count: number) => Math.max(1, count % 2 === 0 ? count - 1 : count);
