/**
 * A state machine that follows a Raft group's log, and takes commands while this member leads.
 *
 * A follower folds in what is committed. A leader, once it has folded in everything before its
 * term, opens: from then on its own records are applied as they are decided, and only their
 * commit is told. When the leadership is lost the machine, which may hold decisions that never
 * happened, is thrown away and built anew from its checkpoint and the committed log: losing the
 * leadership is rare, so nothing is paid for it while leading.
 */
import { asIndex, type Index, InvariantError, isUnavailable, type NodeId, type ShardId, type Term } from "#core/base";
import type { ConfState, Entry, Message } from "#core/raft";
import { RaftEntryKind } from "#proto";
import type { LogEntry, LogStore } from "#store";
import type { Note } from "../shard/shard-host.ts";
import { onceSoon, type Timing } from "../timing.ts";
import { Group, type GroupParts } from "./group.ts";

/** Read from the log in one go. */
const readBytes = 1 << 20;
/** Before a machine that could not be built is built again. */
const mendMs = 500;

/** What a replica needs of its state machine. */
export interface ReplicatedMachine {
  /** Folds in a committed record. */
  recover(index: number, body: Uint8Array): void;
  /** An entry without a record: it only counts. */
  skip(index: number): void;
}

/** What takes commands while this member leads. */
export interface Leadership {
  /** The log is committed through `index`. */
  committed(index: Index): void;
  /** The leadership is over: nothing is decided any more, and whoever waits is told so. */
  close(): void;
}

/** A machine as of an index. */
export interface Built<M> {
  readonly machine: M;
  readonly appliedIndex: Index;
  /** Membership as of that index. */
  readonly conf: ConfState;
}

/** What a kind of replica (a shard, placement) does its own way. */
export interface ReplicaKind<M extends ReplicatedMachine> {
  /** The machine as it was checkpointed. */
  build(): Built<M>;
  /**
   * This member leads and its machine has everything before `term`: it may take commands now, or
   * after asking for leave; `open` is then called when it was given.
   */
  elected(term: Term): void;
  /** After each batch of committed entries, which a member that is open has folded in before. */
  applied(machine: M, index: Index): void;
  /** The membership as of `index`. */
  membership(conf: ConfState, index: Index): void;
  /** Role, term or leader changed. */
  changed(): void;
  snapshotOffered(message: Message): void;
  /** The machine holds half of something: nothing of it may be saved, and another one is built. */
  torn(): void;
  /** Whether a committed record may be folded in now; where not, `resumeApplying` is to be called later. */
  mayApply(body: Uint8Array): boolean;
}

export interface ReplicaParts<M extends ReplicatedMachine> {
  readonly shard: ShardId;
  readonly self: NodeId;
  readonly log: LogStore;
  readonly kind: ReplicaKind<M>;
  readonly snapshot: GroupParts["snapshot"];
  /** Log index past which the log alone does not lead a new member; 0 = it does from the start. */
  readonly changedIndex: (machine: M) => number;
  readonly draw: GroupParts["draw"];
  readonly send: GroupParts["send"];
  readonly timing: Timing;
  readonly note: Note;
  /** A bug of this replica: it stops, the node goes on. */
  readonly onFault: (error: Error) => void;
}

export class Replica<M extends ReplicatedMachine> {
  readonly shard: ShardId;
  readonly group: Group;
  machine: M;
  conf: ConfState;
  appliedIndex: Index;
  private readonly parts: ReplicaParts<M>;
  private leadership: Leadership | undefined;
  /** The machine holds what may never be committed. */
  private isAhead = false;
  private electedTerm = 0;
  private isHalted = false;
  /** The machine is not as of `appliedIndex`: what it needs could not be read. */
  private isTorn = false;
  /** A snapshot whose states are saved and that the machine has not begun with. */
  private arrived: Message | undefined;
  /** Committed, and not folded in yet. */
  private queue: Entry[] = [];
  private readonly mendSoon: () => void;

  constructor(parts: ReplicaParts<M>) {
    this.parts = parts;
    this.shard = parts.shard;
    this.mendSoon = onceSoon(parts.timing, mendMs, () => this.guard(() => this.mend()));
    const { machine, appliedIndex, conf } = parts.kind.build();
    this.machine = machine;
    this.appliedIndex = appliedIndex;
    this.conf = conf;
    this.group = new Group({
      shard: parts.shard,
      self: parts.self,
      log: parts.log,
      conf,
      snapshot: parts.snapshot,
      // A leader's machine may be ahead of what is committed.
      changedIndex: () => Math.min(parts.changedIndex(this.machine), this.appliedIndex),
      appliedIndex,
      draw: parts.draw,
      send: parts.send,
      events: {
        changed: () => this.guard(() => this.onChanged()),
        committed: (index) => this.guard(() => this.leadership?.committed(index)),
        apply: (entries) => {
          for (const entry of entries) this.queue.push(entry);
          this.resumeApplying();
        },
        appended: (index) => {
          if (this.leadership !== undefined) this.machine.skip(index);
        },
        durable: () => {
          if (this.queue.length > 0) this.resumeApplying();
        },
        snapshotOffered: (message) => parts.kind.snapshotOffered(message),
      },
    });
  }

  start(): void {
    this.group.start();
  }

  /** Nothing is applied, decided or sent any more. */
  stop(): void {
    this.isHalted = true;
    this.closeLeadership();
    this.group.stop();
  }

  /** The machine is as of `appliedIndex`, or ahead of it where this member leads. */
  get isWhole(): boolean {
    return !this.isTorn;
  }

  get isOpen(): boolean {
    return this.leadership !== undefined;
  }

  /** The member still leads in `term`, and takes commands through `leadership` from here on. */
  open(term: Term, begin: (machine: M) => Leadership): boolean {
    if (this.isHalted || !this.group.leads || this.group.term !== term || this.leadership !== undefined) return false;
    this.isAhead = true;
    this.leadership = begin(this.machine);
    return true;
  }

  /** The state of a snapshot is saved: the machine and the log go on behind it. */
  installed(message: Message): void {
    this.arrived = message;
    this.guard(() => {
      const { machine, appliedIndex, conf } = this.parts.kind.build();
      this.isTorn = false;
      this.arrived = undefined;
      this.queue = [];
      this.machine = machine;
      this.appliedIndex = appliedIndex;
      this.conf = conf;
      this.group.installed(message);
    });
  }

  private onChanged(): void {
    if (!this.group.leads || this.group.term !== this.electedTerm) this.stepDown();
    this.parts.kind.changed();
  }

  private stepDown(): void {
    this.electedTerm = 0;
    this.closeLeadership();
    if (this.isAhead && !this.isTorn) this.rebuild();
  }

  private closeLeadership(): void {
    const { leadership } = this;
    this.leadership = undefined;
    leadership?.close();
  }

  /** Puts the machine back to what is committed. */
  private rebuild(): void {
    this.isAhead = false;
    const through = this.appliedIndex;
    const { machine, appliedIndex } = this.parts.kind.build();
    this.machine = machine;
    for (const { index, kind, data } of this.logged(appliedIndex + 1, through)) {
      if (kind === "config" || data.length === 0) machine.skip(index);
      else machine.recover(index, data);
    }
  }

  /** Entries [from, through], whether they are durable here or only elsewhere. */
  private *logged(from: number, through: number): Generator<LogEntry> {
    for (let next = from; next <= through; ) {
      const entries = this.parts.log.entries(this.shard, asIndex(next), asIndex(through + 1), readBytes);
      yield* entries;
      next = (entries.at(-1) as LogEntry).index + 1;
    }
  }

  /** What the log has behind what is folded in, committed or not. */
  unapplied(): Generator<LogEntry> {
    const { log } = this.parts;
    return this.logged(Math.max(this.appliedIndex, log.base(this.shard).index) + 1, log.lastIndex(this.shard));
  }

  /** Folds in what is committed and waits. */
  resumeApplying(): void {
    this.guard(() => this.applyQueue());
    // What was applied may have made Raft append: that is in the log before anything else is.
    this.group.pump();
  }

  /** Folds in the log through `through`, which is known to be committed whatever the group has told. */
  applyThrough(through: Index): void {
    this.guard(() => {
      this.applyQueue();
      if (this.isTorn || this.queue.length > 0) return;
      const end = Math.min(through, this.parts.log.lastIndex(this.shard));
      for (const { index, term, kind, data } of this.logged(this.appliedIndex + 1, end))
        this.applyOne({ index, term, kind: kind === "config" ? RaftEntryKind.config : RaftEntryKind.data, data });
    });
  }

  private applyQueue(): void {
    if (this.isTorn) return;
    let count = 0;
    for (const entry of this.queue) {
      if (entry.index > this.appliedIndex) {
        if (entry.kind === RaftEntryKind.config && !this.group.isCommitKept(entry.index)) break;
        const isRecord = entry.kind === RaftEntryKind.data && entry.data.length > 0;
        if (isRecord && this.leadership === undefined && !this.parts.kind.mayApply(entry.data)) break;
        this.applyOne(entry);
      }
      count++;
    }
    if (count === 0) return;
    this.queue.splice(0, count);
    this.group.applied(this.appliedIndex);
    this.parts.kind.applied(this.machine, this.appliedIndex);
    this.seeElection();
  }

  private applyOne({ index, kind, data }: Entry): void {
    if (index !== this.appliedIndex + 1)
      throw new InvariantError(`Cannot apply entry ${index} of shard ${this.shard}: ${this.appliedIndex} was applied last`);
    // A leader that is open has applied its own records as it decided them.
    if (this.leadership === undefined) {
      if (kind === RaftEntryKind.config || data.length === 0) this.machine.skip(index);
      else this.machine.recover(index, data);
    }
    this.appliedIndex = index;
    if (kind !== RaftEntryKind.config) return;
    this.conf = this.group.applyChange(data);
    this.parts.kind.membership(this.conf, index);
  }

  /** Leads, and the first entry of its term is applied: everything before it is. */
  private seeElection(): void {
    const { group } = this;
    if (!group.leads || this.electedTerm === group.term || this.parts.log.term(this.shard, this.appliedIndex) !== group.term) return;
    this.electedTerm = group.term;
    this.parts.kind.elected(group.term);
  }

  /** What the machine needs can't be read now. It holds half of something: another member may lead, and it is built anew. */
  private tear(why: string): void {
    if (!this.isTorn) this.parts.note("warn", "a replica waits until it can read again", { shard: this.shard, error: why });
    this.isTorn = true;
    this.parts.kind.torn();
    this.closeLeadership();
    this.group.resign();
    this.mendSoon();
  }

  private mend(): void {
    if (!this.isTorn) return;
    if (this.arrived !== undefined) return this.installed(this.arrived);
    this.rebuild();
    this.isTorn = false;
    this.parts.note("info", "a replica reads again", { shard: this.shard });
    // What was folded in anew may have something to tell.
    this.parts.kind.applied(this.machine, this.appliedIndex);
    this.applyQueue();
    // Nobody else asks for its vote.
    if (this.group.isSoleVoter && !this.group.leads) this.group.campaign();
    this.group.pump();
  }

  private guard(run: () => void): void {
    if (this.isHalted) return;
    try {
      run();
    } catch (error) {
      if (isUnavailable(error)) return this.tear(error.message);
      this.stop();
      this.parts.onFault(error instanceof Error ? error : new Error(String(error)));
    }
  }
}
