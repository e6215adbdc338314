/**
 * The real shard machine over a log in memory, under a clock that is moved.
 *
 * Everything happens at once and in order: effects are run in the order of their making, then
 * workflow code answers, then timers fire that are due, then comes the rest; and each decision is at
 * least a millisecond after the one before. So a leader that begins after a crash goes on at the times at which its
 * predecessor would have gone on, and histories can be compared to the byte.
 */
import {
  asNodeId,
  asRequestId,
  asSessionId,
  asTerm,
  type Effect,
  firstDataShard,
  type Hasher,
  type Partition,
  type Rejection,
  type Reply,
  type RequestId,
  type RunId,
  runPartition,
  type SessionId,
  type StateReader,
  type Token,
  unreachable,
  wholeRange,
} from "#core/base";
import { SessionCapacity } from "#core/dispatch";
import { dueMs, withBundles } from "#core/run";
import { type Command, disconnectMs, type Input, ShardMachine } from "#core/shard";
import type { DescribeReply, EnvelopeReply, Hello, Identity } from "#proto";
import { ShardLog } from "./shard-log.ts";
import type { CoreSide, Untimed, WorkerSide } from "./sides.ts";

type Send = Extract<Effect, { kind: "send" }>;

const identity: Identity = { issuer: "local", subject: "test", verified: false, causeSeq: 0 };
const noStates: StateReader = { load: () => undefined, dueBefore: () => [] };
const slotsMax = 1_000_000;

interface Asked {
  readonly command: Command;
  /** Whether it was done before Core ended is not known. */
  isAgain: boolean;
  readonly done: (reply: Reply) => void;
}

export interface VirtualCoreOptions {
  readonly hasher: Hasher;
  /** Milliseconds since 1970 at which it begins. */
  readonly startMs: number;
  readonly worker: WorkerSide;
  /** Code of a type that a run starts and its own bundle has not; undefined where there is none. */
  readonly newest: (type: string) => Uint8Array | undefined;
  /**
   * Called when record `index`, which holds events, is durable. `lost`: Core ends before anything that
   * rests on it has left; `sent`: right behind that.
   */
  readonly crashes: (index: number) => "lost" | "sent" | undefined;
}

export class VirtualCore implements CoreSide {
  nowMs: number;
  readonly log = new ShardLog();
  private readonly options: VirtualCoreOptions;
  private machine: ShardMachine;
  private readonly effects: (Effect | "crash")[] = [];
  private inputs: Untimed[] = [];
  private readonly asked = new Map<RequestId, Asked>();
  private readonly sent = new Map<RequestId, Send>();
  private armedMs = Number.POSITIVE_INFINITY;
  private requests = 0;
  private session = 0;
  private epoch = 0;
  private isPumping = false;

  constructor(options: VirtualCoreOptions) {
    this.options = options;
    this.nowMs = options.startMs;
    this.machine = this.open();
    this.lead();
  }

  /** Decides a command; the reply may be long in coming. Resent by itself where Core ends before it answered. */
  command(command: Command): Promise<Reply> {
    return new Promise((done) => {
      const request = asRequestId(++this.requests);
      this.asked.set(request, { command, isAgain: false, done });
      this.input({ kind: "command", request, identity, command });
    });
  }

  /** A consumer of the run's stream is there until the returned function is called. */
  consume(run: RunId, generation: number): () => void {
    const request = asRequestId(++this.requests);
    const command: Command = { kind: "consume", run, generation };
    this.asked.set(request, { command, isAgain: false, done: () => {} });
    this.input({ kind: "command", request, identity, command });
    return () => {
      if (this.asked.delete(request)) this.input({ kind: "request-gone", request });
    };
  }

  input(input: Untimed): void {
    this.inputs.push(input);
    this.pump();
  }

  fromWorker(make: (session: SessionId) => Untimed | undefined): void {
    this.pump();
    const input = make(asSessionId(this.session));
    if (input !== undefined) this.input(input);
  }

  /** When something will happen by itself; infinity where nothing will. */
  nextMs(): number {
    let next = Number.POSITIVE_INFINITY;
    for (const live of this.machine.liveRuns()) {
      const { run, tasks, flights } = live;
      next = Math.min(next, disconnectMs(live));
      next = Math.min(next, dueMs(run, this.nowMs));
      for (const flight of flights.values()) next = Math.min(next, flight.dueMs);
      for (const { op, orphanUntilMs } of tasks.values()) {
        // Limits of a task are known to the shard's own timers only, among which are some that no longer count.
        const { startToCloseMs = 0, heartbeatMs = 0 } = run.pending.get(op)?.options ?? {};
        if (startToCloseMs > 0 || heartbeatMs > 0 || orphanUntilMs > 0) next = Math.min(next, this.armedMs);
      }
    }
    return next;
  }

  /** Moves the clock; what is due then happens. */
  moveTo(timeMs: number): void {
    this.nowMs = Math.max(this.nowMs, timeMs);
    this.pump();
  }

  /** Everything but the log is gone, and a new leader goes on with it. */
  crash(): void {
    this.effects.length = 0;
    this.inputs = [];
    this.sent.clear();
    this.armedMs = Number.POSITIVE_INFINITY;
    this.options.worker.disconnected();
    this.machine = this.open();
    this.lead();
    // Whoever has no answer asks again.
    for (const [request, asked] of this.asked) {
      asked.isAgain = true;
      this.inputs.push({ kind: "command", request, identity, command: asked.command });
    }
  }

  describe(run: RunId): DescribeReply | undefined {
    return this.machine.describe(runPartition(run));
  }

  /** Canonical bytes of the run's events, oldest first. */
  history(run: RunId): readonly Uint8Array[] {
    return this.log.history(runPartition(run));
  }

  private open(): ShardMachine {
    const { hasher } = this.options;
    const birth = { range: wholeRange, ancestors: [], clockMs: 0 };
    const options = { shard: firstDataShard, birth, log: this.log, hasher, states: noStates, orphanGraceMs: 0 };
    const machine = new ShardMachine(options);
    for (const [i, body] of this.log.records.entries()) machine.recover(i + 1, body);
    return machine;
  }

  private lead(): void {
    this.epoch++;
    const nowMs = this.machine.lastIndex === 0 ? this.nowMs : this.machine.clockMs;
    const { lastIndex } = this.machine;
    this.take(this.machine.lead({ term: asTerm(this.epoch), epoch: this.epoch, node: asNodeId(1), nowMs, appliedIndex: lastIndex }));
    this.session++;
    const hello: Hello = { ...this.options.worker.hello(), runSlots: slotsMax, activitySlots: slotsMax };
    const capacity = new SessionCapacity(slotsMax);
    // Before anything else, so that the tasks that the worker holds stay its own.
    this.take(this.machine.step({ kind: "worker-joined", nowMs, session: asSessionId(this.session), hello, capacity }));
  }

  private take(effects: readonly Effect[]): void {
    for (const effect of effects) this.effects.push(effect);
  }

  pump(): void {
    if (this.isPumping) return;
    this.isPumping = true;
    try {
      for (;;) {
        const effect = this.effects.shift();
        if (effect === "crash") this.crash();
        else if (effect !== undefined) this.perform(effect);
        else if (this.options.worker.isSilent && this.armedMs <= this.stepMs()) this.tick();
        else {
          const input = this.inputs.shift();
          if (input === undefined) return;
          this.step(input);
        }
      }
    } finally {
      this.isPumping = false;
    }
  }

  private stepMs(): number {
    return Math.max(this.nowMs, this.machine.clockMs + 1);
  }

  private tick(): void {
    this.armedMs = Number.POSITIVE_INFINITY;
    this.step({ kind: "tick" });
  }

  private step(input: Untimed): void {
    const before = this.log.eventCount;
    const effects = this.machine.step({ ...input, nowMs: this.stepMs() } as Input);
    // What records nothing takes no time.
    this.nowMs = Math.max(this.nowMs, this.machine.clockMs);
    const crash = this.log.eventCount > before ? this.options.crashes(this.log.lastIndex) : undefined;
    if (crash === "lost") return this.crash();
    this.take(effects);
    if (crash === "sent") this.effects.push("crash");
  }

  private perform(effect: Effect): void {
    const { worker } = this.options;
    switch (effect.kind) {
      case "activate": {
        const { handle, activation, events, start } = effect;
        return worker.activate({ handle, activation, events, ...start, fromStart: start !== undefined });
      }
      case "replay": {
        const { handle, activation, bundle, type, readOnly, partition, firstSeq, endSeq } = effect;
        const events = this.log.history(partition).slice(firstSeq, endSeq);
        return worker.activate({ handle, activation, events, run: partition.slice(4), bundle, type, readOnly, fromStart: true });
      }
      case "task":
        return worker.task(effect, this.dueMs(effect.token));
      case "cancel-task":
        return worker.cancelTask(effect.token, effect.reason);
      case "query":
        return worker.query(effect);
      case "drop":
        return worker.drop(effect.handle);
      case "reply":
        return this.answer(effect.request, effect.reply);
      case "send":
        return this.send(effect);
      case "arm-timer":
        this.armedMs = effect.atMs;
        return;
      default:
        return unreachable(effect);
    }
  }

  /** When the attempt was to begin: it is the same however late its task leaves. */
  private dueMs({ run, op, attempt }: Token): number {
    for (const live of this.machine.liveRuns()) {
      const operation = live.id === run ? live.run.pending.get(op) : undefined;
      if (operation !== undefined) return attempt > 1 ? operation.dueMs : operation.scheduledMs;
    }
    return this.nowMs;
  }

  private answer(request: RequestId, reply: Reply): void {
    const sent = this.sent.get(request);
    if (sent !== undefined) return this.answerSent(request, sent, reply);
    const asked = this.asked.get(request);
    this.asked.delete(request);
    const isDone = asked?.isAgain === true && asked.command.kind === "terminate" && reply.kind === "rejected";
    asked?.done(isDone && reply.rejection.reject === "RUN_CLOSED" ? { kind: "done" } : reply);
  }

  private send(effect: Send): void {
    const request = asRequestId(++this.requests);
    this.sent.set(request, effect);
    this.inputs.push({ kind: "envelope", request, envelope: withBundles(effect.envelope, this.options.newest) });
  }

  private answerSent(request: RequestId, { to, envelope }: Send, reply: Reply): void {
    this.sent.delete(request);
    const from = envelope.from as Partition;
    const answer = answerOf(reply);
    if (answer !== undefined) this.inputs.push({ kind: "envelope-answered", from, to, answer });
  }
}

function answerOf(reply: Reply): EnvelopeReply | { readonly rejection: Rejection } | undefined {
  if (reply.kind === "enveloped") return reply.answer;
  return reply.kind === "rejected" ? { rejection: reply.rejection } : undefined;
}
