/**
 * The real shard machine over a log in memory, under a clock that is moved.
 *
 * Everything happens at once and in order: effects are run in the order of their making, a timer
 * fires before whatever else comes at its time, and each decision is at least a millisecond after
 * the one before. So a leader that begins after a crash goes on at the times at which its
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
  unreachable,
  wholeRange,
} from "#core/base";
import { SessionCapacity } from "#core/dispatch";
import { dueMs, isLive, withBundles } from "#core/run";
import { type Command, type Input, ShardMachine } from "#core/shard";
import type { DescribeReply, EnvelopeReply, Hello, Identity } from "#proto";
import { ShardLog } from "./shard-log.ts";
import type { CoreSide, Untimed, WorkerSide } from "./sides.ts";

type Send = Extract<Effect, { kind: "send" }>;

const identity: Identity = { issuer: "local", subject: "test", verified: false, causeSeq: 0 };
const noStates: StateReader = { load: () => undefined, dueBefore: () => [] };
const slotsMax = 1_000_000;

interface Asked {
  readonly command: Command;
  readonly done: (reply: Reply) => void;
}

export interface VirtualCoreOptions {
  readonly hasher: Hasher;
  /** Milliseconds since 1970 at which it begins. */
  readonly startMs: number;
  readonly worker: WorkerSide;
  /** Code of a type that a run starts and its own bundle has not; undefined where there is none. */
  readonly newest: (type: string) => Uint8Array | undefined;
  /** Called when record `index` is durable and nothing that rests on it has left. True: Core ends there. */
  readonly crashes: (index: number) => boolean;
}

export class VirtualCore implements CoreSide {
  nowMs: number;
  readonly log = new ShardLog();
  private readonly options: VirtualCoreOptions;
  private machine: ShardMachine;
  private readonly effects: Effect[] = [];
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
      this.asked.set(request, { command, done });
      this.input({ kind: "command", request, identity, command });
    });
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
    if (this.machine.figures().timers > 0) return this.armedMs;
    // What is far away is not in the heap; the ticks until then only look out for it.
    let due = Number.POSITIVE_INFINITY;
    for (const { run } of this.machine.liveRuns()) if (isLive(run)) due = Math.min(due, dueMs(run));
    return due;
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
    for (const [request, { command }] of this.asked) this.inputs.push({ kind: "command", request, identity, command });
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
    // Tasks that had not left when Core ended leave now, at the time at which they would have.
    this.take(this.machine.step({ kind: "tick", nowMs }));
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
        if (effect !== undefined) this.perform(effect);
        else if (this.armedMs <= this.stepMs()) this.tick();
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
    const before = this.log.lastIndex;
    const effects = this.machine.step({ ...input, nowMs: this.stepMs() } as Input);
    // What records nothing takes no time.
    this.nowMs = Math.max(this.nowMs, this.machine.clockMs);
    if (this.log.lastIndex > before && this.options.crashes(this.log.lastIndex)) this.crash();
    else this.take(effects);
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
        return worker.task(effect);
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

  private answer(request: RequestId, reply: Reply): void {
    const sent = this.sent.get(request);
    if (sent !== undefined) return this.answerSent(request, sent, reply);
    const asked = this.asked.get(request);
    this.asked.delete(request);
    asked?.done(reply);
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
