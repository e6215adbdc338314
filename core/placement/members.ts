/** Pages of the cluster's nodes, by id. */
import type { NodeId, Rejection } from "#core/base";
import type { NodeEntry } from "./node-entry.ts";
import type { ClusterView } from "./view.ts";

export const pageDefault = 100;
export const pageMax = 1000;

export interface MemberPage {
  readonly members: readonly NodeEntry[];
  /** For the next page; empty = this is the last. */
  readonly next: string;
}

/**
 * Up to `limit` nodes (0 = 100, at most 1000) behind where `token` ends; the first page has the
 * empty token. A token stays good whatever changes: a node that is there from the first page to
 * the last is seen exactly once. Refuses with BAD_REQUEST what is no token.
 */
export function pageOfMembers(
  view: ClusterView,
  limit: number,
  token: string,
  options: { readonly removed?: boolean } = {},
): MemberPage | Rejection {
  if (!/^(?:|after-\d{1,15})$/.test(token))
    return { reject: "BAD_REQUEST", message: `Cannot list members: ${JSON.stringify(token)} is no page token` };
  if (!Number.isInteger(limit) || limit < 0)
    return { reject: "BAD_REQUEST", message: `Cannot list members: the limit is ${limit}, want 0 or more` };
  const after = token === "" ? 0 : Number(token.slice("after-".length));
  const size = limit === 0 ? pageDefault : Math.min(limit, pageMax);
  const members: NodeEntry[] = [];
  for (const entry of view.nodes.values()) {
    if (entry.node <= after || (entry.standing === "removed" && options.removed !== true)) continue;
    // One more is there: a page that is full tells whether it is the last.
    if (members.length === size) return { members, next: tokenAfter((members.at(-1) as NodeEntry).node) };
    members.push(entry);
  }
  return { members, next: "" };
}

const tokenAfter = (node: NodeId) => `after-${node}`;
