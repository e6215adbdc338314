/**
 * One Raft group's member on this node: Raft above the node's log.
 *
 * Whoever leads encodes its records in place in the log and proposes the same bytes here; what
 * Raft hands out is written with everybody else's records in one flush, and its answers leave when
 * that is durable. Nothing here waits: it is called, and calls back.
 */
import { assert, type Index, type NodeId, type ShardId, type Term } from "#core/base";
import {
  type Append,
  asksForVote,
  type ConfState,
  confChangeOf,
  type Entry,
  isOfLeader,
  type Message,
  MessageKind,
  membersOf,
  Raft,
  type RaftStatus,
  type Role,
  raftDefaults,
} from "#core/raft";
import { ConfTransition, MemberChangeKind, RaftEntryKind } from "#proto";
import type { LogStore } from "#store";
import { LogRaftStorage, type RaftStorageParts } from "./raft-storage.ts";

/** One tick of Raft's clock, in milliseconds. */
export const tickMs = 50;

/** Payload bytes that may wait for a quorum; above it nothing more is decided. */
const uncommittedBytesMax = 64 << 20;

export interface GroupEvents {
  /** The member's role, term or leader is another. Called before anything is done on it. */
  changed(): void;
  /** The log is committed through `index`. */
  committed(index: Index): void;
  /** The next committed entries, in order; `applied` is to be said for them. */
  apply(entries: readonly Entry[]): void;
  /** This leader put an entry into the log that nobody decided: the first of its term, or a change of membership. */
  appended(index: Index): void;
  /** The log became durable further. */
  durable(): void;
  /** The leader has state for this member that its log does not hold. */
  snapshotOffered(message: Message): void;
}

export interface GroupParts {
  readonly shard: ShardId;
  readonly self: NodeId;
  readonly log: LogStore;
  readonly conf: ConfState;
  readonly appliedIndex: Index;
  readonly snapshot: RaftStorageParts["snapshot"];
  readonly changedIndex: RaftStorageParts["changedIndex"];
  /** A whole number in [0, below). */
  readonly draw: (below: number) => number;
  /** May be lost; never waits. */
  readonly send: (message: Message) => void;
  readonly events: GroupEvents;
}

/** What a change of membership asks for; several voters change by joint consensus. */
export interface MembersChange {
  readonly addVoters?: readonly NodeId[];
  readonly addLearners?: readonly NodeId[];
  readonly remove?: readonly NodeId[];
}

interface Awaiting {
  readonly position: number;
  readonly answers: readonly Message[];
}

export class Group {
  readonly shard: ShardId;
  private readonly parts: GroupParts;
  private readonly raft: Raft;
  /** Answers that wait until what they rest on is durable, in log order. */
  private awaiting: Awaiting[] = [];
  /** Position of the last hard state. */
  private statePosition = 0;
  private reads = 0;
  /** Once a tick is often enough. */
  private provedTick = -1;
  /** Messages of leaders so far. */
  received = 0;
  private isPumping = false;
  /** Other members can be sent what is appended. */
  private keepsBytes = false;
  /** Raft may have entries up to here in memory without their bytes. */
  private bytelessIndex = 0;
  private isStopped = false;
  private commit = 0;
  private known = { role: "" as Role | "", term: 0, leader: 0 };
  /** Something happened since it was last asked: see `takeActivity`. */
  private isActive = true;

  constructor(parts: GroupParts) {
    const { log, shard, conf, appliedIndex, changedIndex, snapshot } = parts;
    this.parts = parts;
    this.shard = shard;
    this.raft = new Raft({
      ...raftDefaults,
      id: parts.self,
      shard,
      storage: new LogRaftStorage({ log, shard, conf, appliedIndex, changedIndex, snapshot }),
      applied: appliedIndex,
      draw: parts.draw,
      // What a step encoded is in the log already: it is always taken, and `mayPropose` bounds it before.
      maxUncommittedBytes: Number.MAX_SAFE_INTEGER,
      restarted: log.hardState(shard).term > 0,
    });
    this.commit = this.raft.commit;
  }

  /** Starts to take part; a group's only voter leads at once. */
  start(): void {
    this.keepBytes();
    this.pump();
    if (this.isSoleVoter && !this.leads) this.campaign();
  }

  stop(): void {
    this.isStopped = true;
    this.awaiting = [];
  }

  status(): RaftStatus {
    return this.raft.status();
  }

  get commitIndex(): Index {
    return this.raft.commit;
  }

  get lastIndex(): Index {
    return this.raft.lastIndex();
  }

  get term(): Term {
    return this.raft.term;
  }

  get leader(): NodeId {
    return this.raft.leader;
  }

  get leads(): boolean {
    return this.raft.role === "leader";
  }

  get conf(): ConfState {
    return this.raft.conf;
  }

  get isSoleVoter(): boolean {
    const { voters, votersOutgoing } = this.raft.conf;
    return voters.length === 1 && voters[0] === this.parts.self && votersOutgoing.length === 0;
  }

  /** Whether a read here sees everything that was acknowledged anywhere. `tick` is the clock's, not the last one counted. */
  leaseHeldAt(tick: number): boolean {
    return this.raft.leaseHeldAt(tick);
  }

  /** Asks the other members whether this one still leads, without waiting for the next heartbeat: their answers prove the lease. */
  proveLead(tick: number): void {
    if (!this.leads || this.isStopped || this.provedTick === tick) return;
    this.provedTick = tick;
    this.isActive = true;
    this.raft.tick(tick);
    this.raft.readIndex(++this.reads);
    this.pump();
  }

  /** Has all members say that they follow, before its term has a commit: their answers prove the lease as soon as it has. */
  askAll(tick: number): void {
    this.raft.tick(tick);
    this.raft.beat();
  }

  /** Takes records that the leader encoded in the log since the last call. It must lead, and have room. */
  proposeAppended(): void {
    const entries = this.parts.log.takeAppended(this.shard);
    if (entries.length === 0) return;
    this.isActive = true;
    const first = this.raft.lastIndex() + 1;
    assert(
      entries[0]?.index === first,
      `Cannot propose record ${entries[0]?.index} of shard ${this.shard}: the group's log goes on at ${first}`,
    );
    const result = this.raft.propose(entries.map(({ data }) => ({ kind: RaftEntryKind.data, data })));
    assert(result === "ok", `Cannot propose records of shard ${this.shard}: ${result}`);
  }

  /** Whether records may be encoded now: they are proposed without fail then. */
  mayPropose(): boolean {
    if (this.isStopped || !this.raft.mayPropose() || this.raft.uncommittedBytes >= uncommittedBytesMax) return false;
    // A change of membership that Raft has taken in comes first: it is on its way to the log.
    return this.raft.lastIndex() === this.parts.log.lastIndex(this.shard);
  }

  proposeMembers(change: MembersChange): boolean {
    if (!this.mayPropose()) return false;
    const kinds = [
      [MemberChangeKind.addVoter, change.addVoters],
      [MemberChangeKind.addLearner, change.addLearners],
      [MemberChangeKind.remove, change.remove],
    ] as const;
    const changes = kinds.flatMap(([kind, nodes]) => (nodes ?? []).map((node) => ({ kind, node })));
    // From here on others need the bytes of what is appended; what was before is read from the log once it is there.
    if (!this.keepsBytes) {
      this.keepsBytes = true;
      this.bytelessIndex = this.raft.lastIndex();
      this.parts.log.setReplicated(this.shard, true);
      this.parts.log.kick(true);
    }
    if (this.raft.status().durableIndex < this.bytelessIndex) return false;
    const result = this.raft.proposeConfChange({ transition: ConfTransition.auto, changes });
    // A group that had nobody to talk to may be asleep.
    this.isActive = true;
    this.pump();
    return result === "ok";
  }

  transfer(to: NodeId): void {
    // One that comes to nothing is given up after some ticks.
    this.isActive = true;
    this.raft.transferLeader(to);
    this.pump();
  }

  /** Gives the lead to the voter that has most of the log, if one answers. */
  handOver(): void {
    let best: { readonly node: NodeId; readonly match: number } | undefined;
    for (const [node, { match, isLearner, recentActive }] of this.raft.status().progress) {
      if (node === this.parts.self || isLearner || !recentActive) continue;
      if (best === undefined || match > best.match) best = { node, match };
    }
    if (best !== undefined && this.raft.status().transferee === 0) this.transfer(best.node);
  }

  /** Leads no more, and tells so. */
  resign(): void {
    this.raft.resign();
    this.pump();
  }

  /** Asks for votes. `isFirst`: in a group that has had no leader, so none is to be found out about before. */
  campaign({ isFirst = false } = {}): void {
    this.raft.campaign({ isFirst });
    this.pump();
  }

  tick(tick: number): void {
    if (this.isStopped) return;
    this.raft.tick(tick);
    this.pump();
  }

  /**
   * Whoever has nothing yet gives no vote: it may have been a member before, and what it acknowledged then went when it was
   * removed. A leader of a past membership counts on it still. It has something when a snapshot has come, which has the
   * membership that made it a member again.
   */
  receive(message: Message): void {
    if (this.isStopped || (asksForVote(message) && this.lastIndex === 0)) return;
    if (isOfLeader(message)) this.received++;
    // Beats only keep a group going: where there is nothing else it is to sleep.
    if (message.kind !== MessageKind.heartbeat && message.kind !== MessageKind.heartbeatReply) this.isActive = true;
    if (this.raft.wantsSnapshot(message)) {
      this.parts.events.snapshotOffered(message);
      return;
    }
    this.raft.step(message);
    this.pump();
  }

  /** The state of a snapshot is here and saved: the group goes on behind it. */
  installed(message: Message): void {
    this.raft.step(message);
    // The membership came with it.
    this.keepBytes();
    this.pump();
  }

  /**
   * Whether a crash leaves the commit of `index` known; where not, it is being made so.
   *
   * A membership may be acted on only then. Else a member that restarts could find itself in an
   * older one, in which it is a majority by itself.
   */
  isCommitKept(index: Index): boolean {
    const { log } = this.parts;
    if (log.hardState(this.shard).commit < index) {
      const { term, vote, commit } = this.raft.status();
      this.setHardState({ term, vote, commit });
      log.kick(true);
    }
    return log.durablePosition() >= this.statePosition;
  }

  /** To be called after each flush of the node's log. */
  durable(position: number): void {
    let count = 0;
    while (count < this.awaiting.length && (this.awaiting[count] as Awaiting).position <= position) count++;
    this.parts.events.durable();
    if (count === 0) return;
    for (const { answers } of this.awaiting.splice(0, count)) for (const answer of answers) this.deliver(answer);
    this.pump();
  }

  /** Entries through `index` are folded into the state. */
  applied(index: Index): void {
    this.raft.applied(index);
  }

  applyChange(data: Uint8Array): ConfState {
    const conf = this.raft.applyConfChange(confChangeOf(data));
    this.keepBytes();
    return conf;
  }

  /** Other members are sent what is appended. */
  private keepBytes(): void {
    this.keepsBytes = membersOf(this.raft.conf).length > 1;
    this.parts.log.setReplicated(this.shard, this.keepsBytes);
  }

  unreachable(node: NodeId): void {
    this.raft.reportUnreachable(node);
  }

  snapshotSent(node: NodeId, isTaken: boolean): void {
    this.raft.reportSnapshot(node, isTaken);
    this.pump();
  }

  /** A change of membership is in the log and not applied. */
  hasUnappliedChange(applied: Index): boolean {
    return this.raft.pendingConfIndex > applied;
  }

  /** Whether anything was received or proposed since the last call. */
  takeActivity(): boolean {
    const { isActive } = this;
    this.isActive = false;
    return isActive;
  }

  /** Lets out what Raft has ready. What its callbacks cause here is taken up in the same loop. */
  pump(): void {
    if (this.isPumping || this.isStopped) return;
    this.isPumping = true;
    try {
      while (this.raft.hasReady() && !this.isStopped) this.release();
    } finally {
      this.isPumping = false;
    }
  }

  private release(): void {
    const { append, messages, committed } = this.raft.ready();
    // Whoever decides must know first that it does not lead any more.
    this.tellChanges();
    if (append !== undefined) this.write(append);
    for (const message of messages) this.deliver(message);
    const { commit } = this.raft;
    if (commit !== this.commit) {
      this.commit = commit;
      this.parts.events.committed(commit);
    }
    if (committed.length > 0) this.parts.events.apply(committed);
  }

  private write({ entries, hardState, snapshot, mustSync, responses }: Append): void {
    const { log } = this.parts;
    if (snapshot !== undefined) log.setBase(this.shard, snapshot.index, snapshot.term);
    const isForeign = this.append(entries);
    // A commit index alone is not worth a write: it is learnt again.
    if (hardState !== undefined && mustSync) this.keepHardState(hardState);
    if (responses.length > 0) this.awaiting.push({ position: log.position(), answers: responses });
    // Its own records a leader hurries along as those who wait for them need it.
    if (isForeign || !this.leads) log.kick(true);
    if (this.awaiting.length > 0 && log.durablePosition() >= log.position()) this.durable(log.durablePosition());
  }

  private keepHardState(state: NonNullable<Append["hardState"]>): void {
    const { log } = this.parts;
    const before = log.hardState(this.shard);
    if (before.term !== state.term || before.vote !== state.vote || !this.leads) this.setHardState(state);
  }

  private setHardState(state: NonNullable<Append["hardState"]>): void {
    this.parts.log.setHardState(this.shard, state);
    this.statePosition = this.parts.log.position();
  }

  /** Writes what is not in the log yet: a leader's own records are there already. Returns whether there was any. */
  private append(entries: readonly Entry[]): boolean {
    const { log } = this.parts;
    const from = entries.findIndex(({ index, term }) => index > log.lastIndex(this.shard) || log.term(this.shard, index) !== term);
    if (from < 0) return false;
    const missing = entries.slice(from);
    log.append(
      this.shard,
      missing.map(({ index, term, kind, data }) => ({ index, term, kind: kind === RaftEntryKind.config ? "config" : "data", data })),
    );
    if (this.leads) for (const { index } of missing) this.parts.events.appended(index);
    return true;
  }

  private tellChanges(): void {
    const { role, term, leader } = this.raft;
    const { known } = this;
    if (role === known.role && term === known.term && leader === known.leader) return;
    this.known = { role, term, leader };
    this.parts.events.changed();
  }

  private deliver(message: Message): void {
    if (message.to === this.parts.self) this.raft.step(message);
    else this.parts.send(message);
  }
}
