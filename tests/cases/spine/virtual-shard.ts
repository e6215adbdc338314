/**
 * The real shard machine over a log in memory, under a clock that a test moves, with one worker
 * that executes programs of the simulator.
 *
 * Everything happens at once and in order, so a test can stop the world between any two records:
 * `crash(index)` keeps the log up to there, as a power cut would, and starts again.
 */
import {
  asIndex,
  asRequestId,
  asSessionId,
  type Effect,
  noBytes,
  type Partition,
  type Reply,
  type RunId,
  runPartition,
  type StateReader,
  type TaskEffect,
} from "#core/base";
import { decodeBody, isForGuest, type RunEvent } from "#core/run";
import type { Command, Input, ShardMachine } from "#core/shard";
import {
  type CommandInit,
  decodeEvent,
  decodeRecord,
  decodeWorkerItem,
  encodeWorkerItem,
  fromBytes,
  type Identity,
  type TaskDoneInit,
  toBytes,
} from "#proto";
import { MemoryDisk, MemoryLogStore } from "#store";
import { readHistory } from "../../../worker/abi/history.ts";
import { ReplayCheck } from "../../../worker/abi/replay.ts";
import { joining, lead, makeShard, noStates, soleShard as shard } from "../../shard-maker.ts";
import { Guest } from "../../sim/guest.ts";
import type { Node } from "../../sim/program.ts";

const session = asSessionId(1);
const identity: Identity = { issuer: "local", subject: "case", verified: false, causeSeq: 0 };
type Untimed = Input extends infer I ? (I extends { readonly nowMs: number } ? Omit<I, "nowMs"> : never) : never;

export interface PastEvent {
  readonly partition: Partition;
  readonly seq: number;
  readonly timeMs: number;
  readonly logical: number;
  readonly event: RunEvent;
  readonly bytes: Uint8Array;
  /** Of the record that holds it. */
  readonly index: number;
}

export interface VirtualOptions {
  /** What a type executes. */
  readonly programs: Readonly<Record<string, Node>>;
  readonly states?: StateReader;
}

export class VirtualShard {
  nowMs = 1_800_000_000_000;
  /** Tasks that were sent and not answered, oldest first. */
  readonly tasks: TaskEffect[] = [];
  readonly replies: Reply[] = [];
  /** Divergences that replays met. */
  readonly problems: string[] = [];
  disk = new MemoryDisk();
  private readonly options: VirtualOptions;
  private machine!: ShardMachine;
  private log!: MemoryLogStore;
  private readonly guests = new Map<number, Guest>();
  private armedMs = Number.POSITIVE_INFINITY;
  private requests = 0;
  private epoch = 0;
  private readonly queue: Effect[] = [];
  private isDraining = false;
  hasWorker = false;

  constructor(options: VirtualOptions) {
    this.options = options;
    this.open();
  }

  get lastIndex(): number {
    return this.log.lastIndex(shard);
  }

  command(command: Command): Reply | undefined {
    const request = asRequestId(++this.requests);
    const before = this.replies.length;
    this.input({ kind: "command", request, identity, command });
    return this.replies[before];
  }

  start(run: string, type: string): Reply | undefined {
    return this.command({
      kind: "start",
      run: `default:${run}` as RunId,
      type,
      bundle: noBytes,
      input: undefined,
      contention: "attach",
      idempotencyKey: "",
      deadlineMs: 0,
      awaitResult: false,
    });
  }

  join(): void {
    this.hasWorker = true;
    this.input(joining(session, this.nowMs, { activities: ["a0", "a1", "a2", "a3"] }));
  }

  leave(): void {
    this.hasWorker = false;
    this.guests.clear();
    this.input({ kind: "worker-gone", session });
  }

  /** Answers a task that is out. */
  complete(task: TaskEffect, result: unknown = task.token.op): void {
    this.answer(task, { result: { data: new TextEncoder().encode(JSON.stringify(result)) } });
  }

  /** Fails a task that is out, for good. */
  fail(task: TaskEffect, message: string): void {
    this.answer(task, { failure: { type: "Error", message, nonRetryable: true } });
  }

  private answer(task: TaskEffect, end: TaskDoneInit): void {
    this.tasks.splice(this.tasks.indexOf(task), 1);
    const value = { token: { ...task.token }, ...end };
    const item = fromBytes(decodeWorkerItem, toBytes(encodeWorkerItem, { kind: "taskDone", value }));
    if (item.kind === "taskDone") this.input({ kind: "task-done", session, message: item.value });
  }

  /** Moves the clock to `ms` from now, ticking whenever a tick was asked for. */
  advance(ms: number): void {
    const end = this.nowMs + ms;
    while (this.armedMs <= end) {
      this.nowMs = Math.max(this.nowMs, this.armedMs);
      this.armedMs = Number.POSITIVE_INFINITY;
      this.input({ kind: "tick" });
    }
    this.nowMs = end;
    this.input({ kind: "tick" });
  }

  /** As `advance`, in a hundred strides however far it is: a shell that was asleep ticks late. */
  leap(ms: number): void {
    const start = this.nowMs;
    for (let stride = 1; stride <= 100; stride++) {
      this.nowMs = start + Math.floor((ms * stride) / 100);
      this.input({ kind: "tick" });
    }
  }

  input(input: Untimed): void {
    this.take(this.machine.step({ ...input, nowMs: this.nowMs } as Input));
  }

  /** The world ends with the record `index` as the last durable one, and begins again. */
  crash(index = this.lastIndex): void {
    const kept = (this.disk.shards.get(shard) ?? []).slice(0, index);
    this.disk = new MemoryDisk();
    this.disk.shards.set(shard, kept);
    this.guests.clear();
    this.tasks.length = 0;
    this.armedMs = Number.POSITIVE_INFINITY;
    this.hasWorker = false;
    this.open();
  }

  /** Every event of the log, in order. */
  events(run?: string): PastEvent[] {
    const past = (this.disk.shards.get(shard) ?? []).flatMap(({ index, body }) =>
      fromBytes(decodeRecord, body).event.map((bytes) => {
        const { partition, seq, timeMs, logical, kind, payload } = fromBytes(decodeEvent, bytes);
        return { partition: partition as Partition, seq, timeMs, logical, event: decodeBody(kind, payload) as RunEvent, bytes, index };
      }),
    );
    return run === undefined ? past : past.filter(({ partition }) => partition === runPartition(`default:${run}` as RunId));
  }

  describe(run: string) {
    return this.machine.describe(runPartition(`default:${run}` as RunId));
  }

  private open(): void {
    this.log = new MemoryLogStore(this.disk, { soon: (run) => run(), after: () => {}, write: (_bytes, done) => done() });
    this.machine = makeShard({ log: this.log, states: this.options.states ?? noStates });
    for (const record of this.log.replay(shard, asIndex(1))) this.machine.recover(record.index, record.body);
    this.take(lead(this.machine, { nowMs: this.nowMs, appliedIndex: this.log.lastIndex(shard), epoch: ++this.epoch }));
  }

  private take(effects: readonly Effect[]): void {
    this.log.kick(true);
    this.queue.push(...effects);
    if (this.isDraining) return;
    this.isDraining = true;
    for (let next = this.queue.shift(); next !== undefined; next = this.queue.shift()) this.run(next);
    this.isDraining = false;
  }

  private run(effect: Effect): void {
    switch (effect.kind) {
      case "reply":
        return void this.replies.push(effect.reply);
      case "arm-timer": {
        this.armedMs = effect.atMs;
        return;
      }
      case "task":
        return void this.tasks.push(effect);
      case "cancel-task": {
        const at = this.tasks.findIndex(({ token }) => token.run === effect.token.run && token.op === effect.token.op);
        if (at >= 0) this.tasks.splice(at, 1);
        return;
      }
      case "activate": {
        if (effect.start !== undefined) this.guests.set(effect.handle, this.guestOf(effect.start.type));
        return this.activate(effect, effect.events);
      }
      case "replay": {
        const events = this.events().filter(
          ({ partition, seq }) => partition === effect.partition && seq >= effect.firstSeq && seq < effect.endSeq,
        );
        this.guests.set(effect.handle, this.guestOf(effect.type));
        const bytes = events.map((each) => each.bytes);
        return this.activate(effect, bytes, new ReplayCheck(readHistory(bytes).recorded, "case"));
      }
      case "drop":
        return void this.guests.delete(effect.handle);
      case "send": {
        // Nobody else is there: every message is taken and refused.
        const { from, message } = effect.envelope;
        const refusal = message.map(({ number }) => ({ number, reason: "RUN_NOT_FOUND" }));
        const answer = { taken: message.at(-1)?.number ?? 0, refusal, settled: 0, stale: false, retryAfterMs: 0 };
        return this.input({ kind: "envelope-answered", from: from as Partition, to: effect.to, answer });
      }
      default:
        throw new Error(`No case asks for ${effect.kind}`);
    }
  }

  private guestOf(type: string): Guest {
    return new Guest(this.options.programs[type] as Node);
  }

  private activate(to: { readonly handle: number; readonly activation: number }, events: readonly Uint8Array[], check?: ReplayCheck): void {
    const guest = this.guests.get(to.handle) as Guest;
    let commands: CommandInit[] = [];
    for (const bytes of events) {
      const { kind, payload, seq, timeMs } = fromBytes(decodeEvent, bytes);
      if (isForGuest(kind)) guest.deliver(decodeBody(kind, payload) as RunEvent, seq, timeMs);
      commands.push(...guest.takeCommands());
    }
    if (check !== undefined) {
      const problem = check.take(commands) ?? check.finish();
      if (problem !== undefined) this.problems.push(problem);
      commands = check.fresh;
    }
    const value = { handle: to.handle, activation: to.activation, status: 0, commands, problem: "" };
    const item = fromBytes(decodeWorkerItem, toBytes(encodeWorkerItem, { kind: "activated", value }));
    if (item.kind === "activated") this.input({ kind: "activated", session, message: item.value });
  }
}
