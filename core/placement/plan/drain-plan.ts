/** Nodes that are not to lead: what they lead is handed over. Of those on their way out, who holds nothing any more is removed. */
import type { ShardEntry } from "../shard-entry.ts";
import type { Outlook } from "./outlook.ts";
import { least } from "./replica-plan.ts";

export function planRemovals(outlook: Outlook): void {
  for (const { node, standing } of outlook.view.nodes.values()) {
    if ((standing !== "leaving" && standing !== "lost") || outlook.holds(node)) continue;
    outlook.command(undefined, { kind: "remove", node }, `node ${node} holds nothing any more`);
  }
}

export function planHandOvers(outlook: Outlook): void {
  for (const entry of outlook.shards()) {
    const leader = outlook.leaderOf(entry);
    if (outlook.steps.length >= outlook.options.movesMax) return;
    if (leader === undefined || outlook.node(leader)?.standing !== "leaving" || !outlook.isReachable(leader)) continue;
    handOver(outlook, entry, `node ${leader} leaves`);
  }
}

/** Who can write nothing gives its leads to who can. Where all are full nothing is better than what is. */
export function planSpace(outlook: Outlook): void {
  for (const entry of outlook.shards()) {
    const leader = outlook.leaderOf(entry);
    if (outlook.steps.length >= outlook.options.movesMax) return;
    if (leader === undefined || !outlook.isFull(leader) || !outlook.isReachable(leader)) continue;
    handOver(outlook, entry, `the disk of node ${leader} is full`);
    // Before a shard has its new leader, placement has to grant it the lease, which is a write.
    if (entry.shard === 0) return;
  }
}

function handOver(outlook: Outlook, entry: ShardEntry, why: string): void {
  const able = entry.voters.filter((node) => node !== outlook.leaderOf(entry) && outlook.isOpen(node));
  const to = least(able, (node) => [outlook.load(entry)?.lag.get(node) ?? 0, outlook.leaderCount(node), node]);
  if (to !== undefined && !outlook.taken.has(entry.shard)) outlook.transfer(entry, to, why);
}
