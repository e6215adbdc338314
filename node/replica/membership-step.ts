/**
 * What a shard's leader does next so that the group's membership becomes the one that is wanted.
 *
 * Level-triggered: it is asked again and again with what is, so a leader that dies half-way leaves
 * nothing to be cleaned up. New members first learn the log, then all voters change at once by
 * joint consensus; a leader that is not to stay hands over first.
 */
import type { NodeId } from "#core/base";

export interface MembershipNow {
  readonly self: NodeId;
  readonly voters: readonly NodeId[];
  readonly learners: readonly NodeId[];
  /** A change is under way: a joint configuration, or one that is not applied yet. */
  readonly isChanging: boolean;
  /** Index that each member has durably, by what this leader knows. */
  readonly match: ReadonlyMap<NodeId, number>;
  readonly lastIndex: number;
  /** Members that answered within the last election timeout. */
  readonly active: ReadonlySet<NodeId>;
}

export type MembershipStep =
  | { readonly kind: "none" }
  /** Waiting for members to catch up. */
  | { readonly kind: "wait"; readonly for: readonly NodeId[] }
  | { readonly kind: "add-learners"; readonly nodes: readonly NodeId[] }
  | { readonly kind: "remove"; readonly nodes: readonly NodeId[] }
  | { readonly kind: "change-voters"; readonly add: readonly NodeId[]; readonly remove: readonly NodeId[] }
  | { readonly kind: "transfer"; readonly to: NodeId };

/** A learner this near to the log's end becomes a voter: it costs the group no more than a slow member. */
const lagMax = 4096;

export function membershipStep(now: MembershipNow, wanted: readonly NodeId[]): MembershipStep {
  if (now.isChanging || wanted.length === 0) return { kind: "none" };
  const missing = wanted.filter((node) => !now.voters.includes(node));
  const strangers = missing.filter((node) => !now.learners.includes(node));
  if (strangers.length > 0) return { kind: "add-learners", nodes: strangers };
  // One that has taken nothing yet may not be there at all: a group that counts on it could commit nothing.
  const isBehind = (match: number) => match === 0 || match + lagMax < now.lastIndex;
  const behind = missing.filter((node) => isBehind(now.match.get(node) ?? 0) || !now.active.has(node));
  if (behind.length > 0) return { kind: "wait", for: behind };
  const unwanted = now.voters.filter((node) => !wanted.includes(node));
  if (missing.length > 0 && unwanted.includes(now.self))
    return { kind: "change-voters", add: missing, remove: unwanted.filter((n) => n !== now.self) };
  if (unwanted.includes(now.self)) return handOver(now, wanted);
  if (missing.length > 0 || unwanted.length > 0) return { kind: "change-voters", add: missing, remove: unwanted };
  const idle = now.learners.filter((node) => !wanted.includes(node));
  return idle.length > 0 ? { kind: "remove", nodes: idle } : { kind: "none" };
}

/** To the wanted voter that has most of the log. */
function handOver(now: MembershipNow, wanted: readonly NodeId[]): MembershipStep {
  const able = wanted.filter((node) => now.voters.includes(node) && now.active.has(node));
  able.sort((a, b) => (now.match.get(b) ?? 0) - (now.match.get(a) ?? 0) || a - b);
  const to = able[0];
  return to === undefined ? { kind: "wait", for: wanted } : { kind: "transfer", to };
}
