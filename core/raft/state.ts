/**
 * State of one member and its moves between roles.
 *
 * Messages that promise something (votes, acknowledged entries) wait in `afterAppend` until what
 * they promise is durable; the others may leave at once.
 */
import { asIndex, assert, asTerm, type Index, type NodeId, type ShardId, type Term } from "#core/base";
import { RaftEntryKind } from "#proto";
import { isVoter, membersOf, noConf } from "./membership.ts";
import { Progress } from "./progress.ts";
import { jointIndex } from "./quorum.ts";
import { RaftLog } from "./raft-log.ts";
import { Reads } from "./reads.ts";
import {
  type ConfState,
  type Entry,
  type HardState,
  type Message,
  MessageKind,
  nobody,
  type RaftConfig,
  type RaftSettings,
  type ReadState,
  type Role,
  raftDefaults,
  type Trace,
  type TraceDetail,
} from "./types.ts";

/** What a message may hold beside its kind and addressee. */
export interface MessageFields {
  readonly index?: number;
  readonly term?: Term;
  readonly logTerm?: number;
  readonly commit?: number;
  readonly entries?: readonly Entry[];
  readonly reject?: boolean;
  readonly rejectHint?: number;
  readonly context?: number;
  readonly tick?: number;
  readonly transfer?: boolean;
  readonly snapshot?: Message["snapshot"];
}

const noEntries: readonly Entry[] = [];

const traceNames: Partial<Record<MessageKind, string>> = {
  [MessageKind.append]: "AppendEntriesRequest",
  [MessageKind.heartbeat]: "AppendEntriesRequest",
  [MessageKind.snapshot]: "AppendEntriesRequest",
  [MessageKind.appendReply]: "AppendEntriesResponse",
  [MessageKind.heartbeatReply]: "AppendEntriesResponse",
  [MessageKind.vote]: "RequestVoteRequest",
  [MessageKind.voteReply]: "RequestVoteResponse",
};

export class RaftState {
  readonly config: RaftSettings;
  readonly id: NodeId;
  readonly log: RaftLog;
  term: Term;
  vote: NodeId;
  role: Role = "follower";
  leader: NodeId = nobody;
  conf: ConfState = noConf;
  /** Members by id, and the same ascending. */
  progress = new Map<NodeId, Progress>();
  members: readonly Progress[] = [];
  votes = new Map<NodeId, boolean>();
  /** To whom leadership is being handed over. */
  transferee: NodeId = nobody;
  /** A member was told to campaign in this term, so a majority's promises protect no lease any more. */
  hasEndedLease = false;
  /** Last index that may hold a change of membership that is not applied. */
  pendingConfIndex = 0;
  uncommittedBytes = 0;
  reads = new Reads();
  /** Reads that came before the leader's first commit. */
  earlyReads: number[] = [];
  readStates: ReadState[] = [];
  messages: Message[] = [];
  afterAppend: Message[] = [];
  /** The tick of the last call of `tick`; −1 before it. */
  now = -1;
  electionElapsed = 0;
  heartbeatElapsed = 0;
  electionTimeout = 0;
  /** Ticks for which no other member may be elected with this one's help, see `RaftConfig.leases`. */
  promisedTicks = 0;
  private readonly shard: ShardId;
  private readonly trace: Trace | undefined;

  constructor(config: RaftConfig) {
    const { hard } = config.storage.initialState();
    this.config = { ...raftDefaults, ...config };
    this.id = config.id;
    this.shard = config.shard;
    this.trace = config.trace;
    this.log = new RaftLog(config.storage, this.config.maxApplyBytes);
    this.term = hard.term;
    this.vote = hard.vote;
  }

  /** Puts a message where it waits for its time. */
  send(kind: MessageKind, to: NodeId, fields: MessageFields = {}): void {
    const message = this.messageTo(kind, to, fields);
    const promises = kind === MessageKind.appendReply || kind === MessageKind.voteReply || kind === MessageKind.preVoteReply;
    (promises ? this.afterAppend : this.messages).push(message);
    this.traceMessage("Send", message);
  }

  messageTo(kind: MessageKind, to: NodeId, fields: MessageFields): Message {
    return {
      kind,
      shard: this.shard,
      from: this.id,
      to,
      term: fields.term ?? this.term,
      logTerm: asTerm(fields.logTerm ?? 0),
      index: asIndex(fields.index ?? 0),
      commit: asIndex(fields.commit ?? 0),
      entries: fields.entries ?? noEntries,
      reject: fields.reject ?? false,
      rejectHint: asIndex(fields.rejectHint ?? 0),
      context: fields.context ?? 0,
      tick: fields.tick ?? 0,
      transfer: fields.transfer ?? false,
      snapshot: fields.snapshot,
    };
  }

  traceMessage(way: "Send" | "Receive", message: Message): void {
    if (this.trace === undefined) return;
    const name = traceNames[message.kind];
    if (name === undefined) return;
    const own = way === "Send" && message.kind === MessageKind.append ? this.progress.get(this.id) : undefined;
    this.traceEvent(`${way}${name}`, { message, progress: own === undefined ? undefined : { match: own.match, next: own.next } });
  }

  traceEvent(name: string, detail?: TraceDetail): void {
    if (this.trace === undefined) return;
    const { id, role, conf } = this;
    this.trace({ name, id, hard: this.hardState(), role, lastIndex: this.log.lastIndex(), conf, ...detail });
  }

  hardState(): HardState {
    return { term: this.term, vote: this.vote, commit: this.log.committed };
  }

  /** Whether it may become leader: a voter whose log is not being replaced. */
  isPromotable(): boolean {
    const own = this.progress.get(this.id);
    return own !== undefined && !own.isLearner && this.log.pendingSnapshot() === undefined;
  }

  private reset(term: Term): void {
    if (this.term !== term) {
      this.term = term;
      this.vote = nobody;
    }
    this.leader = nobody;
    this.electionElapsed = 0;
    this.heartbeatElapsed = 0;
    this.electionTimeout = this.config.electionTicks + this.config.draw(this.config.electionTicks);
    this.transferee = nobody;
    this.hasEndedLease = false;
    this.votes.clear();
    const last = this.log.lastIndex();
    for (const each of this.members) each.reset(each.id === this.id ? last : 0, last + 1);
    this.pendingConfIndex = 0;
    this.uncommittedBytes = 0;
    this.reads = new Reads();
    this.earlyReads = [];
  }

  becomeFollower(term: Term, leader: NodeId): void {
    this.reset(term);
    this.leader = leader;
    this.role = "follower";
    this.traceEvent("BecomeFollower");
  }

  becomeCandidate(): void {
    assert(this.role !== "leader", "Cannot become a candidate: this member leads");
    this.reset(asTerm(this.term + 1));
    this.vote = this.id;
    this.role = "candidate";
    this.traceEvent("BecomeCandidate");
  }

  /** Neither term nor vote change: nothing has happened yet. */
  becomePreCandidate(): void {
    assert(this.role !== "leader", "Cannot become a pre-candidate: this member leads");
    this.votes.clear();
    this.leader = nobody;
    this.role = "preCandidate";
  }

  becomeLeader(): void {
    assert(this.role === "candidate", `Cannot become leader: the role is ${this.role}, want candidate`);
    this.reset(this.term);
    this.leader = this.id;
    this.role = "leader";
    const own = this.progress.get(this.id);
    assert(own !== undefined, "Cannot become leader: this member is not in its own configuration");
    own.becomeReplicate();
    own.recentActive = true;
    // Whatever was appended before may be a change; until that is applied no other is begun.
    this.pendingConfIndex = this.log.lastIndex();
    this.traceEvent("BecomeLeader");
    this.pushEntry(RaftEntryKind.data, noData);
    this.acknowledgeOwn();
  }

  pushEntry(kind: RaftEntryKind, data: Uint8Array): void {
    this.uncommittedBytes += data.length;
    if (kind === RaftEntryKind.data) this.traceEvent("Replicate");
    this.log.push({ term: this.term, index: asIndex(this.log.lastIndex() + 1), kind, data });
  }

  /** The leader's own acknowledgement of its log, coming back when that is durable. One a write, however many entries it has. */
  acknowledgeOwn(): void {
    const last = this.afterAppend.at(-1);
    if (last !== undefined && last.kind === MessageKind.appendReply && last.to === this.id && last.term === this.term && !last.reject)
      last.index = this.log.lastIndex();
    else this.send(MessageKind.appendReply, this.id, { index: this.log.lastIndex() });
  }

  /** Commits what a majority has, if it is of this term: older entries are only committed along with such a one. */
  raiseCommit(): boolean {
    const index = jointIndex(this.conf.voters, this.conf.votersOutgoing, (voter) => this.progress.get(voter)?.match ?? 0);
    const raised = index > this.log.committed && this.log.matches(index, this.term);
    if (raised) {
      this.uncommittedBytes = Math.max(0, this.uncommittedBytes - this.log.payloadBytes(this.log.committed + 1, index + 1));
      this.log.commitTo(index);
    }
    this.traceEvent("Commit");
    return raised;
  }

  hasCommittedInTerm(): boolean {
    return this.log.term(this.log.committed) === this.term;
  }

  /** Replaces the configuration; members in `renewed` are begun anew, others keep what is known of them. */
  adoptConf(conf: ConfState, renewed: ReadonlySet<NodeId>): void {
    this.traceEvent("ApplyConfChange", { newVoters: conf.voters });
    const progress = new Map<NodeId, Progress>();
    for (const id of membersOf(conf)) {
      const isLearner = conf.learners.includes(id);
      const known = renewed.has(id) ? undefined : this.progress.get(id);
      const each =
        known ??
        new Progress(id, {
          next: Math.max(this.log.lastIndex(), 1),
          isLearner,
          maxInflight: this.config.maxInflight,
          maxInflightBytes: this.config.maxInflightBytes,
        });
      each.isLearner = isLearner;
      // A new member is given a quorum check's time to answer for the first time.
      if (known === undefined) each.recentActive = true;
      progress.set(id, each);
    }
    this.conf = conf;
    this.progress = progress;
    this.members = [...progress.values()];
    if (this.transferee !== nobody && !isVoter(conf, this.transferee)) this.transferee = nobody;
  }

  lastIndex(): Index {
    return this.log.lastIndex();
  }
}

const noData = new Uint8Array(0);
