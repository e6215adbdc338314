/** What a member takes from its leader. */
import { confProblem, isVoter } from "./membership.ts";
import type { RaftState } from "./state.ts";
import { type Message, MessageKind, nobody, type SnapshotMeta } from "./types.ts";

const nothingRenewed: ReadonlySet<never> = new Set<never>();

export function onAppend(raft: RaftState, message: Message): void {
  const { log } = raft;
  if (message.index < log.committed) {
    raft.send(MessageKind.appendReply, message.from, { index: log.committed });
    return;
  }
  const last = log.take(message.index, message.logTerm, message.entries);
  if (last !== undefined) {
    log.commitTo(Math.min(message.commit, last));
    raft.send(MessageKind.appendReply, message.from, { index: last });
    return;
  }
  const hint = log.lastUpTo(Math.min(message.index, log.lastIndex()), message.logTerm);
  const where = { index: message.index, rejectHint: hint.index, logTerm: hint.term };
  raft.send(MessageKind.appendReply, message.from, { ...where, reject: true });
}

export function onHeartbeat(raft: RaftState, message: Message): void {
  // It left the group, forgot the log, and was taken in again before it had: the leader knows it by what it had.
  const isBlank = raft.log.lastIndex() === 0 && message.commit > 0;
  if (!isBlank) raft.log.commitTo(message.commit);
  // Made before the reply can leave: the leader counts on it from the tick that the reply echoes.
  if (raft.config.leases) raft.promisedTicks = raft.config.electionTicks;
  raft.send(MessageKind.heartbeatReply, message.from, { context: message.context, tick: message.tick, reject: isBlank });
}

/** The state as of the snapshot is already here: whoever steps this message has received and checked it. */
export function onSnapshot(raft: RaftState, message: Message): void {
  const index = restore(raft, message) ? raft.log.lastIndex() : raft.log.committed;
  // The sender may have lost its office while the state was brought: then it is the leader of now who goes on.
  const to = message.term < raft.term && raft.leader !== nobody ? raft.leader : message.from;
  raft.send(MessageKind.appendReply, to, { index });
}

/** Whether the snapshot is of this member's group and has something that it does not know to be committed. */
function isNews(raft: RaftState, snapshot: SnapshotMeta): boolean {
  if (snapshot.index <= raft.log.committed || confProblem(snapshot.conf) !== undefined) return false;
  return isVoter(snapshot.conf, raft.id) || snapshot.conf.learners.includes(raft.id);
}

/** Whether stepping the message would replace the log, so that the state has to be there before. */
export function wantsSnapshot(raft: RaftState, { term, snapshot }: Message): boolean {
  if (snapshot === undefined) return false;
  // A follower takes one of any term: what was committed is committed in every later one. A leader of an
  // older term follows as soon as it steps the message.
  const isTaken = term > raft.term || raft.role === "follower" || (term === raft.term && raft.role !== "leader");
  return isTaken && isNews(raft, snapshot) && !raft.log.matches(snapshot.index, snapshot.term);
}

/** False if the snapshot tells nothing new, or is none. */
function restore(raft: RaftState, { snapshot }: Message): boolean {
  if (snapshot === undefined || !isNews(raft, snapshot)) return false;
  if (raft.log.matches(snapshot.index, snapshot.term)) {
    // The log has all of it: only the commit index is news.
    raft.log.commitTo(snapshot.index);
    return false;
  }
  raft.log.restore(snapshot);
  raft.adoptConf(snapshot.conf, nothingRenewed);
  return true;
}
