/** Nodes on their way out: what they lead is handed over, and who holds nothing any more is removed. */
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
    const able = entry.voters.filter((node) => node !== leader && outlook.isOpen(node));
    const to = least(able, (node) => [outlook.load(entry)?.lag.get(node) ?? 0, outlook.leaderCount(node), node]);
    if (to !== undefined && !outlook.taken.has(entry.shard)) outlook.transfer(entry, to, `node ${leader} leaves`);
  }
}
