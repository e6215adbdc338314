/**
 * The shell of a shard while this node leads it: feeds inputs to the machine and runs its effects.
 *
 * Everything happens on the node's one thread and a step never waits, so inputs are taken in the
 * order in which they came. While the log has no room nothing is decided: commands are refused,
 * what workers say waits, reads go on.
 */
import {
  asIndex,
  asRequestId,
  asSeq,
  asSessionId,
  type Effect,
  errorText,
  HopError,
  type Index,
  isUnavailable,
  type KeyRange,
  limits,
  type Partition,
  type Rejection,
  type ReplayEffect,
  type Reply,
  type RequestId,
  type Seq,
  type SessionId,
  type ShardId,
} from "#core/base";
import type { SessionCapacity } from "#core/dispatch";
import { type Command, type Input, type Leadership, mayAppend, type ShardFigures, type ShardMachine } from "#core/shard";
import type { DescribeReply, Envelope, EnvelopeReply, Hello, Identity, WorkerItem } from "#proto";
import type { LogStore, SegmentStore } from "#store";
import type { HotTails } from "../seal/hot-tails.ts";
import { type Timing, tickAt } from "../timing.ts";
import { EffectRunner } from "./effect-runner.ts";
import type { PhysicalClock } from "./physical-clock.ts";
import { Replayer } from "./replayer.ts";
import type { ShardPort, WorkerLink } from "./shard-port.ts";
import { Watchers } from "./watchers.ts";

/** What a shard's host asks of the group that replicates its log. */
export interface CommitLog {
  readonly commitIndex: Index;
  /** Records may be encoded now: they are proposed without fail. */
  mayPropose(): boolean;
  /** Takes what was encoded since the last call. */
  proposeAppended(): void;
  /** Lets out what is ready to be sent. */
  pump(): void;
  /** Whether a read at this tick of the clock sees everything that was acknowledged anywhere. */
  leaseHeldAt(tick: number): boolean;
  /** Has the lease proven as soon as can be. */
  proveLead(tick: number): void;
}

/** Brings messages to partitions wherever they are. */
export interface Mail {
  send(to: Partition, envelope: Envelope, done: (answer: EnvelopeReply | { readonly rejection: Rejection }) => void): void;
}

export interface ShardHostParts {
  readonly shard: ShardId;
  readonly machine: ShardMachine;
  readonly clock: PhysicalClock;
  readonly timing: Timing;
  readonly group: CommitLog;
  readonly log: LogStore;
  readonly segments: SegmentStore;
  readonly mail: Mail;
  readonly note: Note;
  /** Left out where there is no object storage that a tail could wait for. */
  readonly tails?: HotTails | undefined;
  /** Called once when the shard stops by a bug of its own. */
  readonly onFault: (cause: Error) => void;
}

export type Note = (level: "info" | "warn" | "error", what: string, fields?: Record<string, string | number>) => void;

const roomPollMs = 100;
/** A lease that has to be proven is waited for so often, and that long in between. */
const leaseTries = 20;
const leasePollMs = 10;
/** Between two notes of what can't be read. */
const unreadableNoteMs = 10_000;
/** While the group hands its leadership over, or waits for a quorum. */
const proposePollMs = 5;

export class ShardHost implements ShardPort {
  readonly shard: ShardId;
  private readonly parts: ShardHostParts;
  private readonly machine: ShardMachine;
  private readonly clock: PhysicalClock;
  private readonly runner: EffectRunner;
  private readonly replayer: Replayer;
  private readonly watchers: Watchers;
  private readonly links = new Map<SessionId, WorkerLink>();
  private readonly callbacks = new Map<RequestId, { readonly done: (reply: Reply) => void; readonly isRead: boolean }>();
  private readonly stalled: Input[] = [];
  private nextRequest = 1;
  private nextSession = 1;
  private stopTimer = () => {};
  private stopPolling: (() => void) | undefined;
  private isOver = false;
  private unreadableMs = Number.NEGATIVE_INFINITY;

  constructor(parts: ShardHostParts) {
    this.parts = parts;
    this.shard = parts.shard;
    this.machine = parts.machine;
    this.clock = parts.clock;
    const { segments } = parts;
    this.replayer = new Replayer({
      segments,
      links: this.links,
      readable: ({ lastShard, lastIndex }) => (lastShard === this.shard ? this.watchers.durable(lastIndex) : Promise.resolve()),
      onFailed: (effect, cause) => this.onReplayFailed(effect, cause),
    });
    this.runner = new EffectRunner({
      links: this.links,
      reply: (request, reply) => this.reply(request, reply),
      replay: (effect) => this.replayer.add(effect),
      dropped: (session, handle) => this.replayer.forget(session, handle),
      armTimer: (atMs) => this.armTimer(atMs),
      mail: (effect) => this.mail(effect),
    });
    this.watchers = new Watchers(
      (partition) => {
        const end = this.machine.historyEnd(partition);
        return end === undefined ? undefined : { ...end, lastIndex: indexHere(this.shard, end) };
      },
      () => this.readableIndex(),
    );
  }

  /** Takes commands from here on. */
  start(leadership: Omit<Leadership, "nowMs">): void {
    this.guard("lead", () => this.machine.lead({ ...leadership, nowMs: this.clock.nowMs() }));
  }

  command(identity: Identity, command: Command, done: (reply: Reply) => void): RequestId {
    const isRead = command.kind === "query" || command.kind === "await-result";
    const full = this.parts.tails?.refusal(this.shard, command.kind);
    if (full !== undefined) return this.refuse(full, done);
    return this.ask(isRead, done, (request) => ({ kind: "command", nowMs: this.clock.nowMs(), request, identity, command }));
  }

  /** Whoever sends it may come back much later: a group that slept has its lease by then no more than now, so that is waited for. */
  envelope(envelope: Envelope, done: (reply: Reply) => void, tries = leaseTries): RequestId {
    if (tries > 0 && !this.isOver && !this.hasLease()) {
      this.parts.timing.after(leasePollMs, () => this.envelope(envelope, done, tries - 1));
      return asRequestId(this.nextRequest++);
    }
    return this.ask(false, done, (request) => ({ kind: "envelope", nowMs: this.clock.nowMs(), request, envelope }));
  }

  private ask(isRead: boolean, done: (reply: Reply) => void, input: (request: RequestId) => Input): RequestId {
    const request = asRequestId(this.nextRequest++);
    const refusal = this.refusal(isRead);
    if (refusal !== undefined) {
      queueMicrotask(() => done(refusal));
      return request;
    }
    this.callbacks.set(request, { done, isRead });
    this.input(input(request));
    return request;
  }

  private refuse(rejection: Rejection, done: (reply: Reply) => void): RequestId {
    queueMicrotask(() => done({ kind: "rejected", rejection }));
    return asRequestId(this.nextRequest++);
  }

  forget(request: RequestId): void {
    if (this.callbacks.delete(request) && !this.isOver) this.input({ kind: "request-gone", nowMs: this.clock.nowMs(), request });
  }

  join(hello: Hello, link: WorkerLink, capacity: SessionCapacity): SessionId {
    const session = asSessionId(this.nextSession++);
    this.links.set(session, link);
    this.input({ kind: "worker-joined", nowMs: this.clock.nowMs(), session, hello, capacity });
    return session;
  }

  capacityFreed(session: SessionId): boolean {
    return this.input({ kind: "capacity-freed", nowMs: this.clock.nowMs(), session });
  }

  leave(session: SessionId): void {
    if (this.links.delete(session)) this.input({ kind: "worker-gone", nowMs: this.clock.nowMs(), session });
  }

  receive(session: SessionId, item: WorkerItem): void {
    const nowMs = this.clock.nowMs();
    switch (item.kind) {
      case "activated":
        this.input({ kind: "activated", nowMs, session, message: item.value });
        return;
      case "taskDone":
        this.input({ kind: "task-done", nowMs, session, message: item.value });
        return;
      case "heartbeat":
        this.input({ kind: "heartbeat", nowMs, session, message: item.value });
        return;
      case "queryAnswer":
        this.input({ kind: "query-answered", nowMs, session, message: item.value });
        return;
      case "evicted":
        this.input({ kind: "evicted", nowMs, session, handle: item.value.handle });
        return;
      case "draining":
        this.input({ kind: "draining", nowMs, session });
        return;
      default:
        return;
    }
  }

  get range(): KeyRange {
    const { first, last } = this.machine.header();
    return { first, last };
  }

  isCurrent(): boolean {
    return this.hasLease();
  }

  owns(partition: Partition): boolean {
    return !this.isOver && this.machine.elsewhere(partition) === undefined;
  }

  async *history(partition: Partition, fromSeq: Seq): AsyncIterable<Uint8Array[]> {
    this.requireLease(partition);
    const end = this.machine.historyEnd(partition);
    if (end === undefined || fromSeq >= end.size) return;
    await this.settled(partition);
    yield* this.parts.segments.history({
      shard: end.lastShard,
      partition,
      firstSeq: asSeq(Math.max(fromSeq, end.firstSeq)),
      endSeq: asSeq(end.size),
      lastIndex: asIndex(end.lastIndex),
    });
  }

  changed(partition: Partition, seq: Seq, signal: AbortSignal): Promise<void> {
    return this.watchers.changed(partition, seq, signal);
  }

  describe(partition: Partition): DescribeReply | undefined {
    this.requireLease(partition);
    return this.machine.describe(partition);
  }

  settled(partition?: Partition): Promise<void> {
    if (this.isOver) return Promise.reject(this.notLeading());
    const { log, group } = this.parts;
    const end = partition === undefined ? undefined : this.machine.historyEnd(partition);
    const index = partition === undefined ? this.machine.lastIndex : end === undefined ? 0 : indexHere(this.shard, end);
    if (index <= this.readableIndex()) return Promise.resolve();
    if (index > group.commitIndex && !log.hasRoom()) {
      const message =
        "Cannot read what was decided last: it is not durable yet, and the log's disk is full; free space and it goes on by itself";
      return Promise.reject(new HopError("NO_SPACE", message, { retryAfterMs: 1000 }));
    }
    this.hurry();
    return this.watchers.durable(index);
  }

  /** Makes what was appended leave and become durable now. */
  hurry(): void {
    this.parts.group.pump();
    this.parts.log.kick(true);
  }

  figures(): ShardFigures & { readonly gatedEffects: number } {
    return { ...this.machine.figures(), gatedEffects: this.runner.waiting };
  }

  /** To be called when the group has committed further. */
  onCommitted(index: Index): void {
    this.runner.release(index);
    this.onFlushed();
  }

  /** To be called when the node's log is durable further. */
  onFlushed(): void {
    this.watchers.onDurable(this.readableIndex());
  }

  /** Committed, and durable here: a quorum of the others may be faster than this node's own disk. */
  private readableIndex(): number {
    return Math.min(this.parts.group.commitIndex, this.parts.log.durableIndex(this.shard));
  }

  evictIdle(): void {
    if (this.mayDecide()) this.guard("evict", () => this.machine.evictIdle(this.clock.nowMs()));
  }

  /** Carries out a change of the shard. Returns why it can't be done now, if so. */
  change(make: (machine: ShardMachine, nowMs: number) => readonly Effect[] | Rejection): Rejection | undefined {
    if (!this.mayDecide()) return { reject: "NOT_LEADER", message: `Shard ${this.shard} can't decide now`, retryAfterMs: proposePollMs };
    let refused: Rejection | undefined;
    this.guard("change", () => {
      const made = make(this.machine, this.clock.nowMs());
      if (!("reject" in made)) return made;
      refused = made;
      return [];
    });
    this.hurry();
    return refused;
  }

  /** What workers told a shard that this one absorbed, while it was frozen. */
  takeOver(said: readonly Input[]): void {
    const nobody = asSessionId(0);
    for (const input of said) if (input.kind === "task-done") this.input({ ...input, session: nobody, nowMs: this.clock.nowMs() });
  }

  /** The leadership is over. What was decided may still happen under the next leader, which clients are told. */
  close(): void {
    if (this.isOver) return;
    // Workers forget the shard's runs: the next leader builds them anew.
    this.guard("step down", () => this.machine.stepDown().filter((effect) => effect.after.until === "now"));
    this.isOver = true;
    this.stopTimer();
    this.stopPolling?.();
    const unsure = { reject: "STORE_UNAVAILABLE", message: unsureText(this.shard), retryAfterMs: 100 } as const;
    this.watchers.fail(this.notLeading());
    const { callbacks } = this;
    for (const { done, isRead } of [...callbacks.values()])
      done({ kind: "rejected", rejection: isRead ? rejectionOf(this.notLeading()) : unsure });
    callbacks.clear();
    this.links.clear();
  }

  private mayDecide(): boolean {
    return this.parts.log.hasRoom() && this.parts.group.mayPropose();
  }

  private requireLease(partition: Partition): void {
    if (!this.hasLease()) throw this.notLeading();
    const elsewhere = this.machine.elsewhere(partition);
    if (elsewhere !== undefined) throw HopError.from(elsewhere);
  }

  /** A shard that slept, or has just begun to lead, has none until the others answer: that takes a round trip. */
  private hasLease(): boolean {
    if (this.isOver) return false;
    const { group, timing } = this.parts;
    const tick = tickAt(timing);
    if (group.leaseHeldAt(tick)) return true;
    group.proveLead(tick);
    return group.leaseHeldAt(tick);
  }

  private notLeading(): HopError {
    return new HopError("NOT_LEADER", `Shard ${this.shard} is not led here now`, { retryAfterMs: 5 });
  }

  /**
   * Whoever lost its lease without knowing it must not even refuse: what it knows may be old, and a
   * refusal rests on that.
   */
  private refusal(isRead: boolean): Reply | undefined {
    const { group, log } = this.parts;
    if (!this.hasLease()) return { kind: "rejected", rejection: rejectionOf(this.notLeading()) };
    if (isRead || (log.hasRoom() && group.mayPropose())) return undefined;
    if (log.hasRoom()) return { kind: "rejected", rejection: rejectionOf(this.notLeading()) };
    const message = "Cannot take the request: the log's disk is full; free space and it goes on by itself";
    return { kind: "rejected", rejection: { reject: "NO_SPACE", message, retryAfterMs: 1000 } };
  }

  /** False: it is put off while nothing may be appended, or it is for nobody any more. */
  private input(input: Input): boolean {
    if (this.isOver) return false;
    // Commands and envelopes that may not be decided have been refused.
    const isRefusable = input.kind === "command" || input.kind === "envelope";
    const mayWait = mayAppend[input.kind] && !isRefusable;
    const waits = mayWait ? this.stalled.length > 0 || !this.mayDecide() : this.isOfStalledJoin(input);
    if (waits) {
      this.stalled.push(input);
      this.awaitRoom();
      return false;
    }
    this.guard(input.kind, () => this.step(input));
    return true;
  }

  private step(input: Input): readonly Effect[] {
    try {
      return this.machine.step(input);
    } catch (error) {
      if (!isUnavailable(error)) throw error;
      this.onUnreadable(input, error);
      return [];
    }
  }

  /** Nothing was decided: who asked is told, what a worker did is told to the shard again, the rest comes again by itself. */
  private onUnreadable(input: Input, error: HopError): void {
    const { timing, note } = this.parts;
    if (timing.monotonicMs() - this.unreadableMs >= unreadableNoteMs) {
      note("warn", "a state can't be read now", { shard: this.shard, doing: input.kind, error: error.message });
      this.unreadableMs = timing.monotonicMs();
    }
    if (input.kind === "command" || input.kind === "envelope") {
      const rejection = { ...rejectionOf(error), retryAfterMs: limits.rereadMs };
      queueMicrotask(() => this.reply(input.request, { kind: "rejected", rejection }));
    } else if (input.kind === "task-done") {
      timing.after(limits.rereadMs, () => this.input({ ...input, nowMs: this.clock.nowMs() }));
    }
  }

  /** What is said on a stream comes behind its joining. */
  private isOfStalledJoin(input: Input): boolean {
    if (this.stalled.length === 0 || !("session" in input)) return false;
    return this.stalled.some((each) => each.kind === "worker-joined" && each.session === input.session);
  }

  /** A bug stops the shard: what it would do next can't be trusted. */
  private guard(doing: string, work: () => readonly Effect[]): void {
    if (this.isOver) return;
    try {
      this.run(work());
    } catch (error) {
      const cause = error instanceof Error ? error : new Error(String(error));
      this.parts.note("error", "shard stopped", { shard: this.shard, doing, error: cause.message, stack: cause.stack ?? "" });
      this.parts.onFault(cause);
    }
  }

  private run(effects: readonly Effect[]): void {
    const { log, group } = this.parts;
    const appended = this.machine.lastIndex;
    group.proposeAppended();
    const before = group.commitIndex;
    const waits = this.runner.take(effects, before);
    // What nobody waits for rides with the next commit.
    if (waits) log.kick(true);
    else if (appended > before) log.kick(false);
    group.pump();
  }

  private awaitRoom(): void {
    if (this.stopPolling !== undefined) return;
    this.stopPolling = this.parts.timing.after(this.parts.log.hasRoom() ? proposePollMs : roomPollMs, () => {
      this.stopPolling = undefined;
      while (this.stalled.length > 0 && this.mayDecide() && !this.isOver) {
        const input = this.stalled.shift() as Input;
        this.guard(input.kind, () => this.step({ ...input, nowMs: this.clock.nowMs() }));
      }
      if (this.stalled.length > 0 && !this.isOver) this.awaitRoom();
    });
  }

  private armTimer(atMs: number): void {
    this.stopTimer();
    const wait = Math.max(atMs - this.clock.nowMs(), 0);
    this.stopTimer = this.parts.timing.after(Math.min(Math.ceil(wait), 60_000), () => this.tick());
  }

  private tick(): void {
    this.input({ kind: "tick", nowMs: this.clock.nowMs() });
  }

  private mail(effect: Extract<Effect, { kind: "send" }>, tries = leaseTries): void {
    const { to, envelope } = effect;
    if (this.isOver) return;
    // A leader of the past might offer again what the receiver has long forgotten. One whose group
    // slept has its lease in a round trip; Core offers again what has no answer.
    if (!this.hasLease()) {
      if (tries > 0) this.parts.timing.after(leasePollMs, () => this.mail(effect, tries - 1));
      return;
    }
    const from = envelope.from as Partition;
    this.parts.mail.send(to, envelope, (answer) => this.input({ kind: "envelope-answered", nowMs: this.clock.nowMs(), from, to, answer }));
  }

  private reply(request: RequestId, reply: Reply): void {
    const asked = this.callbacks.get(request);
    this.callbacks.delete(request);
    asked?.done(reply);
  }

  private onReplayFailed(effect: ReplayEffect, cause: unknown): void {
    const message = errorText(cause);
    this.parts.note("error", "replay failed", { partition: effect.partition, error: message });
    const { session, handle, activation } = effect;
    this.input({ kind: "replay-failed", nowMs: this.clock.nowMs(), session, handle, activation });
  }
}

/** What another shard's log holds is committed. */
const indexHere = (shard: ShardId, end: { readonly lastShard: ShardId; readonly lastIndex: number }) =>
  end.lastShard === shard ? end.lastIndex : 0;

const unsureText = (shard: ShardId) =>
  `Shard ${shard} lost its leader before the request was known to be durable: whether it happened is not known; ask again`;

const rejectionOf = (error: HopError): Rejection => ({ reject: error.reason, message: error.message, retryAfterMs: error.retryAfterMs });
