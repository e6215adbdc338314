/**
 * Evens out replicas and leaders over the nodes.
 *
 * A step is taken only where it lowers the difference between two nodes that are further apart
 * than the band, and never puts more replicas of a shard into one zone. So each step lowers the
 * sum of squares, and a balanced cluster is left alone.
 */
import type { NodeId } from "#core/base";
import type { ShardEntry } from "../shard-entry.ts";
import { mergeable } from "./key-plan.ts";
import type { Outlook } from "./outlook.ts";

/** Evens out replicas while nothing else moves. */
export function planReplicaBalance(outlook: Outlook): void {
  const nodes = openNodes(outlook);
  const held = new Map<NodeId, ShardEntry[]>(nodes.map((node) => [node, []]));
  const merged = mergeable(outlook);
  for (const entry of outlook.view.shards.values()) {
    if (!merged.has(entry.shard)) for (const node of entry.wanted) held.get(node)?.push(entry);
  }
  const count = (node: NodeId) => outlook.replicaCount(node);
  while (outlook.movesUnderWay() < outlook.options.movesMax) {
    const move = firstMove(outlook, nodes, held, bandOf(outlook, nodes, count));
    if (move === undefined) return;
    const { entry, from, to } = move;
    const kept = outlook.wanted(entry).filter((node) => node !== from);
    outlook.wantReplicas(entry, [...kept, to], `node ${from} holds ${count(from)} replicas, node ${to} ${count(to)}`);
  }
}

interface Move {
  readonly entry: ShardEntry;
  readonly from: NodeId;
  readonly to: NodeId;
}

function firstMove(outlook: Outlook, nodes: readonly NodeId[], held: ReadonlyMap<NodeId, ShardEntry[]>, band: number): Move | undefined {
  const count = (node: NodeId) => outlook.replicaCount(node);
  const ascending = [...nodes].sort((a, b) => count(a) - count(b) || a - b);
  for (const from of [...ascending].reverse()) {
    const movable = (held.get(from) ?? []).filter((entry) => outlook.isIdle(entry) && outlook.hasQuorum(entry));
    // Moving what the node does not lead disturbs nobody.
    movable.sort((a, b) => Number(outlook.leaderOf(a) === from) - Number(outlook.leaderOf(b) === from) || a.shard - b.shard);
    for (const to of ascending) {
      if (count(from) - count(to) <= band) break;
      const entry = movable.find((each) => mayMove(outlook, each, from, to));
      if (entry !== undefined) return { entry, from, to };
    }
  }
  return undefined;
}

function mayMove(outlook: Outlook, entry: ShardEntry, from: NodeId, to: NodeId): boolean {
  const { wanted } = entry;
  if (wanted.includes(to)) return false;
  return outlook.crowding(wanted.map((node) => (node === from ? to : node))) <= outlook.crowding(wanted);
}

/** Evens out who leads, of shards whose keys have rested. Two nodes that share no shard are evened out through others. */
export function planLeaderBalance(outlook: Outlook): void {
  const nodes = openNodes(outlook);
  const count = (node: NodeId) => outlook.leaderCount(node);
  const band = bandOf(outlook, nodes, count);
  for (const entry of outlook.view.shards.values()) {
    const from = outlook.leaderOf(entry);
    if (from === undefined || !outlook.isOpen(from) || !outlook.isIdle(entry) || !entry.voters.includes(from)) continue;
    if (!outlook.isSettledFor(entry, outlook.options.leadRestMs)) continue;
    if (outlook.steps.length >= outlook.options.movesMax) return;
    const load = outlook.load(entry);
    // Whoever lags would stop the shard while it catches up.
    const able = entry.voters.filter((node) => outlook.isOpen(node) && (load?.lag.get(node) ?? 0) <= lagMax);
    const to = able.sort((a, b) => count(a) - count(b) || a - b)[0];
    if (to === undefined || count(from) - count(to) <= band) continue;
    outlook.transfer(entry, to, `node ${from} leads ${count(from)} shards, node ${to} ${count(to)}`);
  }
}

const lagMax = 1000;

const openNodes = (outlook: Outlook): NodeId[] =>
  outlook
    .members()
    .map((each) => each.node)
    .filter((node) => outlook.isOpen(node));

/** At least 1: a difference of one can't be lowered. */
function bandOf(outlook: Outlook, nodes: readonly NodeId[], count: (node: NodeId) => number): number {
  const total = nodes.reduce((sum, node) => sum + count(node), 0);
  return Math.max(1, Math.floor((total / Math.max(1, nodes.length)) * outlook.options.balanceBand));
}
