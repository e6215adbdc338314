/**
 * Majorities: which index a set of voters has, and how a vote stands. A joint configuration
 * needs both of its majorities; a majority of nobody agrees to everything.
 */
import type { NodeId } from "#core/base";

export type VoteResult = "pending" | "lost" | "won";

/** Highest number that a majority of `voters` has reached; Infinity without voters. One small sort. */
export function majorityIndex(voters: readonly NodeId[], reached: (voter: NodeId) => number): number {
  const count = voters.length;
  if (count === 0) return Number.POSITIVE_INFINITY;
  if (count === 1) return reached(voters[0] as NodeId);
  const sorted: number[] = [];
  for (const voter of voters) {
    const value = reached(voter);
    let at = sorted.length;
    while (at > 0 && (sorted[at - 1] as number) > value) {
      sorted[at] = sorted[at - 1] as number;
      at--;
    }
    sorted[at] = value;
  }
  return sorted[count - (count >> 1) - 1] as number;
}

export function jointIndex(incoming: readonly NodeId[], outgoing: readonly NodeId[], reached: (voter: NodeId) => number): number {
  const index = majorityIndex(incoming, reached);
  return outgoing.length === 0 ? index : Math.min(index, majorityIndex(outgoing, reached));
}

/** `vote` is undefined while a voter has not answered. */
export function majorityVote(voters: readonly NodeId[], vote: (voter: NodeId) => boolean | undefined): VoteResult {
  if (voters.length === 0) return "won";
  const needed = (voters.length >> 1) + 1;
  let granted = 0;
  let open = 0;
  for (const voter of voters) {
    const answer = vote(voter);
    if (answer === undefined) open++;
    else if (answer) granted++;
  }
  if (granted >= needed) return "won";
  return granted + open >= needed ? "pending" : "lost";
}

export function jointVote(
  incoming: readonly NodeId[],
  outgoing: readonly NodeId[],
  vote: (voter: NodeId) => boolean | undefined,
): VoteResult {
  const one = majorityVote(incoming, vote);
  const two = majorityVote(outgoing, vote);
  if (one === two) return one;
  return one === "lost" || two === "lost" ? "lost" : "pending";
}
