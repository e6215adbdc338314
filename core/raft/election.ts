/** Elections: campaigning, voting, counting votes. */
import { asTerm } from "#core/base";
import { RaftEntryKind } from "#proto";
import { broadcastAppend } from "./leader.ts";
import { votersOf } from "./membership.ts";
import { jointVote } from "./quorum.ts";
import type { RaftState } from "./state.ts";
import { type Message, MessageKind, nobody } from "./types.ts";

type Campaign = "preVote" | "vote" | "transfer";

/** Begins an election, if this member may win one. */
export function campaign(raft: RaftState, how: Campaign): void {
  if (raft.role === "leader" || !raft.isPromotable()) return;
  // With a change in between, it would count the votes of a configuration that is past. If that
  // can't be told now, the next timeout asks again.
  if (raft.log.hasUnapplied(RaftEntryKind.config) !== false) return;
  requestVotes(raft, how);
}

function requestVotes(raft: RaftState, how: Campaign): void {
  if (how === "preVote") raft.becomePreCandidate();
  else raft.becomeCandidate();
  const kind = how === "preVote" ? MessageKind.preVote : MessageKind.vote;
  const term = how === "preVote" ? asTerm(raft.term + 1) : raft.term;
  for (const id of votersOf(raft.conf)) {
    if (id === raft.id) {
      // Counted like any other: when it is durable.
      raft.send(how === "preVote" ? MessageKind.preVoteReply : MessageKind.voteReply, id, { term });
      continue;
    }
    const { log } = raft;
    raft.send(kind, id, { term, index: log.lastIndex(), logTerm: log.lastTerm(), transfer: how === "transfer" });
  }
}

/** A leader was heard lately, or was promised that nobody else is helped. */
export function isBound(raft: RaftState): boolean {
  if (raft.promisedTicks > 0) return true;
  return raft.config.checkQuorum && raft.leader !== nobody && raft.electionElapsed < raft.config.electionTicks;
}

/** Answers a request for a vote or a pre-vote. A pre-vote binds to nothing. */
export function onVoteRequest(raft: RaftState, message: Message): void {
  const isPre = message.kind === MessageKind.preVote;
  const mayVote = raft.vote === message.from || (raft.vote === nobody && raft.leader === nobody) || (isPre && message.term > raft.term);
  const reply = isPre ? MessageKind.preVoteReply : MessageKind.voteReply;
  if (!mayVote || !raft.log.isUpToDate(message.index, message.logTerm)) {
    sendRejection(raft, reply, message);
    return;
  }
  // A granted pre-vote is answered in the term that was asked about, else the candidate would take it for an old one.
  raft.send(reply, message.from, { term: message.term });
  if (isPre) return;
  raft.electionElapsed = 0;
  raft.vote = message.from;
}

/**
 * A rejection says what is committed. Those who were voters of a configuration that is left may
 * be the only ones who know that it is left; a candidate that needs their votes, and can't get
 * them because their logs are longer, would need them for ever.
 */
export function sendRejection(raft: RaftState, reply: MessageKind, { from }: Message): void {
  const { committed } = raft.log;
  raft.send(reply, from, { term: raft.term, reject: true, commit: committed, logTerm: Math.max(raft.log.term(committed), 0) });
}

/** A vote for this member, or against it. The first answer of a voter counts. */
export function onVoteReply(raft: RaftState, message: Message): void {
  if (!raft.votes.has(message.from)) raft.votes.set(message.from, !message.reject);
  const result = jointVote(raft.conf.voters, raft.conf.votersOutgoing, (voter) => raft.votes.get(voter));
  if (result === "lost") raft.becomeFollower(raft.term, nobody);
  if (result !== "won") return;
  if (raft.role === "preCandidate") {
    requestVotes(raft, "vote");
    return;
  }
  raft.becomeLeader();
  broadcastAppend(raft);
}
