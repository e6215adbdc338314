/**
 * One member of a Raft group, without I/O: messages, ticks and proposals go in, a `Ready` says
 * what is to be written, sent and applied.
 *
 * Writes are asynchronous. The host takes a `Ready`, begins its write, and may step on at once;
 * when the write is durable it steps the responses that are for this member and sends the others.
 * So many writes may be under way, and nothing is promised before it is durable.
 *
 * Cost: an entry that is proposed to a group of one is one object and one array append; a write
 * of any number of entries is acknowledged by one internal message. With followers, an append to
 * each is one object and one slice of the window; nothing is copied.
 *
 * Source: Ongaro's thesis (pre-vote, leases, joint consensus), and the behaviour of etcd's raft,
 * whose scenarios this passes.
 */
import { assert, type Index, type NodeId } from "#core/base";
import { type ConfChangeV2, type ConfChangeV2Init, RaftEntryKind } from "#proto";
import { campaign, isBound, onVoteReply, onVoteRequest, sendRejection } from "./election.ts";
import { onAppend, onHeartbeat, onSnapshot, wantsSnapshot } from "./follower.ts";
import * as leading from "./leader.ts";
import { leaseTick } from "./lease.ts";
import { changedBy, confChangeBytes, confProblem, isVoter } from "./membership.ts";
import { asksForVote, isOfLeader } from "./message.ts";

import { RaftState } from "./state.ts";
import { type RaftStatus, statusOf } from "./status.ts";
import {
  type Append,
  type ConfState,
  type Entry,
  type HardState,
  type Message,
  MessageKind,
  nobody,
  type Proposed,
  type RaftConfig,
  type Ready,
  type Role,
  type SoftState,
  type Stepped,
} from "./types.ts";

export type { Proposal } from "./leader.ts";

const replyKinds: ReadonlySet<MessageKind> = new Set([
  MessageKind.appendReply,
  MessageKind.heartbeatReply,
  MessageKind.voteReply,
  MessageKind.preVoteReply,
]);

const nothingRenewed: ReadonlySet<NodeId> = new Set<NodeId>();

export class Raft {
  private readonly state: RaftState;
  private givenHard: HardState;
  private givenSoft: SoftState;

  /** A member as it was when it stopped, or a new one. It begins as a follower. */
  constructor(config: RaftConfig) {
    assert(config.id > 0, `Cannot start a member: its id is ${config.id}, want 1 or more`);
    const state = new RaftState(config);
    const { electionTicks, heartbeatTicks } = state.config;
    assert(
      heartbeatTicks > 0 && electionTicks > heartbeatTicks,
      `Cannot start a member: an election takes ${electionTicks} ticks, want more than a heartbeat (${heartbeatTicks})`,
    );
    this.state = state;
    const { hard, conf } = config.storage.initialState();
    state.traceEvent("InitState");
    const problem = confProblem(conf);
    assert(problem === undefined, `Cannot start a member: in its configuration ${problem}`);
    state.adoptConf(conf, nothingRenewed);
    assert(
      hard.commit <= state.log.lastIndex(),
      `Cannot start a member: it committed ${hard.commit} but its log ends at ${state.log.lastIndex()}`,
    );
    // What is applied is committed, even if the commit index was not written every time.
    state.log.commitTo(Math.max(hard.commit, config.applied));
    if (state.config.checkConfChanges) state.log.commitTo(state.log.lastButOne(RaftEntryKind.config));
    if (config.applied > state.log.applied) state.log.appliedTo(config.applied);
    state.becomeFollower(state.term, nobody);
    if (state.config.leases && (config.restarted ?? hard.term > 0)) state.promisedTicks = electionTicks;
    this.givenHard = state.hardState();
    this.givenSoft = { leader: state.leader, role: state.role };
  }

  // --- What changes from moment to moment; all reads are O(1).

  get id(): NodeId {
    return this.state.id;
  }

  get term() {
    return this.state.term;
  }

  get vote(): NodeId {
    return this.state.vote;
  }

  get role(): Role {
    return this.state.role;
  }

  /** 0 = not known. */
  get leader(): NodeId {
    return this.state.leader;
  }

  get commit(): Index {
    return this.state.log.committed;
  }

  /** Of the first entry there is, or will be. */
  firstIndex(): Index {
    return this.state.log.firstIndex();
  }

  lastIndex(): Index {
    return this.state.log.lastIndex();
  }

  /** Payload bytes of the leader that wait for their commit. */
  get uncommittedBytes(): number {
    return this.state.uncommittedBytes;
  }

  /** Of a leader: last index that may hold a change of membership that is not applied. */
  get pendingConfIndex(): number {
    return this.state.pendingConfIndex;
  }

  /** Whether a proposal of data would be taken now, but for its size. */
  mayPropose(): boolean {
    const { state } = this;
    return state.role === "leader" && state.transferee === nobody && state.progress.has(state.id);
  }

  /** True for a leader that knows how far the group has committed: it has committed an entry of its own. */
  hasCommittedInTerm(): boolean {
    return this.state.role === "leader" && this.state.hasCommittedInTerm();
  }

  /**
   * True if at `tick` — now, by the clock that numbers the calls of `tick` — no other member can
   * be leader, so that a read of everything committed here is a read of everything committed.
   */
  leaseHeldAt(tick: number): boolean {
    return this.hasCommittedInTerm() && leaseTick(this.state, tick) > tick;
  }

  // --- Time

  /**
   * Time has come to tick number `now`. However many ticks that skips, it counts as one, and not
   * at all if `now` is no later than before: a member that slept must not think that others did.
   */
  tick(now: number): void {
    const { state } = this;
    if (now <= state.now) return;
    state.now = now;
    state.log.unblock();
    if (state.promisedTicks > 0) state.promisedTicks--;
    state.electionElapsed++;
    if (state.role === "leader") this.tickLeader();
    else if (state.isPromotable() && state.electionElapsed >= state.electionTimeout) {
      state.electionElapsed = 0;
      this.campaign();
    }
  }

  private tickLeader(): void {
    const { state } = this;
    state.heartbeatElapsed++;
    if (state.electionElapsed >= state.config.electionTicks) {
      state.electionElapsed = 0;
      if (state.config.leases) leading.retrySnapshots(state);
      if (state.config.checkQuorum) leading.checkQuorum(state);
      state.transferee = nobody;
      if (state.config.leases && state.role === "leader" && state.hasEndedLease) return this.leadAnew();
    }
    if (state.role !== "leader") return;
    this.leaveJoint();
    if (state.heartbeatElapsed < state.config.heartbeatTicks) return;
    state.heartbeatElapsed = 0;
    if (state.members.length > 1) leading.broadcastHeartbeat(state);
  }

  /**
   * Who was told to campaign did not come into office. While it still may in this term no lease is
   * possible, so this member asks for the next term, with everybody released from their promise.
   */
  private leadAnew(): void {
    const { state } = this;
    state.becomeFollower(state.term, nobody);
    campaign(state, "transfer");
  }

  /** Gives the lead up, to nobody: whoever asks for votes next may have it. */
  resign(): void {
    const { state } = this;
    if (state.role === "leader") state.becomeFollower(state.term, nobody);
  }

  /**
   * Begins an election now, without waiting for a timeout. `isFirst`: in a group that never had a leader whom a
   * candidate could disturb, so votes are asked for at once.
   */
  campaign({ isFirst = false } = {}): void {
    campaign(this.state, this.state.config.preVote && !isFirst ? "preVote" : "vote");
  }

  /** A leader sends its heartbeats now. */
  beat(): void {
    if (this.state.role === "leader") leading.broadcastHeartbeat(this.state);
  }

  // --- Requests

  /**
   * Appends `proposals` behind the last index, in the current term, all or none. When it returns
   * "ok" they are in the log at the indexes that follow `lastIndex()` as it was before.
   */
  propose(proposals: readonly leading.Proposal[]): Proposed {
    return leading.propose(this.state, proposals);
  }

  proposeConfChange(change: ConfChangeV2Init): Proposed {
    return this.propose([{ kind: RaftEntryKind.config, data: confChangeBytes(change) }]);
  }

  /** Why `propose` would refuse this change now, or undefined. */
  confChangeProblem(change: ConfChangeV2Init): string | undefined {
    return leading.confChangeProblem(this.state, confChangeBytes(change));
  }

  /** Asks for a `ReadState` with this context. Requests are lost when the leader is. */
  readIndex(context: number): "ok" | "notLeader" {
    if (this.state.role !== "leader") return "notLeader";
    leading.readIndex(this.state, context);
    return "ok";
  }

  /** Hands leadership to a voter as soon as it has the whole log. */
  transferLeader(to: NodeId): "ok" | "notLeader" | "notVoter" {
    if (this.state.role !== "leader") return "notLeader";
    return leading.transferLeader(this.state, to) ? "ok" : "notVoter";
  }

  reportUnreachable(id: NodeId): void {
    if (this.state.role === "leader") leading.reportUnreachable(this.state, id);
  }

  /** A snapshot for `id` arrived and was stepped there, or could not be brought. */
  reportSnapshot(id: NodeId, ok: boolean): void {
    if (this.state.role === "leader") leading.reportSnapshot(this.state, id, ok);
  }

  // --- Messages

  /** Whether stepping this message would replace the log: then the host brings the state here first. */
  wantsSnapshot(message: Message): boolean {
    return wantsSnapshot(this.state, message);
  }

  /** Takes a message of another member, or a response of this member's own write. */
  step(message: Message): Stepped {
    const { state } = this;
    if (message.to !== state.id) return "foreign";
    if (message.kind === MessageKind.appended) {
      if (message.from !== state.id) return "foreign";
      this.onAppended(message);
      return "ok";
    }
    if (replyKinds.has(message.kind) && !state.progress.has(message.from)) return "unknown";
    if (message.kind === MessageKind.append && !follow(message)) return "foreign";
    state.traceMessage("Receive", message);
    if (message.reject) this.learnCommit(message);
    if (message.term > state.term) {
      if (!this.acceptTerm(message)) return "ok";
    } else if (message.term < state.term) {
      this.answerOldTerm(message);
      return "ok";
    }
    if (asksForVote(message)) onVoteRequest(state, message);
    else if (state.role === "leader") leading.stepLeader(state, message);
    else this.stepOther(message);
    return "ok";
  }

  /** Takes from a rejected vote what is committed, see `sendRejection`. */
  private learnCommit({ kind, commit, logTerm }: Message): void {
    const { state } = this;
    const { log } = state;
    const isVote = kind === MessageKind.voteReply || kind === MessageKind.preVoteReply;
    if (!isVote || state.role === "leader" || commit <= log.committed || !log.matches(commit, logTerm)) return;
    log.commitTo(commit);
    // It was counting the votes of a configuration that is past.
    if (state.role !== "follower" && log.hasUnapplied(RaftEntryKind.config) !== false) state.becomeFollower(state.term, nobody);
  }

  /** Goes over to a higher term if the message is of one. False if the message is to be ignored. */
  private acceptTerm(message: Message): boolean {
    const { state } = this;
    const { kind, term } = message;
    if (asksForVote(message) && !message.transfer && isBound(state)) return false;
    // A pre-vote asks about a term that nobody is in; if it is granted, neither is its reply.
    if (kind === MessageKind.preVote || (kind === MessageKind.preVoteReply && !message.reject)) return true;
    state.becomeFollower(term, isOfLeader(message) ? message.from : nobody);
    return true;
  }

  private answerOldTerm(message: Message): void {
    const { state } = this;
    const { checkQuorum, preVote } = state.config;
    const { kind } = message;
    // A leader of the past would never hear of the new term: those who know it don't campaign.
    if ((checkQuorum || preVote) && (kind === MessageKind.heartbeat || kind === MessageKind.append))
      state.send(MessageKind.appendReply, message.from);
    else if (kind === MessageKind.preVote) sendRejection(state, MessageKind.preVoteReply, message);
    // What was committed is committed in every later term.
    else if (kind === MessageKind.snapshot && state.role === "follower") onSnapshot(state, message);
  }

  private stepOther(message: Message): void {
    const { state } = this;
    const { kind } = message;
    if (isOfLeader(message)) {
      if (state.role === "follower") {
        state.electionElapsed = 0;
        state.leader = message.from;
      } else state.becomeFollower(message.term, message.from);
      if (kind === MessageKind.append) onAppend(state, message);
      else if (kind === MessageKind.heartbeat) onHeartbeat(state, message);
      else onSnapshot(state, message);
    } else if (kind === MessageKind.timeoutNow) {
      // The leader itself asks: there is no need to find out whether there is one.
      if (state.role === "follower") campaign(state, "transfer");
    } else if (
      (kind === MessageKind.voteReply && state.role === "candidate") ||
      (kind === MessageKind.preVoteReply && state.role === "preCandidate")
    )
      onVoteReply(state, message);
  }

  /** A write of this member is durable. In a later term its entries may have been replaced; its snapshot has not. */
  private onAppended(message: Message): void {
    const { state } = this;
    if (message.term === state.term && message.index > 0) state.log.stableTo(message.index, message.logTerm);
    const { snapshot } = message;
    if (snapshot !== undefined && state.log.snapshotStableTo(snapshot.index)) this.applied(snapshot.index);
  }

  // --- What there is to do

  hasReady(): boolean {
    const { state } = this;
    return (
      state.messages.length > 0 ||
      state.afterAppend.length > 0 ||
      state.log.hasUnwritten() ||
      state.log.hasCommitted(state.config.applyUnstable) ||
      state.readStates.length > 0 ||
      this.hasNewHardState() ||
      state.leader !== this.givenSoft.leader ||
      state.role !== this.givenSoft.role
    );
  }

  private hasNewHardState(): boolean {
    const { givenHard, state } = this;
    return state.term !== givenHard.term || state.vote !== givenHard.vote || state.log.committed !== givenHard.commit;
  }

  /** Hands out all there is to do. Each thing is handed out once. */
  ready(): Ready {
    const { state } = this;
    const { messages, readStates: reads } = state;
    const append = this.takeAppend();
    const committed = state.log.takeCommitted(state.config.applyUnstable);
    let soft: SoftState | undefined;
    if (state.leader !== this.givenSoft.leader || state.role !== this.givenSoft.role) {
      soft = { leader: state.leader, role: state.role };
      this.givenSoft = soft;
    }
    if (messages.length > 0) state.messages = [];
    if (reads.length > 0) state.readStates = [];
    state.traceEvent("Ready");
    return { messages, append, committed, reads, soft };
  }

  private takeAppend(): Append | undefined {
    const { state } = this;
    const { givenHard } = this;
    const isHardNew = this.hasNewHardState();
    if (!isHardNew && !state.log.hasUnwritten() && state.afterAppend.length === 0) return undefined;
    const { entries, snapshot } = state.log.handOut();
    const isVoteNew = state.term !== givenHard.term || state.vote !== givenHard.vote;
    const hardState = isHardNew ? state.hardState() : undefined;
    if (hardState !== undefined) this.givenHard = hardState;
    const responses = state.afterAppend;
    state.afterAppend = [];
    const isUnstable = state.log.hasUnstable();
    if (isUnstable || snapshot !== undefined) {
      const last = isUnstable ? { index: state.log.lastIndex(), logTerm: state.log.lastTerm() } : {};
      responses.push(state.messageTo(MessageKind.appended, state.id, { ...last, snapshot }));
    }
    return { entries, hardState, snapshot, mustSync: entries.length > 0 || snapshot !== undefined || isVoteNew, responses };
  }

  /** The state machine has applied everything up to `index`. Does nothing if that is known. */
  applied(index: Index): void {
    const { state } = this;
    state.log.appliedTo(Math.max(index, state.log.applied));
    this.leaveJoint();
  }

  /** Leaves a joint configuration that is to be left by itself; asked again at each tick, as it may not be possible now. */
  private leaveJoint(): void {
    const { conf, role, log, pendingConfIndex } = this.state;
    if (conf.autoLeave && role === "leader" && log.applied >= pendingConfIndex) this.propose([{ kind: RaftEntryKind.config, data: leave }]);
  }

  /**
   * Puts a committed change of membership into force: for each entry of kind config, when it is
   * applied, before `applied` is said. Throws `InvariantError` if it does not fit: then the log
   * holds what no leader may have proposed.
   */
  applyConfChange(change: ConfChangeV2): ConfState {
    const { state } = this;
    const changed = changedBy(state.conf, change);
    if ("problem" in changed) assert(false, `Cannot apply a change of membership: ${changed.problem}`);
    state.adoptConf(changed.conf, changed.renewed);
    const own = state.progress.get(state.id);
    if (state.role !== "leader") return changed.conf;
    if (own === undefined || own.isLearner) {
      if (state.config.stepDownOnRemoval) state.becomeFollower(state.term, nobody);
    } else if (changed.conf.voters.length > 0) {
      // Fewer voters may have committed more; new members are not left to wait for a heartbeat.
      if (state.raiseCommit()) leading.broadcastAppend(state);
      else for (const each of state.members) if (each.id !== state.id) leading.sendAppend(state, each, false);
    }
    return changed.conf;
  }

  /** A copy of everything worth showing. What is asked often has a getter of its own. */
  status(): RaftStatus {
    return statusOf(this.state);
  }

  /** True for a voter of the configuration in force, of either half. */
  isVoter(): boolean {
    return isVoter(this.state.conf, this.state.id);
  }

  /** The configuration in force. */
  get conf(): ConfState {
    return this.state.conf;
  }

  /** Term of an entry, or −1 if the log does not have it. */
  termOf(index: Index): number {
    return this.state.log.term(index);
  }

  /** Entries from `begin` on, at least one and as many as `maxBytes` allows; undefined if the log does not have them (now). */
  entriesFrom(begin: Index, maxBytes: number): readonly Entry[] | undefined {
    return this.state.log.entriesFrom(begin, maxBytes);
  }
}

/** An empty change: it leaves a joint configuration. */
const leave = new Uint8Array(0);

/** Entries of an append follow each other and its index, in terms that don't fall. */
function follow(message: Message): boolean {
  let index = message.index as number;
  let term = message.logTerm as number;
  for (const entry of message.entries) {
    if (entry.index !== index + 1 || entry.term < term || entry.term > message.term) return false;
    index++;
    term = entry.term;
  }
  return true;
}
