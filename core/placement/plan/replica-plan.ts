/**
 * Which nodes are to hold a shard: as many as wanted, none that is gone, no two in one zone.
 *
 * Only members that are heard of are given replicas. A dead node's are replaced, never dropped: a
 * shard gets smaller only when the cluster has fewer members.
 */
import type { NodeId } from "#core/base";
import { isSettled, type ShardEntry, sameNodes, sorted } from "../shard-entry.ts";
import type { Outlook } from "./outlook.ts";

const placementVotersMax = 5;

const largestOdd = (count: number) => Math.max(1, count % 2 === 0 ? count - 1 : count);

/** Replicas that a shard is to have: the largest odd number that both the wish and the members allow. */
export function replicationFactor(outlook: Outlook, entry: ShardEntry): number {
  const wish = entry.shard === 0 ? placementVotersMax : outlook.view.replicationWanted;
  return largestOdd(Math.min(wish, outlook.members().length));
}

/** Has what is gone replaced, then what is missing added. Those with the fewest live replicas come first. */
export function planReplicas(outlook: Outlook): void {
  const live = (entry: ShardEntry) => entry.voters.filter((node) => outlook.isReachable(node)).length;
  // Placement comes before all: without it nothing is repaired.
  const byNeed = outlook.shards().map((entry) => ({ entry, need: entry.shard === 0 ? -1 : live(entry) }));
  for (const { entry } of byNeed.sort((a, b) => a.need - b.need)) {
    // A move whose target is gone is aimed anew; that is no second one.
    const isStuck = !isSettled(entry) && entry.wanted.some((node) => isGone(outlook, node) && !entry.voters.includes(node));
    if (!isStuck && (!isSettled(entry) || outlook.movesUnderWay() >= outlook.options.movesMax)) continue;
    if (entry.change !== undefined || outlook.taken.has(entry.shard) || !outlook.hasQuorum(entry)) continue;
    const next = nextMembers(outlook, entry);
    if (next !== undefined && !sameNodes(sorted(next.nodes), entry.wanted)) outlook.wantReplicas(entry, next.nodes, next.why);
    else if (isStuck && entry.outgoing.length === 0) outlook.wantReplicas(entry, entry.voters, "where it was to move is gone");
  }
}

const isGone = (outlook: Outlook, node: NodeId) => !outlook.isMember(node) || outlook.isDead(node);

interface NextMembers {
  readonly nodes: readonly NodeId[];
  readonly why: string;
}

function nextMembers(outlook: Outlook, entry: ShardEntry): NextMembers | undefined {
  const size = replicationFactor(outlook, entry);
  const { wanted } = entry;
  if (wanted.length < size) return grown(outlook, entry, size);
  if (wanted.length > size) return shrunk(outlook, entry, size);
  const gone = mostGone(outlook, wanted);
  if (gone !== undefined) return replaced(outlook, entry, gone);
  return spread(outlook, entry);
}

function grown(outlook: Outlook, entry: ShardEntry, size: number): NextMembers | undefined {
  const nodes = [...entry.wanted];
  while (nodes.length < size) {
    const best = bestNode(outlook, nodes);
    if (best === undefined) break;
    nodes.push(best);
  }
  while (nodes.length > entry.wanted.length && nodes.length % 2 === 0) nodes.pop();
  return nodes.length > entry.wanted.length ? { nodes, why: `it is to have ${size} replicas` } : replacedIfGone(outlook, entry);
}

/** There are not enough to add, but one for another. */
function replacedIfGone(outlook: Outlook, entry: ShardEntry): NextMembers | undefined {
  const gone = mostGone(outlook, entry.wanted);
  return gone === undefined ? undefined : replaced(outlook, entry, gone);
}

function shrunk(outlook: Outlook, entry: ShardEntry, size: number): NextMembers | undefined {
  const nodes = [...entry.wanted];
  while (nodes.length > size) nodes.splice(nodes.indexOf(leastNeeded(outlook, entry, nodes)), 1);
  const isSafe = nodes.filter((node) => outlook.isReachable(node)).length * 2 > nodes.length;
  return isSafe ? { nodes, why: `the cluster has members for ${size} replicas` } : undefined;
}

function leastNeeded(outlook: Outlook, entry: ShardEntry, nodes: readonly NodeId[]): NodeId {
  const rank = (node: NodeId): number[] => [
    outlook.isDead(node) ? 0 : 1,
    outlook.isMember(node) ? 1 : 0,
    outlook.isReachable(node) ? 1 : 0,
    // Whoever holds the shard already needs no copy of it.
    entry.voters.includes(node) ? 1 : 0,
    outlook.crowding(nodes.filter((each) => each !== node)),
    outlook.leaderOf(entry) === node ? 1 : 0,
    -outlook.replicaCount(node),
    node,
  ];
  return least(nodes, rank) as NodeId;
}

/** Lost ones come before dead ones, those before leaving ones. */
function mostGone(outlook: Outlook, nodes: readonly NodeId[]): NodeId | undefined {
  const gone = nodes.filter((node) => isGone(outlook, node));
  return least(gone, (node) => [outlook.isMember(node) ? 1 : 0, outlook.isDead(node) ? 0 : 1, node]);
}

/** One at a time: what stays keeps the quorum. */
function replaced(outlook: Outlook, entry: ShardEntry, gone: NodeId): NextMembers | undefined {
  if (isHandingOver(outlook, entry, gone)) return undefined;
  const kept = entry.wanted.filter((node) => node !== gone);
  const best = bestNode(outlook, kept, gone);
  if (best === undefined) return undefined;
  return { nodes: [...kept, best], why: `node ${gone} ${outlook.isDead(gone) ? "is gone" : "leaves"}` };
}

/** A leaving node first hands over what it leads, where another can take it. */
export function isHandingOver(outlook: Outlook, entry: ShardEntry, leaving: NodeId): boolean {
  if (outlook.leaderOf(entry) !== leaving || outlook.isDead(leaving) || !outlook.isReachable(leaving)) return false;
  const since = outlook.node(leaving)?.sinceMs ?? 0;
  return outlook.nowMs - since < outlook.options.handOverMs && entry.voters.some((node) => node !== leaving && outlook.isOpen(node));
}

/** Moves one of two that share a zone to a zone that has none. */
function spread(outlook: Outlook, entry: ShardEntry): NextMembers | undefined {
  const before = outlook.crowding(entry.wanted);
  if (before === 0) return undefined;
  const crowded = entry.wanted.filter((node) => outlook.crowding(entry.wanted.filter((each) => each !== node)) < before);
  const from = least(crowded, (node) => [outlook.leaderOf(entry) === node ? 1 : 0, -outlook.replicaCount(node), node]);
  if (from === undefined) return undefined;
  const kept = entry.wanted.filter((node) => node !== from);
  const to = bestNode(outlook, kept, from);
  if (to === undefined || outlook.crowding([...kept, to]) >= before) return undefined;
  return { nodes: [...kept, to], why: `two of its replicas are in ${outlook.zone(from)}` };
}

/** The node to add to `nodes`: in a zone of its own if there is one, then with the fewest replicas. */
export function bestNode(outlook: Outlook, nodes: readonly NodeId[], except?: NodeId): NodeId | undefined {
  const open = outlook.members().filter(({ node }) => node !== except && !nodes.includes(node) && outlook.isOpen(node));
  return least(
    open.map((each) => each.node),
    (node) => [outlook.crowding([...nodes, node]), outlook.replicaCount(node), node],
  );
}

/** The one whose rank comes first, compared number by number. */
export function least<T>(items: readonly T[], rank: (item: T) => readonly number[]): T | undefined {
  let best: { readonly item: T; readonly rank: readonly number[] } | undefined;
  for (const item of items) {
    const own = rank(item);
    if (best === undefined || isBefore(own, best.rank)) best = { item, rank: own };
  }
  return best?.item;
}

function isBefore(a: readonly number[], b: readonly number[]): boolean {
  for (let i = 0; i < a.length; i++) {
    const difference = (a[i] as number) - (b[i] as number);
    if (difference !== 0) return difference < 0;
  }
  return false;
}
