/** Bugs in Raft that the simulation must find: small changes to sources, made while they are loaded. */
export interface PlantedBug {
  readonly name: string;
  readonly story: string;
  readonly file: string;
  readonly find: string;
  readonly put: string;
  /** Invariants of which one must be reported as broken. */
  readonly breaks: readonly string[];
}

const bug = (name: string, story: string, file: string, [find, put]: readonly [string, string], breaks: readonly string[]): PlantedBug => ({
  name,
  story,
  file: `core/raft/${file}`,
  find,
  put,
  breaks,
});

export const plantedBugs: readonly PlantedBug[] = [
  bug(
    "vote-not-persisted",
    "After a crash a member votes for another in the same term",
    "raft.ts",
    ["return { entries, hardState, snapshot,", "return { entries, hardState: hardState && { ...hardState, vote: nobody }, snapshot,"],
    ["oneLeaderATerm", "InvariantError"],
  ),
  bug(
    "old-term-commit-by-counting",
    "A leader commits an entry of an earlier term because a majority has it",
    "state.ts",
    ["index > this.log.committed && this.log.matches(index, this.term)", "index > this.log.committed && index <= this.log.lastIndex()"],
    ["moreUpToDate", "committedLogsArePrefixes", "leaderCompleteness", "committedIsDurable", "quorumLog", "staleRead", "InvariantError"],
  ),
  bug(
    "no-up-to-date-check",
    "A vote is given to a candidate that lacks what the voter has",
    "election.ts",
    ["!mayVote || !raft.log.isUpToDate(message.index, message.logTerm)", "!mayVote"],
    ["moreUpToDate", "leaderCompleteness", "committedLogsArePrefixes", "InvariantError", "staleRead"],
  ),
  bug(
    "lease-from-ticks",
    "A lease is judged by the last tick that was counted, so a paused leader wakes up with it",
    "raft.ts",
    ["leaseTick(this.state, tick) > tick", "leaseTick(this.state, this.state.now) > Math.min(tick, this.state.now)"],
    ["staleRead"],
  ),
  bug(
    "lease-outlives-transfer",
    "A leader that told another to campaign goes on answering by its lease",
    "lease.ts",
    ['raft.role !== "leader" || raft.hasEndedLease', 'raft.role !== "leader"'],
    ["staleRead"],
  ),
  bug(
    "read-without-majority",
    "A read is answered by a leader that nobody confirmed",
    "leader.ts",
    [
      "if (raft.hasCommittedInTerm()) confirmRead(raft, context);",
      "if (raft.hasCommittedInTerm()) raft.readStates.push(readState(context, raft.log.committed));",
    ],
    ["staleRead"],
  ),
  bug(
    "ack-before-durable",
    "A follower acknowledges entries that it has not written yet",
    "state.ts",
    ["const promises = kind === MessageKind.appendReply ||", "const promises = (kind === MessageKind.appendReply && to === this.id) ||"],
    ["committedIsDurable", "quorumLog"],
  ),
  bug(
    "conflict-kept",
    "A follower keeps an entry of its own where its leader has another",
    "raft-log.ts",
    ["entries.findIndex((entry) => !this.matches(entry.index, entry.term))", "entries.findIndex((entry) => entry.index > this.last)"],
    ["logMatching", "committedLogsArePrefixes", "electionSafety", "committedIsDurable", "InvariantError"],
  ),
  bug(
    "commit-past-outgoing",
    "While a joint configuration is in force, the majority of the new voters alone commits",
    "state.ts",
    [
      "const index = jointIndex(this.conf.voters, this.conf.votersOutgoing, (voter)",
      "const index = jointIndex(this.conf.voters, [], (voter)",
    ],
    ["committedIsDurable", "quorumLog"],
  ),
  bug(
    "forgotten-joint",
    "A member whose log tells that a joint configuration was committed campaigns with the voters of before it",
    "raft.ts",
    ["if (state.config.checkConfChanges) state.log.commitTo", "if (state.config.applyUnstable) state.log.commitTo"],
    ["moreUpToDate", "leaderCompleteness", "quorumLog", "committedIsDurable", "committedLogsArePrefixes", "oneLeaderATerm"],
  ),
];
