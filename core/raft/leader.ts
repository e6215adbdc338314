/** What a leader does: replicate, count acknowledgements, beat, hand over. */
import { assert, type NodeId } from "#core/base";
import { RaftEntryKind } from "#proto";
import { confChangeOf, isJoint, leavesJoint } from "./membership.ts";
import type { Progress } from "./progress.ts";
import { jointVote } from "./quorum.ts";
import { readState } from "./reads.ts";
import type { RaftState } from "./state.ts";
import { type Message, MessageKind, nobody, type Proposed } from "./types.ts";

/** An entry to be: its term and index are given by its place. */
export interface Proposal {
  readonly kind: RaftEntryKind;
  readonly data: Uint8Array;
}

/** Why a change of membership does not fit now, or undefined. Throws `CodecError` if `data` holds none. */
export function confChangeProblem(raft: RaftState, data: Uint8Array): string | undefined {
  const change = confChangeOf(data);
  if (raft.pendingConfIndex > raft.log.applied)
    return `possible unapplied conf change at index ${raft.pendingConfIndex} (applied to ${raft.log.applied})`;
  const leaves = leavesJoint(change);
  if (isJoint(raft.conf) && change.changes.length > 0) return "must transition out of joint config first";
  return !isJoint(raft.conf) && leaves ? "not in joint state; refusing empty conf change" : undefined;
}

/**
 * Appends all of `proposals` or none. O(1) an entry, and no message while the leader is the only
 * member.
 */
export function propose(raft: RaftState, proposals: readonly Proposal[]): Proposed {
  if (raft.role !== "leader" || !raft.progress.has(raft.id)) return "notLeader";
  if (raft.transferee !== nobody) return "transferring";
  assert(proposals.length > 0, "Cannot propose: there are no entries");
  let bytes = 0;
  let changes = 0;
  for (const each of proposals) {
    bytes += each.data.length;
    if (each.kind !== RaftEntryKind.config) continue;
    if (raft.config.checkConfChanges && (++changes > 1 || confChangeProblem(raft, each.data) !== undefined)) return "refused";
  }
  // An entry of any size is taken when nothing waits: else a big one would never be.
  if (raft.uncommittedBytes > 0 && bytes > 0 && raft.uncommittedBytes + bytes > raft.config.maxUncommittedBytes) return "full";
  for (const each of proposals) {
    if (each.kind === RaftEntryKind.config) {
      raft.pendingConfIndex = raft.log.lastIndex() + 1;
      raft.traceEvent("ChangeConf", { changes: confChangeOf(each.data).changes });
    }
    raft.pushEntry(each.kind, each.data);
  }
  raft.acknowledgeOwn();
  broadcastAppend(raft);
  return "ok";
}

export function broadcastAppend(raft: RaftState): void {
  if (raft.members.length === 1) return;
  for (const each of raft.members) if (each.id !== raft.id) sendAppend(raft, each, true);
}

/** Sends what comes next to a member, as one message. An empty one tells it the commit index. False if nothing was sent. */
export function sendAppend(raft: RaftState, to: Progress, evenIfEmpty: boolean): boolean {
  if (to.isPaused()) return false;
  const before = to.next - 1;
  const term = raft.log.term(before);
  if (term < 0) return sendSnapshot(raft, to);
  const mayHoldEntries = to.state !== "replicate" || !to.inflights.isFull();
  const entries = mayHoldEntries ? raft.log.entriesFrom(to.next, raft.config.maxBytesPerMessage) : [];
  if (entries === undefined) return to.next < raft.log.firstIndex() && sendSnapshot(raft, to);
  if (entries.length === 0 && !evenIfEmpty) return false;
  raft.send(MessageKind.append, to.id, { index: before, logTerm: term, entries, commit: raft.log.committed });
  let bytes = 0;
  for (const entry of entries) bytes += entry.data.length;
  to.sentEntries(entries.length, bytes);
  to.sentCommitIndex(raft.log.committed);
  return true;
}

function sendSnapshot(raft: RaftState, to: Progress): boolean {
  // To one who does not answer it would be sent in vain, again and again.
  if (!to.recentActive) return false;
  const snapshot = raft.log.latestSnapshot();
  if (snapshot === "later") return false;
  to.becomeSnapshot(snapshot.index);
  raft.send(MessageKind.snapshot, to.id, { snapshot });
  return true;
}

export function broadcastHeartbeat(raft: RaftState): void {
  const context = raft.reads.highest();
  for (const each of raft.members) {
    if (each.id === raft.id) continue;
    const commit = Math.min(each.match, raft.log.committed);
    // A tick is sent as its successor: 0 is "none".
    raft.send(MessageKind.heartbeat, each.id, { commit, context, tick: raft.now + 1 });
    each.sentCommitIndex(commit);
  }
}

/** Steps down if no majority answered since the last check. */
export function checkQuorum(raft: RaftState): void {
  const active = (id: NodeId) => id === raft.id || raft.progress.get(id)?.recentActive === true;
  if (jointVote(raft.conf.voters, raft.conf.votersOutgoing, active) !== "won") raft.becomeFollower(raft.term, nobody);
  for (const each of raft.members) if (each.id !== raft.id) each.recentActive = false;
}

export function stepLeader(raft: RaftState, message: Message): void {
  const from = raft.progress.get(message.from);
  if (from === undefined) return;
  if (message.kind === MessageKind.appendReply) {
    from.recentActive = true;
    if (message.reject) onRejected(raft, from, message);
    else onAcknowledged(raft, from, message.index);
  } else if (message.kind === MessageKind.heartbeatReply) {
    onHeartbeatReply(raft, from, message);
  }
}

/**
 * The logs part somewhere before `message.index`. The reply names the last place where they may
 * still be equal and its term; the leader skips what it has of higher terms, so each round
 * passes a whole term on one of the two sides.
 */
function onRejected(raft: RaftState, from: Progress, message: Message): void {
  const hint = message.logTerm > 0 ? raft.log.lastUpTo(message.rejectHint, message.logTerm).index : message.rejectHint;
  if (!from.stepBack(message.index, hint)) return;
  if (from.state === "replicate") from.becomeProbe();
  sendAppend(raft, from, true);
}

function onAcknowledged(raft: RaftState, from: Progress, index: number): void {
  // A probe that is answered where it stood tells that the logs are equal there.
  if (!from.acknowledge(index) && !(from.match === index && from.state === "probe")) return;
  if (from.state === "probe") from.becomeReplicate();
  else if (from.state === "replicate") from.inflights.freeTo(index);
  else if (from.match + 1 >= raft.log.firstIndex()) {
    // The log reaches far enough back for it again, by whatever way it caught up.
    from.becomeProbe();
    from.becomeReplicate();
  }
  if (raft.raiseCommit()) {
    releaseEarlyReads(raft);
    broadcastAppend(raft);
  } else if (from.id !== raft.id && from.canRaiseCommit(raft.log.committed)) sendAppend(raft, from, true);
  if (from.id === raft.id) return;
  while (sendAppend(raft, from, false));
  if (from.id === raft.transferee && from.match === raft.log.lastIndex()) sendTimeoutNow(raft, from.id);
}

function onHeartbeatReply(raft: RaftState, from: Progress, message: Message): void {
  from.recentActive = true;
  from.isFlowPaused = false;
  if (message.reject && from.match > 0) from.startOver();
  from.echoedTick = Math.max(from.echoedTick, message.tick - 1);
  // Whatever was sent may be lost: this is what sends again.
  if (from.match < raft.log.lastIndex() || from.state === "probe") sendAppend(raft, from, true);
  if (message.context === 0) return;
  for (const read of raft.reads.acknowledge(from.id, message.context, raft.conf)) raft.readStates.push(read);
}

/** Asks for a read of the state as of now. */
export function readIndex(raft: RaftState, context: number): void {
  if (raft.conf.voters.length === 1 && !isJoint(raft.conf) && raft.conf.voters[0] === raft.id && raft.hasCommittedInTerm()) {
    raft.readStates.push(readState(context, raft.log.committed));
    return;
  }
  // Before its first commit a leader does not know how far its predecessors have committed.
  if (raft.hasCommittedInTerm()) confirmRead(raft, context);
  else raft.earlyReads.push(context);
}

function confirmRead(raft: RaftState, context: number): void {
  raft.reads.add(context, raft.log.committed, raft.id);
  broadcastHeartbeat(raft);
}

function releaseEarlyReads(raft: RaftState): void {
  if (raft.earlyReads.length === 0 || !raft.hasCommittedInTerm()) return;
  const contexts = raft.earlyReads;
  raft.earlyReads = [];
  for (const context of contexts) readIndex(raft, context);
}

/** Begins to hand leadership over. Until it is done, or an election timeout has passed, nothing is proposed. */
export function transferLeader(raft: RaftState, to: NodeId): boolean {
  const progress = raft.progress.get(to);
  if (progress === undefined || progress.isLearner || to === raft.id) return false;
  if (raft.transferee === to) return true;
  raft.electionElapsed = 0;
  raft.transferee = to;
  if (progress.match === raft.log.lastIndex()) sendTimeoutNow(raft, to);
  else sendAppend(raft, progress, true);
  return true;
}

/** From here on the member may be elected against everybody's promise, even if the message comes late. */
function sendTimeoutNow(raft: RaftState, to: NodeId): void {
  raft.hasEndedLease = true;
  raft.send(MessageKind.timeoutNow, to);
}

/** A snapshot arrived or failed. What comes next waits for a sign of life. */
export function reportSnapshot(raft: RaftState, id: NodeId, ok: boolean): void {
  const to = raft.progress.get(id);
  if (to?.state !== "snapshot") return;
  if (!ok) to.pendingSnapshot = 0;
  to.becomeProbe();
  to.isFlowPaused = true;
}

/** The offer may be lost, or the answer: after some election timeouts the member is asked where it is. Whoever is still fetching ignores another offer. */
export function retrySnapshots(raft: RaftState): void {
  for (const each of raft.members)
    if (each.state === "snapshot" && each.recentActive && ++each.snapshotRounds >= snapshotRoundsMax) reportSnapshot(raft, each.id, false);
}

const snapshotRoundsMax = 4;

/** Messages to this member were lost: what was sent ahead is sent again, one at a time. */
export function reportUnreachable(raft: RaftState, id: NodeId): void {
  const to = raft.progress.get(id);
  if (to?.state === "replicate") to.becomeProbe();
}
