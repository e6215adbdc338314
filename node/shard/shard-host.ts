/**
 * One shard's shell: feeds inputs to the machine, runs its effects, keeps its checkpoint.
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
  HopError,
  type Index,
  type Partition,
  type ReplayEffect,
  type Reply,
  type RequestId,
  type Seq,
  type SessionId,
  type ShardId,
} from "#core/base";
import { type Command, type Input, type ShardFigures, ShardMachine, type ShardOptions } from "#core/shard";
import type { DescribeReply, Hello, Identity, WorkerItem } from "#proto";
import type { CheckpointStore, LogStore, SegmentStore } from "#store";
import { Checkpointer } from "./checkpointer.ts";
import { EffectRunner } from "./effect-runner.ts";
import { PhysicalClock } from "./physical-clock.ts";
import { Replayer } from "./replayer.ts";
import type { ShardPort, WorkerLink } from "./shard-port.ts";
import { Watchers } from "./watchers.ts";

export interface ShardHostParts {
  readonly shard: ShardId;
  readonly term: ShardOptions["term"];
  readonly log: LogStore;
  readonly hasher: ShardOptions["hasher"];
  readonly checkpoint: CheckpointStore;
  readonly segments: SegmentStore;
  readonly orphanGraceMs?: number;
  readonly idleMs?: number;
  readonly note: (level: "info" | "warn" | "error", what: string, fields?: Record<string, string | number>) => void;
  /** Called once when the shard stops by a bug of its own. */
  readonly onStopped: (cause: Error) => void;
}

/** Inputs by which something may be appended, put off while the log is full. */
const isDecision = (input: Input) => input.kind === "activated" || input.kind === "task-done" || input.kind === "tick";

const roomPollMs = 100;
/** Runs that stay in memory, and with their worker, however long they wait: the next signal finds them there. */
const residentKept = 4000;

export class ShardHost implements ShardPort {
  private readonly parts: ShardHostParts;
  private readonly machine: ShardMachine;
  private readonly clock: PhysicalClock;
  private readonly runner: EffectRunner;
  private readonly replayer: Replayer;
  private readonly checkpointer: Checkpointer;
  private readonly watchers: Watchers;
  private readonly links = new Map<SessionId, WorkerLink>();
  private readonly callbacks = new Map<RequestId, (reply: Reply) => void>();
  private readonly stalled: Input[] = [];
  private nextRequest = 1;
  private nextSession = 1;
  private timer: ReturnType<typeof setTimeout> | undefined;
  private roomTimer: ReturnType<typeof setTimeout> | undefined;
  private stopped: Error | undefined;

  /** Rebuilds the shard from its checkpoint and the log's tail. */
  static async open(parts: ShardHostParts): Promise<ShardHost> {
    const { shard, term, log, hasher, checkpoint } = parts;
    const options: ShardOptions = {
      shard,
      term,
      log,
      hasher,
      states: checkpoint,
      residentKept,
      ...(parts.orphanGraceMs === undefined ? {} : { orphanGraceMs: parts.orphanGraceMs }),
      ...(parts.idleMs === undefined ? {} : { idleMs: parts.idleMs }),
    };
    const machine = new ShardMachine(options);
    const saved = checkpoint.meta(shard);
    const from = (saved?.appliedIndex ?? 0) + 1;
    for await (const record of log.scan(shard, asIndex(from))) machine.recover(record.index, record.body);
    const clock = new PhysicalClock(Math.max(machine.clockMs, saved?.clockMs ?? 0));
    const host = new ShardHost(parts, machine, clock);
    host.run(machine.finishRecovery(clock.nowMs(), log.lastIndex(shard)));
    return host;
  }

  private constructor(parts: ShardHostParts, machine: ShardMachine, clock: PhysicalClock) {
    this.parts = parts;
    this.machine = machine;
    this.clock = clock;
    const { shard, segments } = parts;
    this.replayer = new Replayer({
      shard,
      segments,
      links: this.links,
      onFailed: (effect, cause) => this.onReplayFailed(effect, cause),
    });
    this.runner = new EffectRunner({
      links: this.links,
      reply: (request, reply) => this.reply(request, reply),
      replay: (effect) => this.replayer.add(effect),
      dropped: (session, handle) => this.replayer.forget(session, handle),
      armTimer: (atMs) => this.armTimer(atMs),
    });
    this.checkpointer = new Checkpointer({
      shard,
      machine,
      log: parts.log,
      checkpoint: parts.checkpoint,
      note: parts.note,
      settled: () => this.settled(),
      evict: () => {
        if (parts.log.hasRoom()) this.guard("evict", () => machine.evictIdle(this.clock.nowMs()));
      },
    });
    this.watchers = new Watchers(
      (partition) => machine.historyEnd(partition),
      () => this.durable(),
    );
  }

  command(identity: Identity, command: Command, done: (reply: Reply) => void): RequestId {
    const request = asRequestId(this.nextRequest++);
    const reads = command.kind === "query" || command.kind === "await-result";
    const refusal = this.refusal(reads);
    if (refusal !== undefined) {
      queueMicrotask(() => done(refusal));
      return request;
    }
    this.callbacks.set(request, done);
    this.input({ kind: "command", nowMs: this.clock.nowMs(), request, identity, command });
    return request;
  }

  forget(request: RequestId): void {
    if (this.callbacks.delete(request) && this.stopped === undefined)
      this.input({ kind: "request-gone", nowMs: this.clock.nowMs(), request });
  }

  join(hello: Hello, link: WorkerLink): SessionId {
    const session = asSessionId(this.nextSession++);
    this.links.set(session, link);
    this.input({ kind: "worker-joined", nowMs: this.clock.nowMs(), session, hello });
    return session;
  }

  leave(session: SessionId): void {
    if (this.links.delete(session)) this.input({ kind: "worker-gone", nowMs: this.clock.nowMs(), session });
  }

  receive(session: SessionId, item: WorkerItem): void {
    const nowMs = this.clock.nowMs();
    switch (item.kind) {
      case "activated":
        return this.input({ kind: "activated", nowMs, session, message: item.value });
      case "taskDone":
        return this.input({ kind: "task-done", nowMs, session, message: item.value });
      case "heartbeat":
        return this.input({ kind: "heartbeat", nowMs, session, message: item.value });
      case "queryAnswer":
        return this.input({ kind: "query-answered", nowMs, session, message: item.value });
      case "evicted":
        return this.input({ kind: "evicted", nowMs, session, handle: item.value.handle });
      case "draining":
        return this.input({ kind: "draining", nowMs, session });
      default:
        return;
    }
  }

  async *history(partition: Partition, fromSeq: Seq): AsyncIterable<Uint8Array[]> {
    const end = this.machine.historyEnd(partition);
    if (end === undefined || fromSeq >= end.size) return;
    await this.settled(partition);
    yield* this.parts.segments.history({
      shard: this.parts.shard,
      partition,
      firstSeq: fromSeq,
      endSeq: asSeq(end.size),
      lastIndex: asIndex(end.lastIndex),
    });
  }

  changed(partition: Partition, seq: Seq, signal: AbortSignal): Promise<void> {
    return this.watchers.changed(partition, seq, signal);
  }

  describe(partition: Partition): DescribeReply | undefined {
    return this.machine.describe(partition);
  }

  settled(partition?: Partition): Promise<void> {
    if (this.stopped !== undefined) return Promise.reject(this.unavailable());
    const { log, shard } = this.parts;
    const index = partition === undefined ? log.lastIndex(shard) : (this.machine.historyEnd(partition)?.lastIndex ?? 0);
    if (index <= this.durable()) return Promise.resolve();
    if (!log.hasRoom()) {
      const message =
        "Cannot read what was decided last: it is not durable yet, and the log's disk is full; free space and it goes on by itself";
      return Promise.reject(new HopError("NO_SPACE", message, { retryAfterMs: 1000 }));
    }
    log.kick(true);
    return this.watchers.durable(index);
  }

  figures(): ShardFigures & { readonly gatedEffects: number } {
    return { ...this.machine.figures(), gatedEffects: this.runner.waiting };
  }

  /** To be called after each group commit. */
  onDurable(): void {
    const durable = this.durable();
    this.runner.release(durable);
    this.watchers.onDurable(durable);
  }

  /** The log can take no more: nothing that is not acknowledged yet ever will be. */
  onPoison(cause: Error): void {
    this.stop(cause);
  }

  /** Saves what changed and takes no more inputs. */
  async close(): Promise<void> {
    try {
      if (await this.settledUnlessFull()) await this.checkpointer.close();
    } finally {
      this.stop(new Error("the node is shutting down"));
    }
  }

  /** False where it can't become durable now: what was not acknowledged need not be waited for. */
  private async settledUnlessFull(): Promise<boolean> {
    const { log, shard } = this.parts;
    while (this.stopped === undefined && log.hasRoom()) {
      if (log.lastIndex(shard) <= this.durable()) return true;
      await Promise.race([this.settled(), new Promise((resolve) => setTimeout(resolve, roomPollMs))]);
    }
    return false;
  }

  private stop(cause: Error): void {
    if (this.stopped !== undefined) return;
    this.stopped = cause;
    clearTimeout(this.timer);
    clearTimeout(this.roomTimer);
    this.checkpointer.stop();
    this.watchers.fail(this.unavailable());
    const rejection = { reject: "STORE_UNAVAILABLE", message: this.unavailable().message } as const;
    for (const done of this.callbacks.values()) done({ kind: "rejected", rejection });
    this.callbacks.clear();
    for (const link of this.links.values()) link.close("The node is stopping");
    this.links.clear();
  }

  private durable(): Index {
    return this.parts.log.durableIndex(this.parts.shard);
  }

  private unavailable(): HopError {
    return new HopError("STORE_UNAVAILABLE", `Shard ${this.parts.shard} has stopped: ${this.stopped?.message ?? ""}`);
  }

  private refusal(isRead: boolean): Reply | undefined {
    if (this.stopped !== undefined) {
      return { kind: "rejected", rejection: { reject: "STORE_UNAVAILABLE", message: this.unavailable().message, retryAfterMs: 1000 } };
    }
    if (isRead || this.parts.log.hasRoom()) return undefined;
    const message = "Cannot take the request: the log's disk is full; free space and it goes on by itself";
    return { kind: "rejected", rejection: { reject: "NO_SPACE", message, retryAfterMs: 1000 } };
  }

  private input(input: Input): void {
    if (this.stopped !== undefined) return;
    if (isDecision(input) && (this.stalled.length > 0 || !this.parts.log.hasRoom())) {
      this.stalled.push(input);
      this.awaitRoom();
      return;
    }
    this.guard(input.kind, () => this.machine.step(input));
  }

  /** A bug stops the shard: what it would do next can't be trusted. */
  private guard(doing: string, work: () => readonly Effect[]): void {
    if (this.stopped !== undefined) return;
    try {
      this.run(work());
    } catch (error) {
      this.fail(error, doing);
    }
  }

  private fail(error: unknown, doing: string): void {
    const cause = error instanceof Error ? error : new Error(String(error));
    this.parts.note("error", "shard stopped", { shard: this.parts.shard, doing, error: cause.message, stack: cause.stack ?? "" });
    this.stop(cause);
    this.parts.onStopped(cause);
  }

  private run(effects: readonly Effect[]): void {
    const { log, shard } = this.parts;
    const before = log.durableIndex(shard);
    const waits = this.runner.take(effects, before);
    // What nobody waits for rides with the next commit.
    if (waits) log.kick(true);
    else if (log.lastIndex(shard) > before) log.kick(false);
  }

  private awaitRoom(): void {
    this.roomTimer ??= setTimeout(() => {
      this.roomTimer = undefined;
      while (this.stalled.length > 0 && this.parts.log.hasRoom() && this.stopped === undefined) {
        const input = this.stalled.shift() as Input;
        this.guard(input.kind, () => this.machine.step({ ...input, nowMs: this.clock.nowMs() }));
      }
      if (this.stalled.length > 0) this.awaitRoom();
    }, roomPollMs);
  }

  private armTimer(atMs: number): void {
    clearTimeout(this.timer);
    const wait = Math.max(atMs - this.clock.nowMs(), 0);
    this.timer = setTimeout(() => this.tick(), Math.min(Math.ceil(wait), 60_000));
  }

  private tick(): void {
    this.input({ kind: "tick", nowMs: this.clock.nowMs() });
  }

  private reply(request: RequestId, reply: Reply): void {
    const done = this.callbacks.get(request);
    this.callbacks.delete(request);
    done?.(reply);
  }

  private onReplayFailed(effect: ReplayEffect, cause: unknown): void {
    const message = cause instanceof Error ? cause.message : String(cause);
    this.parts.note("error", "replay failed", { partition: effect.partition, error: message });
    const { session, handle, activation } = effect;
    this.input({ kind: "replay-failed", nowMs: this.clock.nowMs(), session, handle, activation });
  }
}
