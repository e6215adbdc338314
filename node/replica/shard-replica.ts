/**
 * One replica of a shard on this node: follows the group, opens for business when it leads, and
 * carries out what placement wants of the shard.
 *
 * What is wanted is looked at again and again (`reconcile`), never remembered: whoever leads next
 * goes on where the one before stopped.
 */
import { asIndex, asShardId, type Index, type KeyRange, overlaps, type Partition, type ShardId, type Term, wholeRange } from "#core/base";
import type { ReplicaSet } from "#core/placement";
import { type ConfState, type Message, noConf } from "#core/raft";
import { type AppliedChange, type Checkpoint, changeOf, ShardMachine } from "#core/shard";
import { decodeConfState, encodeConfState, fromBytes, toBytes } from "#proto";
import { Checkpointer } from "../shard/checkpointer.ts";
import { PhysicalClock } from "../shard/physical-clock.ts";
import { ShardHost } from "../shard/shard-host.ts";
import { onceSoon, tickAt } from "../timing.ts";
import { zones } from "../zones.ts";
import { Births, isSplit } from "./births.ts";
import { Ending } from "./ending.ts";
import type { Group } from "./group.ts";
import { Memberships } from "./memberships.ts";
import { Reconciler, sameMembers } from "./reconciler.ts";
import { type Built, Replica, type ReplicaKind } from "./replica.ts";
import type { Lease, ReplicaSurroundings } from "./surroundings.ts";
import { TrimRound } from "./trim.ts";

const leaseRetryMs = 50;
const reconcileMs = 100;
/** Of a shard at which nothing is to be done: five hundred of them cost next to nothing. */
const reconcileMsMax = 3200;
const finishMs = 2;
/** Before a disk that could not be read is asked again. */
const unreadMs = 500;
/** Read of the saved states in one go, for checks. */
const statePartBytes = 256 << 10;
/** States that stay in memory of a shard that is led here, however idle. */
const residentKept = 4000;

export class ShardReplica {
  readonly shard: ShardId;
  readonly replica: Replica<ShardMachine>;
  host: ShardHost | undefined;
  private readonly around: ReplicaSurroundings;
  private checkpointer: Checkpointer | undefined;
  /** Changes that are folded in and not carried out. */
  private changes: AppliedChange[] = [];
  private readonly births: Births;
  private readonly memberships = new Memberships();
  private readonly reconciler: Reconciler;
  private stopTimer = () => {};
  private pauseMs = reconcileMs;
  private isAsking = false;
  /** Older views of placement say nothing to this leader. */
  private actsFrom = 0;
  /** Aborted when the replica ends. */
  readonly gone = new AbortController();
  private readonly trimming: TrimRound;
  private isHastened = false;
  private readonly applySoon: () => void;
  private readonly carryOutLater: () => void;
  private readonly ending: Ending;

  constructor(shard: ShardId, around: ReplicaSurroundings) {
    this.shard = shard;
    this.around = around;
    this.births = new Births(around.log, around.placement);
    this.trimming = new TrimRound(shard, around, this.gone.signal);
    this.reconciler = new Reconciler(this, around);
    this.ending = new Ending(this, around);
    this.carryOutLater = onceSoon(around.timing, unreadMs, () => this.carryOut());
    this.applySoon = onceSoon(around.timing, finishMs, () => this.replica.resumeApplying());
    const kind: ReplicaKind<ShardMachine> = {
      build: () => this.build(),
      elected: (term) => this.askLease(term),
      applied: (machine) => {
        this.noteChanges(machine);
        this.checkpointer?.look();
        around.shards.committed();
      },
      membership: (conf, index) => this.onMembership(conf, index),
      changed: () => this.onChanged(),
      snapshotOffered: (message) => around.shards.snapshotOffered(shard, message),
      torn: () => this.checkpointer?.stop(),
      mayApply: (body) => this.mayApply(body),
    };
    this.replica = new Replica({
      shard,
      self: around.self,
      log: around.log,
      kind,
      snapshot: () => this.snapshotMeta(),
      changedIndex: (machine) => machine.changedIndex,
      draw: around.draw,
      timing: around.timing,
      note: around.note,
      send: (message) => around.send(shard, message),
      onFault: (error) => this.onFault(error),
    });
  }

  start(): void {
    this.replica.start();
    this.watch();
  }

  stop(): void {
    this.gone.abort();
    this.stopTimer();
    this.checkpointer?.stop();
    this.replica.stop();
  }

  /** A change of its keys is decided, and not committed or not carried out. */
  isChanging(): boolean {
    this.seeDecided();
    return this.changes.length > 0;
  }

  /** What a leader has just decided has told of no change yet: that of a split is to be captured before anything else happens. */
  seeDecided(): void {
    this.noteChanges(this.replica.machine);
  }

  get group(): Group {
    return this.replica.group;
  }

  /** Whether a snapshot of these keys as of `index` is still of use: it may not put back this shard, nor take the keys of another. */
  mayTake(index: number, range: KeyRange): boolean {
    if (index <= this.replica.group.commitIndex) return false;
    for (const other of this.around.shards.all()) {
      if (other === this || other.isBlank || !overlaps(range, other.range)) continue;
      const gone = this.around.placement.retired(other.shard);
      // It was merged into this one, and the snapshot has what it was; it decides nothing more, and may save nothing later either.
      if (gone?.into !== this.shard || !other.finish(gone.through)) return false;
    }
    return true;
  }

  /** It has nothing yet, and waits for what its leader sends. */
  get isBlank(): boolean {
    return this.replica.appliedIndex === 0;
  }

  get range(): KeyRange {
    const { first, last } = this.replica.machine.header();
    return { first, last };
  }

  /** The states of a snapshot are saved: the replica goes on behind them. `offered` is what the leader said, with what came. */
  installed(offered: Message): void {
    this.replica.installed(offered);
  }

  /**
   * The state of each partition as of now, in parts: what is in memory at once, what is saved page by page, so that
   * others may run in between.
   */
  *stateParts(): Generator<(readonly [Partition, Uint8Array])[]> {
    const { machine } = this.replica;
    const inMemory = new Map(machine.states());
    const saved = this.around.checkpoint.exportRange(this.shard, this.range);
    try {
      yield [...inMemory];
      for (const batch of saved.batches(statePartBytes))
        yield batch
          .filter(({ partition }) => !inMemory.has(partition))
          .map((row) => [row.partition, machine.canonicalState(row.partition, row.key, row)]);
    } finally {
      saved.close();
    }
  }

  /** The same in one piece. */
  *allStates(): Generator<readonly [Partition, Uint8Array]> {
    for (const part of this.stateParts()) yield* part;
  }

  /** To be called when the log became durable further. */
  onDurable(): void {
    this.host?.onFlushed();
    this.checkpointer?.look();
  }

  // The machine, as it was checkpointed.

  private build(): Built<ShardMachine> {
    const { shard } = this;
    const { log, checkpoint, hasher, orphanGraceMs, idleMs, keyRetentionMs } = this.around;
    this.checkpointer?.stop();
    const meta = checkpoint.meta(shard);
    const appliedIndex = meta?.appliedIndex ?? log.base(shard).index;
    this.trimming.noteSaved(appliedIndex, meta?.header);
    const conf = meta === undefined ? noConf : (fromBytes(decodeConfState, meta.conf) as unknown as ConfState);
    // A machine that is put back to its checkpoint is still a member of what was committed since.
    this.memberships.beginAt(appliedIndex, conf);
    // What the checkpoint before was waited for comes again.
    this.changes = [];
    this.births.clear();
    this.isHastened = false;
    this.ending.restart();
    const machine: ShardMachine = new ShardMachine({
      shard,
      log,
      hasher,
      states: checkpoint.reader(),
      zones,
      birth: { range: wholeRange, ancestors: [], clockMs: 0 },
      ...(meta === undefined
        ? {}
        : { saved: { appliedIndex, header: meta.header, headerIndex: meta.headerIndex ?? appliedIndex, clockMs: meta.clockMs } }),
      residentKept,
      ...(orphanGraceMs === undefined ? {} : { orphanGraceMs }),
      ...(idleMs === undefined ? {} : { idleMs }),
      ...(keyRetentionMs === undefined ? {} : { keyRetentionMs }),
    });
    this.checkpointer = new Checkpointer({
      machine,
      timing: this.around.timing,
      note: this.around.note,
      isSettled: (taken) => {
        // What was folded in outside of a batch has told of no change yet.
        this.noteChanges(machine);
        return this.isSettled(taken);
      },
      hurry: () => this.hurry(),
      save: (taken) => this.save(machine, taken),
      evict: () => {
        if (this.host !== undefined) this.host.evictIdle();
        else machine.evictIdle(machine.clockMs);
      },
    });
    return { machine, appliedIndex: asIndex(appliedIndex), conf };
  }

  /** What it folds is committed, durable and, as to the membership, applied here, and so is what a split in it gave birth to. */
  private isSettled({ durableIndex, headerIndex }: Checkpoint): boolean {
    if (durableIndex > this.replica.appliedIndex || durableIndex > this.around.log.durableIndex(this.shard)) return false;
    return this.births.mayBeSaved(this.changes, headerIndex);
  }

  private save(machine: ShardMachine, { rows, appliedIndex, header, headerIndex }: Checkpoint): void {
    const conf = this.memberships.at(appliedIndex);
    this.around.checkpoint.save(
      rows,
      {
        shard: this.shard,
        appliedIndex: asIndex(appliedIndex),
        clockMs: machine.clockMs,
        conf: toBytes(encodeConfState, conf),
        header,
        headerIndex,
      },
      this.births.savedWith(headerIndex),
    );
    this.memberships.saved(appliedIndex);
    this.trimming.noteSaved(appliedIndex, header);
    this.trimming.look(this.replica.group);
  }

  private hurry(): void {
    this.replica.group.pump();
    this.around.log.kick(true);
  }

  private snapshotMeta() {
    const { checkpoint, log } = this.around;
    const meta = checkpoint.meta(this.shard);
    const { changedIndex } = this.replica.machine;
    const conf = meta === undefined ? noConf : (fromBytes(decodeConfState, meta.conf) as unknown as ConfState);
    // Older states may be of keys that another shard of the new member has, or of a membership without it. One that all members
    // are of is enough: what would be newer may have to wait for a commit, and that one for who waits for the states.
    if (meta === undefined || meta.appliedIndex < changedIndex || !this.memberships.areIn(conf)) {
      this.hastenCheckpoint(Math.max(changedIndex, this.memberships.newestIndex));
      return undefined;
    }
    const index = asIndex(meta.appliedIndex);
    const term = log.term(this.shard, index);
    return term === undefined ? undefined : { index, term, conf };
  }

  /** A member waits for a snapshot: where nothing changes, nothing would be saved. */
  private hastenCheckpoint(through: number): void {
    if (this.isHastened || through > this.replica.appliedIndex) return;
    this.isHastened = true;
    this.flushThrough(through, () => {
      this.isHastened = false;
    });
  }

  // Leading.

  private onChanged(): void {
    const { group } = this.replica;
    if (!group.leads) this.isAsking = false;
    // By the time that its term has a commit the others have answered.
    else if (!this.replica.isOpen) group.askAll(tickAt(this.around.timing));
  }

  /** Membership as placement is told of it. */
  replicaSet(): ReplicaSet {
    return this.memberships.replicaSet();
  }

  private askLease(term: Term): void {
    if (this.isAsking || this.gone.signal.aborted) return;
    this.isAsking = true;
    const { placement, timing } = this.around;
    this.replica.group.proveLead(tickAt(timing));
    const { group } = this.replica;
    const isCurrent = () => !this.gone.signal.aborted && group.leads && group.term === term && !this.replica.isOpen;
    const replicas = this.replicaSet();
    // It grants leases to voters that it knows.
    const entry = placement.entry(this.shard);
    if (entry !== undefined && !sameMembers(entry, replicas)) placement.replicasChanged(this.shard, replicas);
    placement.lease({ shard: this.shard, term, replicas }, (result) => {
      this.isAsking = false;
      if (!isCurrent()) return;
      // While the lead is being handed over nothing can be put into the log.
      if (!("reject" in result) && group.mayPropose()) return this.open(term, result);
      timing.after(leaseRetryMs, () => {
        if (isCurrent()) this.askLease(term);
      });
    });
  }

  private open(term: Term, { epoch, version }: Lease): void {
    this.actsFrom = version;
    this.hasten();
    const { around, shard } = this;
    const { group } = this.replica;
    this.replica.open(term, (machine) => {
      const clock = new PhysicalClock(machine.clockMs, around.timing);
      const host = new ShardHost({ ...around, shard, machine, clock, group, onFault: (error) => this.onFault(error) });
      this.host = host;
      host.start({ term, epoch, node: around.self, appliedIndex: group.lastIndex });
      around.shards.opened(shard, host);
      return {
        committed: (index) => host.onCommitted(index),
        close: () => {
          this.host = undefined;
          around.shards.closed(shard);
          host.close();
        },
      };
    });
  }

  // Following.

  private onMembership(conf: ConfState, index: Index): void {
    this.memberships.add(conf, index);
    this.hasten();
    if (this.replica.group.leads) this.around.placement.replicasChanged(this.shard, this.replicaSet());
  }

  /** A shard that takes in its neighbour has to have all of it first. */
  private mayApply(body: Uint8Array): boolean {
    const change = changeOf(body);
    if (change?.kind !== "absorbed") return true;
    const shard = asShardId(change.value.shard);
    const right = this.around.shards.replica(shard);
    // Where there is none, it was taken in before this life began, or its parent here has still to give birth to it.
    const isDone = right === undefined ? this.around.log.isRemoved(shard) : right.finish(asIndex(change.value.through));
    if (isDone) return true;
    this.applySoon();
    return false;
  }

  /** Folds in and saves everything through `through`, which is known to be committed. Returns whether that is done, and outlives a loss of power. */
  finish(through: Index): boolean {
    return this.ending.finish(through);
  }

  /** Saves every state as of now or later, then calls `done`. */
  flush(done: () => void): void {
    this.flushThrough(this.replica.appliedIndex, done);
  }

  flushThrough(through: number, done = (): void => {}): void {
    this.checkpointer?.flush((taken) => taken.appliedIndex >= through, done);
  }

  /** A split that gives keys of the range away is applied, and not saved yet. */
  isPartingWith(range: KeyRange): boolean {
    return this.changes.some(({ child }) => child !== undefined && overlaps(child.range, range));
  }

  /** A split that gives birth to the shard is applied, and not carried out yet. */
  givesBirthTo(shard: ShardId): boolean {
    return this.changes.some(({ change }) => change.kind === "split" && change.value.child === shard);
  }

  // Changes of the shard, once they are committed.

  private noteChanges(machine: ShardMachine): void {
    const noted = machine.takeChanges();
    this.changes.push(...noted);
    for (const each of noted) if (isSplit(each)) this.saveBirth(each);
    this.carryOut();
  }

  /** The states are captured at once, as of the split: later ones would have to be committed first. */
  private saveBirth({ index }: AppliedChange): void {
    this.checkpointer?.flush(
      (taken) => taken.headerIndex >= index,
      () => {
        this.births.saved(index);
        this.carryOut();
      },
    );
  }

  private carryOut(): void {
    this.births.begin(this.changes, {
      // A child begins with the membership as of the split, so that has to be known.
      through: this.replica.appliedIndex,
      membersAt: (index) => this.memberships.at(index),
      leads: this.host !== undefined,
    });
    for (let next = this.changes[0]; next !== undefined && !this.gone.signal.aborted; next = this.changes[0]) {
      // What is applied here is committed, though the group of a shard that others have taken in may never tell.
      if (next.index > this.replica.appliedIndex) return;
      if (isSplit(next) && !this.births.isSaved(next.index)) return;
      this.changes.shift();
      if (next.change.kind === "absorbed") this.takeIn(asShardId(next.change.value.shard));
      if (next.change.kind === "split" && isSplit(next)) {
        if (!this.around.shards.born(asShardId(next.change.value.child), this.replica.group.leads)) {
          this.changes.unshift(next);
          return this.carryOutLater();
        }
        this.births.over(next.index);
      }
      if (next.change.kind === "frozen") this.around.timing.after(0, () => this.reconcile());
      // With what is saved behind a seal goes what it lets the replica forget; what is frozen is saved before another takes it in.
      if (next.change.kind === "sealed" || next.change.kind === "frozen") this.flushThrough(next.index);
    }
  }

  /** The right one is finished: this shard's own checkpoint has what it had. */
  private takeIn(right: ShardId): void {
    const { shards, placement } = this.around;
    shards.retire(right);
    if (this.replica.group.leads) placement.absorbed(this.shard, right);
  }

  // What placement wants.

  private watch(): void {
    this.stopTimer = this.around.timing.after(this.pauseMs, () => {
      if (this.gone.signal.aborted) return;
      this.carryOn();
      this.trimming.look(this.replica.group);
      this.ending.look();
      this.pauseMs = this.reconciler.isContent() ? Math.min(this.pauseMs * 2, reconcileMsMax) : reconcileMs;
      this.watch();
    });
  }

  /** Does the next thing that placement wants of the shard, if this member leads it: now, and then until it is done. */
  reconcile(): void {
    this.carryOn();
    if (!this.reconciler.isContent()) this.hasten();
  }

  private hasten(): void {
    if (this.pauseMs === reconcileMs || this.gone.signal.aborted) return;
    this.stopTimer();
    this.pauseMs = reconcileMs;
    this.watch();
  }

  private carryOn(): void {
    if (this.host !== undefined && !this.gone.signal.aborted) this.reconciler.reconcile(this.host, this.actsFrom);
  }

  private onFault(error: Error): void {
    this.around.note("error", "shard stopped", { shard: this.shard, error: error.message, stack: error.stack ?? "" });
    this.stop();
    this.around.onFault(error);
  }
}
