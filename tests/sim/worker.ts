/**
 * A worker under the simulator: keeps runs, executes activities, answers, and fails in every way
 * a worker can. It keeps to the contract of the real one: a run whose activation failed is let
 * go of, results are kept until they are old, another delivery of an attempt gets its result.
 */
import { bytesEqual } from "#core/base";
import {
  type Activate,
  type ActivatedInit,
  ActivatedStatus,
  type CommandInit,
  CommandKind,
  decodeWorkerItem,
  encodeWorkerItem,
  fromBytes,
  EventKind as Kind,
  type Query,
  type ServerItem,
  type Task,
  type TaskDoneInit,
  type TaskToken,
  toBytes,
  type WorkerItem,
  type WorkerItemInit,
} from "#proto";
import { checkContinued, checkReplayed } from "./check/guests.ts";
import { Guest } from "./guest.ts";
import { guestKinds, type JournalEvent } from "./model.ts";
import type { SimulatedStream } from "./network.ts";
import { type Plan, programOf } from "./program.ts";
import type { Simulation } from "./simulation.ts";
import { Violation } from "./violation.ts";

export type WorkerStream = SimulatedStream<WorkerItem, ServerItem>;

interface HeldRun {
  readonly handle: number;
  readonly partition: string;
  readonly guest: Guest;
  /** Its last answer leaves then. */
  readyMs: number;
  isGone: boolean;
}

interface Execution {
  token: TaskToken;
  isOver: boolean;
}

const text = new TextEncoder();
const resultKeptMs = 15_000;
const attemptOf = (token: TaskToken) => `${token.run}/${token.generation}.${token.op}.${token.attempt}`;
const pick = ({ run, generation, op, attempt, delivery }: TaskToken) => ({ run, generation, op, attempt, delivery, epoch: 0 });

export class SimulatedWorker {
  readonly name: string;
  readonly activities: readonly string[];
  private readonly sim: Simulation;
  private stream: WorkerStream | undefined;
  private readonly runs = new Map<number, HeldRun>();
  private readonly executing = new Map<string, Execution>();
  private readonly kept = new Map<string, { done: TaskDoneInit; sentMs: number | undefined }>();
  private stalledUntilMs = 0;
  private readonly mailbox: ServerItem[] = [];
  private isDown = false;

  constructor(sim: Simulation, name: string, activities: readonly string[]) {
    this.sim = sim;
    this.name = name;
    this.activities = activities;
  }

  connect(): void {
    if (this.stream !== undefined || this.isDown) return;
    this.forgetOld();
    const held = [...[...this.executing.values()].map((e) => e.token), ...[...this.kept.values()].map((k) => k.done.token as TaskToken)];
    const stream: WorkerStream | undefined = this.sim.openWorkerStream(
      (item) => this.onItem(stream, item),
      () => this.onClosed(stream),
    );
    if (stream === undefined) return this.sim.schedule.after(20 + this.sim.prng.below(200), () => this.connect());
    this.stream = stream;
    this.send({
      kind: "hello",
      value: {
        workerId: this.name,
        namespace: "",
        modes: ["v8"],
        activities: [...this.activities],
        activitySlots: this.sim.workload.activitySlots,
        runSlots: this.sim.workload.runSlots,
        version: "sim",
        clusterId: "sim",
        held: held.map(pick),
      },
    });
    for (const each of this.kept.values()) {
      each.sentMs = this.sim.schedule.nowMs;
      this.send({ kind: "taskDone", value: each.done });
    }
  }

  /** The stream breaks; activities go on. */
  disconnect(): void {
    const { prng } = this.sim;
    this.stream?.break(prng.below(400), prng.below(200));
  }

  /** The process dies and comes back. */
  crash(): void {
    const { prng, schedule } = this.sim;
    this.stream?.break(prng.below(400), 0);
    this.stream = undefined;
    this.isDown = true;
    for (const execution of this.executing.values()) execution.isOver = true;
    this.executing.clear();
    this.kept.clear();
    this.mailbox.length = 0;
    this.dropRuns();
    schedule.after(50 + prng.below(2000), () => {
      this.isDown = false;
      this.connect();
    });
  }

  stall(ms: number): void {
    this.stalledUntilMs = Math.max(this.stalledUntilMs, this.sim.schedule.nowMs + ms);
  }

  drain(): void {
    this.send({ kind: "draining", value: {} });
    this.sim.schedule.after(500 + this.sim.prng.below(1500), () => this.disconnect());
  }

  /** Drops an idle run; the server is told where `isSilent` is false. */
  evict(isSilent: boolean): void {
    const { prng, schedule } = this.sim;
    const idle = [...this.runs.values()].filter((run) => run.readyMs <= schedule.nowMs);
    const run = idle[prng.below(idle.length)];
    if (run === undefined) return;
    this.drop(run.handle);
    if (!isSilent) this.send({ kind: "evicted", value: { handle: run.handle } });
  }

  private onClosed(stream: WorkerStream | undefined): void {
    if (this.stream !== stream) return;
    this.stream = undefined;
    this.mailbox.length = 0;
    this.dropRuns();
    const { prng, schedule, isFaulty } = this.sim;
    if (!this.isDown) schedule.after(prng.below(isFaulty && prng.chance(0.3) ? 4000 : 300), () => this.connect());
  }

  private dropRuns(): void {
    for (const run of this.runs.values()) run.isGone = true;
    this.runs.clear();
  }

  private drop(handle: number): void {
    const run = this.runs.get(handle);
    if (run === undefined) return;
    run.isGone = true;
    this.runs.delete(handle);
  }

  private send(item: WorkerItemInit): void {
    this.stream?.toServer(fromBytes(decodeWorkerItem, toBytes(encodeWorkerItem, item)));
  }

  private onItem(stream: WorkerStream | undefined, item: ServerItem): void {
    if (stream !== this.stream) return;
    this.mailbox.push(item);
    if (this.stalledUntilMs > this.sim.schedule.nowMs) this.sim.schedule.at(this.stalledUntilMs, () => this.work());
    else this.work();
  }

  private work(): void {
    if (this.stalledUntilMs > this.sim.schedule.nowMs) return this.sim.schedule.at(this.stalledUntilMs, () => this.work());
    for (let item = this.mailbox.shift(); item !== undefined; item = this.mailbox.shift()) this.take(item);
  }

  private take(item: ServerItem): void {
    switch (item.kind) {
      case "activate":
        return this.activate(item.value);
      case "task":
        return this.execute(item.value);
      case "cancelTask":
        return this.cancelTask(item.value.token);
      case "query":
        return this.query(item.value);
      case "drop":
        return this.drop(item.value.handle);
      default:
        return;
    }
  }

  // Runs.

  private activate(message: Activate): void {
    // What it rests on may be lost with the server: nobody waits for the answer.
    if (this.stream?.isBroken !== false) return;
    if (message.fromStart) return this.begin(message);
    const run = this.runs.get(message.handle);
    if (run === undefined) return this.answer(message, undefined, { status: ActivatedStatus.notCached, problem: "not held" });
    const events = checkContinued(this.sim.journal, run.partition, run.guest.lastSeq, message.events);
    if (this.misbehaves(message, run)) return;
    for (const e of events) this.deliver(run, e);
    this.answer(message, run, { commands: run.guest.takeCommands() });
  }

  private begin(message: Activate): void {
    this.drop(message.handle);
    const partition = `run/${message.run}`;
    const events = checkReplayed(this.sim.journal, partition, message.events);
    const run: HeldRun = { handle: message.handle, partition, guest: new Guest(programOf(message.type)), readyMs: 0, isGone: false };
    this.runs.set(message.handle, run);
    this.makeRoom(run);
    if (this.misbehaves(message, run)) return;
    for (const e of events) if (guestKinds.has(e.kind)) this.deliver(run, e);
    const fresh = newCommands(partition, run.guest.takeCommands(), events);
    this.answer(message, run, { commands: message.readOnly ? [] : fresh });
  }

  private deliver(run: HeldRun, e: JournalEvent): void {
    run.guest.deliver(e.event, e.seq, e.timeMs);
    this.sim.digests.check(e, run.guest.digest);
  }

  /** Answers with a drawn failure instead, and lets go of the run. */
  private misbehaves(message: Activate, run: HeldRun): boolean {
    const { sim } = this;
    const status = sim.strikes("retryAnswer")
      ? ActivatedStatus.retry
      : sim.strikes("limitAnswer")
        ? ActivatedStatus.limit
        : sim.strikes("divergedAnswer")
          ? sim.prng.chance(0.5)
            ? ActivatedStatus.diverged
            : ActivatedStatus.broken
          : undefined;
    if (status === undefined) return false;
    this.answer(message, run, { status, problem: "the simulator says so" });
    this.drop(run.handle);
    return true;
  }

  private answer(message: Activate, run: HeldRun | undefined, answer: ActivatedInit): void {
    const { schedule, workload, prng } = this.sim;
    const stream = this.stream;
    const fail = answer.status !== undefined;
    const readyMs = Math.max(run?.readyMs ?? 0, schedule.nowMs + workload.activationMs * prng.fraction() * 2);
    if (run !== undefined) run.readyMs = readyMs;
    schedule.at(readyMs, () => {
      if (this.stream !== stream || (run?.isGone === true && !fail)) return;
      this.send({ kind: "activated", value: { ...answer, handle: message.handle, activation: message.activation } });
    });
  }

  private makeRoom(keep: HeldRun): void {
    for (const run of [...this.runs.values()]) {
      if (this.runs.size <= this.sim.workload.runSlots) return;
      if (run === keep || run.readyMs > this.sim.schedule.nowMs) continue;
      this.drop(run.handle);
      this.send({ kind: "evicted", value: { handle: run.handle } });
    }
  }

  private query(message: Query): void {
    const run = this.runs.get(message.handle);
    const stream = this.stream;
    if (run === undefined) return this.send({ kind: "queryAnswer", value: { query: message.query, notCached: true } });
    const data = text.encode(JSON.stringify({ seen: run.guest.lastSeq, digest: run.guest.digest }));
    run.readyMs = Math.max(run.readyMs, this.sim.schedule.nowMs);
    this.sim.schedule.at(run.readyMs, () => {
      if (this.stream === stream) this.send({ kind: "queryAnswer", value: { query: message.query, result: { data } } });
    });
  }

  // Activities.

  private execute(task: Task): void {
    const { token } = task;
    if (token === undefined) return;
    this.forgetOld();
    const key = attemptOf(token);
    const known = this.kept.get(key);
    if (known !== undefined) {
      known.done = marked(known.done, token);
      return this.send({ kind: "taskDone", value: known.done });
    }
    const running = this.executing.get(key);
    if (running !== undefined) {
      running.token = token;
      return;
    }
    const execution: Execution = { token, isOver: false };
    this.executing.set(key, execution);
    this.run(execution, JSON.parse(new TextDecoder().decode(task.input?.data)) as Plan);
  }

  private run(execution: Execution, plan: Plan): void {
    const { schedule, prng } = this.sim;
    const { attempt } = execution.token;
    if (plan.beatMs > 0) this.beat(execution, plan.beatMs, 1);
    if (attempt <= plan.hangs) return;
    schedule.after(plan.ms * (0.5 + prng.fraction() / 2), () => {
      if (execution.isOver) return;
      const isFailure = attempt <= plan.hangs + plan.fails;
      const failure = { type: plan.fails % 2 === 1 ? "Picky" : "Flaky", message: `attempt ${attempt}`, nonRetryable: plan.isFatal };
      this.finish(execution, isFailure ? { failure } : {});
    });
  }

  private beat(execution: Execution, everyMs: number, count: number): void {
    this.sim.schedule.after(everyMs, () => {
      if (execution.isOver) return;
      // An execution that hangs does not report either, after a while.
      if (count > 3) return;
      this.send({ kind: "heartbeat", value: { token: execution.token, details: { data: text.encode(`${count}`) } } });
      this.beat(execution, everyMs, count + 1);
    });
  }

  private finish(execution: Execution, outcome: TaskDoneInit): void {
    execution.isOver = true;
    const key = attemptOf(execution.token);
    this.executing.delete(key);
    const done = marked(outcome, execution.token);
    this.kept.set(key, { done, sentMs: this.stream === undefined ? undefined : this.sim.schedule.nowMs });
    this.send({ kind: "taskDone", value: done });
    if (this.sim.strikes("resultAgain")) this.send({ kind: "taskDone", value: done });
  }

  private cancelTask(token: TaskToken | undefined): void {
    const key = token === undefined ? "" : attemptOf(token);
    const execution = this.executing.get(key);
    if (execution === undefined) return;
    execution.isOver = true;
    this.executing.delete(key);
  }

  private forgetOld(): void {
    for (const [key, { sentMs }] of this.kept)
      if (sentMs !== undefined && this.sim.schedule.nowMs - sentMs > resultKeptMs) this.kept.delete(key);
  }
}

/** The outcome as a result of this delivery: what commits says which one it was. */
function marked(outcome: TaskDoneInit, token: TaskToken): TaskDoneInit {
  const data = text.encode(JSON.stringify({ attempt: token.attempt, delivery: token.delivery }));
  const { failure } = outcome;
  return failure === undefined
    ? { token: pick(token), result: { data } }
    : { token: pick(token), failure: { ...failure, details: { data } } };
}

/** What the guest asked for beyond its history. Throws a `Violation` where it asked for something else. */
function newCommands(partition: string, commands: readonly CommandInit[], history: readonly JournalEvent[]): CommandInit[] {
  const asked = history.filter((e) => e.kind === Kind.activityScheduled || e.kind === Kind.timerStarted || e.kind === Kind.signalAwaited);
  const withdrawn = new Set(
    history
      .filter((e) => e.kind === Kind.activityCancelled || e.kind === Kind.timerCancelled || e.kind === Kind.signalWaitCancelled)
      .map((e) => (e.event.body as { op: number }).op),
  );
  const isEnded = history.some((e) => e.kind >= Kind.runCompleted && e.kind <= Kind.runTimedOut);
  const fresh: CommandInit[] = [];
  let at = 0;
  for (const command of commands) {
    const recorded = asked[at];
    if (command.kind === CommandKind.cancelOp) {
      if (!withdrawn.delete(command.op ?? 0)) fresh.push(command);
    } else if (command.kind !== undefined && command.kind > CommandKind.cancelOp) {
      if (!isEnded) fresh.push(command);
    } else if (recorded === undefined) fresh.push(command);
    else {
      at++;
      if (!agrees(command, recorded))
        throw new Violation(
          "replayEqualsLive",
          `${partition} asks for ${JSON.stringify(command)}, its history has ${JSON.stringify(recorded.event.body)}`,
        );
    }
  }
  if (at < asked.length) throw new Violation("replayEqualsLive", `${partition} asks for ${at} operations, its history has ${asked.length}`);
  return fresh;
}

function agrees(command: CommandInit, { event }: JournalEvent): boolean {
  switch (event.kind) {
    case Kind.activityScheduled:
      return (
        command.kind === CommandKind.activity &&
        command.op === event.body.op &&
        command.name === event.body.name &&
        bytesEqual(command.payload?.data ?? new Uint8Array(0), event.body.input?.data ?? new Uint8Array(0))
      );
    case Kind.timerStarted:
      return command.kind === CommandKind.timer && command.op === event.body.op && command.durationMs === event.body.durationMs;
    case Kind.signalAwaited:
      return command.kind === CommandKind.awaitSignal && command.op === event.body.op && command.name === event.body.name;
    default:
      return false;
  }
}
