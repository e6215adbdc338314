/**
 * A shard as a state machine, one on each replica.
 *
 * A follower is given what is committed: `recover` and `skip`, in index order. A leader begins with
 * `lead`, and from then on `step(input)` decides, appends and applies, and returns what the shell
 * is to do. A leader that loses the lead is thrown away: a new machine starts from the checkpoint.
 * It looks at nothing but its inputs and the ports it was given, so equal inputs give equal bytes
 * and effects on every machine, and equal logs equal states.
 */
import type { Effect, Hasher, Key, Partition, Rejection, SavedState, ShardId } from "#core/base";
import { assert, logicalMax, unreachable } from "#core/base";
import type { DescribeReply, Message, ShardAbsorbed, ShardSealed, ShardSplit } from "#proto";
import { onActivated, onEvicted, onReplayFailed } from "./activation.ts";
import { absorb, freeze, type Leadership, lead, renew, seal, split, thaw } from "./changes.ts";
import { carryOnChannel } from "./channels.ts";
import { type Checkpoint, capture, encodeState, evictIdle, putBack, recover, saved, skip } from "./checkpoint.ts";
import { onCommand } from "./commands.ts";
import { startNext } from "./contention.ts";
import { type AppliedChange, ShardContext, type ShardOptions } from "./context.ts";
import { pump } from "./delivery.ts";
import { describe } from "./describe.ts";
import { type DueHistory, expire } from "./expiry.ts";
import type { Header } from "./header.ts";
import { onEnvelope } from "./inbox.ts";
import { type Input, mayAppend } from "./input.ts";
import { mindKey } from "./keys.ts";
import type { LiveRun } from "./live-run.ts";
import { onEnvelopeAnswered, postNew } from "./outbox.ts";
import { leaveWorker } from "./outcome.ts";
import { onQueryAnswered } from "./queries.ts";
import { fetchFor } from "./reading.ts";
import { type Met, type Reunited, renumber, reunite } from "./reunion.ts";
import { carryOn } from "./schedules.ts";
import { onCapacityFreed, onHeartbeat, onTaskDone } from "./tasks.ts";
import { arm, onTick } from "./timers.ts";
import { unwind } from "./unwind.ts";
import { onRequestGone } from "./waits.ts";
import { onGone, onJoined } from "./workers.ts";

/** Figures of a shard, for metrics. */
export interface ShardFigures {
  readonly residentRuns: number;
  readonly readyTasks: number;
  readonly sessions: number;
  readonly unassignedRuns: number;
  readonly lastIndex: number;
  /** Runs whose state is to be saved, those that left among them. */
  readonly dirtyRuns: number;
  readonly timers: number;
}

/** Events [firstSeq, size) of a partition are there, the last one in a record of a shard's log. */
export interface HistoryEnd {
  readonly firstSeq: number;
  readonly size: number;
  readonly lastIndex: number;
  readonly lastShard: ShardId;
  readonly closed: boolean;
}

/** Messages of a partition of one shard to one of another. */
export interface Sending {
  readonly from: Partition;
  readonly receiver: ShardMachine;
}

export class ShardMachine {
  private readonly ctx: ShardContext;

  constructor(options: ShardOptions) {
    this.ctx = new ShardContext(options);
  }

  /**
   * Leaders only. Throws `HopError` STORE_UNAVAILABLE where a state that the input is about can't be read now: nothing
   * has changed then, and the same input may be stepped again.
   */
  step(input: Input): Effect[] {
    const { ctx } = this;
    assert(ctx.isLeading, "a shard is stepped only while it leads");
    ctx.begin(input.nowMs);
    const before = ctx.lastIndex;
    fetchFor(ctx, input);
    if (!ctx.isFrozen || !stall(ctx, input)) dispatch(ctx, input);
    ctx.absent = undefined;
    for (const live of ctx.takeTouched()) {
      unwind(ctx, live);
      startNext(ctx, live);
      carryOn(ctx, live);
      carryOnChannel(ctx, live);
      mindKey(ctx, live);
      pump(ctx, live);
      postNew(ctx, live);
    }
    ctx.seal();
    assert(mayAppend[input.kind] || ctx.lastIndex === before, `Appended to shard ${ctx.options.shard} by ${input.kind}, which may not`);
    arm(ctx);
    return ctx.effects;
  }

  /** Folds in one committed record of the log, in index order. */
  recover(index: number, body: Uint8Array): void {
    recover(this.ctx, index, body);
  }

  /**
   * Steps over an entry that holds no record: a configuration, a new leader's first. A leader too,
   * when the shell puts one behind its last record.
   */
  skip(index: number): void {
    skip(this.ctx, index);
  }

  /**
   * Leads from here on: all of the log is applied, this is recorded, timers are armed and what was
   * under way goes on.
   */
  lead(leadership: Leadership): Effect[] {
    return lead(this.ctx, leadership);
  }

  /** As `lead`, for who only puts right what a restore found, before anybody leads: nothing is sent, and nothing goes on. */
  amend({ term, nowMs }: Pick<Leadership, "term" | "nowMs">): void {
    const { ctx } = this;
    assert(!ctx.isLeading, `Cannot amend shard ${ctx.options.shard} in term ${term}: it is led in term ${ctx.term}`);
    ctx.begin(nowMs);
    ctx.term = term;
    ctx.clock.witness({ timeMs: ctx.nowMs, logical: logicalMax });
  }

  /** Both shards are to be amended: see `renumber`. */
  renumberTo(to: Partition, sending: Sending): void {
    renumber(this.meet(to, sending));
  }

  /** Both shards are to be amended: see `reunite`. */
  reuniteWith(to: Partition, sending: Sending, signals: readonly Message[]): Reunited {
    return reunite(this.meet(to, sending), signals);
  }

  private meet(to: Partition, { from, receiver }: Sending): Met {
    const [here, there] = [this.ctx, receiver.ctx];
    return { sender: here, receiver: there, from: here.findOrCreate(from), to: there.findOrCreate(to) };
  }

  /** No more the leader: workers forget its runs. The machine takes no more inputs, and is to be thrown away. */
  stepDown(): Effect[] {
    const { ctx } = this;
    ctx.begin(ctx.nowMs);
    for (const session of ctx.pool.sessions.values()) {
      for (const live of [...session.runs.values()]) leaveWorker(ctx, live);
      session.capacity.forget(ctx.options.shard);
    }
    ctx.term = 0 as typeof ctx.term;
    return ctx.effects;
  }

  /** Gives the keys from `at` on to the shard `child`, at once. */
  split(by: Readonly<ShardSplit>, nowMs: number): Effect[] | Rejection {
    return split(this.ctx, by, nowMs);
  }

  /** Decides nothing more until it is thawed or absorbed; reads go on. */
  freeze(by: { readonly into: ShardId }, nowMs: number): Effect[] | Rejection {
    return freeze(this.ctx, by, nowMs);
  }

  /** Goes on deciding, with what workers said meanwhile. */
  thaw(nowMs: number): Effect[] | Rejection {
    const { ctx } = this;
    const refused = thaw(ctx, nowMs);
    if (refused !== undefined) return refused;
    const effects = ctx.effects;
    for (const input of this.takeStalled()) effects.push(...this.step({ ...input, nowMs }));
    for (const session of [...ctx.pool.sessions.keys()]) effects.push(...this.step({ kind: "capacity-freed", session, nowMs }));
    effects.push(...this.step({ kind: "tick", nowMs }));
    return effects;
  }

  /** Leads on under a newer lease of the same term. */
  renew(epoch: number, nowMs: number): Effect[] | Rejection {
    return renew(this.ctx, epoch, nowMs);
  }

  /** Makes the right neighbour part of the shard: its states must be saved on this node. */
  absorb(absorbed: Readonly<ShardAbsorbed>, nowMs: number): Effect[] | Rejection {
    return absorb(this.ctx, absorbed, nowMs);
  }

  /** The log through an index lies in object storage: every replica may forget it. */
  seal(sealed: Readonly<ShardSealed>, nowMs: number): Effect[] | Rejection {
    return seal(this.ctx, sealed, nowMs);
  }

  /** Takes histories away whose time is over; those that may not go yet are left. */
  expire(due: readonly DueHistory[], nowMs: number): Effect[] | Rejection {
    return expire(this.ctx, due, nowMs);
  }

  /** What the left neighbour is to `absorb` of this frozen shard. */
  absorption(): ShardAbsorbed {
    const { header, options, clock } = this.ctx;
    assert(this.ctx.isFrozen, `Cannot absorb shard ${options.shard}: it is not frozen`);
    return { shard: options.shard, through: header.frozenIndex, last: header.last, ancestor: [...header.ancestor], clockMs: clock.timeMs };
  }

  /** What workers said since the shard was frozen, oldest first: where it is absorbed, results go to its neighbour. */
  takeStalled(): Input[] {
    const { stalled } = this.ctx;
    this.ctx.stalled = [];
    return stalled;
  }

  /**
   * Changes of the shard that were applied since the last call, in order; on a leader they may not
   * be committed yet. Those of a checkpoint's header are not among them, so what a split gives birth
   * to must be durable on this node before a checkpoint that was taken after it is saved.
   */
  takeChanges(): AppliedChange[] {
    const { changes } = this.ctx;
    this.ctx.changes = [];
    return changes;
  }

  /** No state of a run that another shard owns now is still to be saved here: that shard may begin. */
  departed(): boolean {
    return this.ctx.headerBefore === undefined;
  }

  /** As of now: a change of the shard makes another one. */
  header(): Header {
    return this.ctx.header;
  }

  /** Log index of the newest split or absorption; 0 = none was. */
  get changedIndex(): number {
    return this.ctx.header.changedIndex;
  }

  /** Takes up to `limit` changed states for a checkpoint. */
  capture(limit: number): Checkpoint {
    return capture(this.ctx, limit);
  }

  /** The latest checkpoint is saved: its runs may leave memory. */
  saved(): void {
    saved(this.ctx);
  }

  putBack(checkpoint: Checkpoint): void {
    putBack(this.ctx, checkpoint);
  }

  /** Drops idle, saved runs from memory. */
  evictIdle(nowMs: number): Effect[] {
    this.ctx.begin(nowMs);
    evictIdle(this.ctx);
    this.ctx.seal();
    return this.ctx.effects;
  }

  /** Why the partition is not this shard's, or undefined. */
  elsewhere(partition: Partition): Rejection | undefined {
    return this.ctx.owns(partition) ? undefined : this.ctx.elsewhere(partition);
  }

  describe(partition: Partition): DescribeReply | undefined {
    const live = this.ctx.find(partition);
    return live === undefined ? undefined : describe(this.ctx, live, this.ctx.options.hasher);
  }

  /** Where the partition's history lies. */
  historyEnd(partition: Partition): HistoryEnd | undefined {
    const live = this.ctx.find(partition);
    if (live === undefined) return undefined;
    const { chain, run } = live;
    const { size, lastIndex } = chain;
    return { firstSeq: run.expiredEnd, size, lastIndex, lastShard: this.ctx.shardOfLast(live), closed: run.closedMs > 0 };
  }

  /** Highest time in the log: the shell's clock starts above it. */
  get clockMs(): number {
    return this.ctx.clock.timeMs;
  }

  get lastIndex(): number {
    return this.ctx.lastIndex;
  }

  figures(): ShardFigures {
    const { runs, ready, pool, unassigned, lastIndex, dirty, departing, timers } = this.ctx;
    return {
      residentRuns: runs.size,
      readyTasks: ready.size,
      sessions: pool.sessions.size,
      unassignedRuns: unassigned.size,
      lastIndex,
      dirtyRuns: dirty.size + departing.size,
      timers: timers.size,
    };
  }

  /** Encoded states of the runs in memory, by partition: what two machines compare. */
  *states(): IterableIterator<[Partition, Uint8Array]> {
    for (const live of this.ctx.runs.values())
      if (live.chain.size > 0 || live.run.inbox.size > 0) yield [live.partition, encodeState(live)];
  }

  /** A saved state as `states` would have it: whoever saved it, and when, does not show. */
  canonicalState(partition: Partition, key: Key, saved: SavedState): Uint8Array {
    return encodeState(this.ctx.decodeState(partition, key, saved));
  }

  /** For checkers: the runs in memory. Read only. */
  *liveRuns(): IterableIterator<LiveRun> {
    yield* this.ctx.runs.values();
  }
}

/** What a frozen shard puts off: by the rest nothing can be appended. */
function stall(ctx: ShardContext, input: Input): boolean {
  switch (input.kind) {
    case "tick":
      // It is armed again by the thaw.
      ctx.armedMs = Number.POSITIVE_INFINITY;
      return true;
    case "capacity-freed":
      ctx.pool.sessions.get(input.session)?.capacity.rest(ctx.options.shard);
      return true;
    case "command":
    case "request-gone":
    case "heartbeat":
    case "query-answered":
    case "envelope":
    case "envelope-answered":
      return false;
    default:
      ctx.stalled.push(input);
      return true;
  }
}

/** Independent of the order: two replicas that hold the same states have the same. */
export function digestOf(states: Iterable<readonly [Partition, Uint8Array]>, hasher: Hasher): Uint8Array {
  const sum = new Uint8Array(32);
  const one = new Uint8Array(32);
  for (const [, state] of states) {
    hasher.sha256(state, one);
    for (let i = 0; i < sum.length; i++) sum[i] = (sum[i] as number) ^ (one[i] as number);
  }
  return sum;
}

function dispatch(ctx: ShardContext, input: Input): void {
  switch (input.kind) {
    case "command":
      return onCommand(ctx, input.request, input.identity, input.command);
    case "request-gone":
      return onRequestGone(ctx, input.request);
    case "worker-joined":
      return onJoined(ctx, input.session, input.hello, input.capacity);
    case "capacity-freed":
      return onCapacityFreed(ctx, input.session);
    case "worker-gone":
      return onGone(ctx, input.session);
    case "draining": {
      const session = ctx.pool.sessions.get(input.session);
      if (session !== undefined) session.draining = true;
      return;
    }
    case "activated":
      return onActivated(ctx, input.session, input.message);
    case "task-done":
      return onTaskDone(ctx, input.session, input.message);
    case "heartbeat":
      return onHeartbeat(ctx, input.session, input.message);
    case "query-answered":
      return onQueryAnswered(ctx, input.session, input.message);
    case "evicted":
      return onEvicted(ctx, input.session, input.handle);
    case "replay-failed":
      return onReplayFailed(ctx, input.session, input.handle, input.activation);
    case "envelope":
      return onEnvelope(ctx, input.request, input.envelope);
    case "envelope-answered":
      return onEnvelopeAnswered(ctx, input);
    case "tick":
      return onTick(ctx);
    default:
      return unreachable(input);
  }
}
