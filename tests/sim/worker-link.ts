/**
 * One stream of a simulated worker: the runs that it holds for one node. It keeps to the contract
 * of the real one: a run whose activation failed is let go of, and a stream that ends takes its
 * runs with it.
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
  toBytes,
  type WorkerItem,
  type WorkerItemInit,
} from "#proto";
import { checkContinued, checkReplayed } from "./check/guests.ts";
import { Guest } from "./guest.ts";
import { guestKinds, type JournalEvent, openingKinds, withdrawingKinds } from "./model.ts";
import type { SimulatedStream } from "./network.ts";
import { programOf } from "./program.ts";
import type { Simulation } from "./simulation.ts";
import { Violation } from "./violation.ts";

export type WorkerStream = SimulatedStream<WorkerItem, ServerItem>;

interface HeldRun {
  readonly handle: number;
  readonly shard: number;
  readonly partition: string;
  readonly guest: Guest;
  /** The newest event that it was told. */
  last: JournalEvent | undefined;
  /** Its last answer leaves then. */
  readyMs: number;
  isGone: boolean;
}

const text = new TextEncoder();

export class WorkerLink {
  private readonly sim: Simulation;
  private readonly stream: WorkerStream;
  private readonly runs = new Map<number, HeldRun>();
  private readonly pieces = new Map<number, Uint8Array[]>();
  isOver = false;

  constructor(sim: Simulation, stream: WorkerStream) {
    this.sim = sim;
    this.stream = stream;
  }

  get isBroken(): boolean {
    return this.isOver || this.stream.isBroken;
  }

  send(item: WorkerItemInit): void {
    if (!this.isOver) this.stream.toServer(fromBytes(decodeWorkerItem, toBytes(encodeWorkerItem, item)));
  }

  break(serverMs: number, peerMs: number): void {
    this.stream.break(serverMs, peerMs);
  }

  /** The stream ended: nothing of it counts any more. */
  end(): void {
    this.isOver = true;
    for (const run of this.runs.values()) run.isGone = true;
    this.runs.clear();
  }

  /** Drops an idle run; the server is told where `isSilent` is false. */
  evict(isSilent: boolean): void {
    const { prng, schedule } = this.sim;
    const idle = [...this.runs.values()].filter((run) => run.readyMs <= schedule.nowMs);
    const run = idle[prng.below(idle.length)];
    if (run === undefined) return;
    this.drop(run.handle);
    if (!isSilent) this.send({ kind: "evicted", value: { handle: run.handle, shard: run.shard } });
  }

  drop(handle: number): void {
    const run = this.runs.get(handle);
    if (run === undefined) return;
    run.isGone = true;
    this.runs.delete(handle);
  }

  activate(message: Activate): void {
    // Its node may be gone: nobody waits for the answer.
    if (this.isBroken) return;
    if (message.fromStart) return this.build(message);
    const run = this.runs.get(message.handle);
    if (run === undefined) return this.answer(message, undefined, { status: ActivatedStatus.notCached, problem: "not held" });
    const events = checkContinued(this.sim.journal, run.partition, run.last, message.events);
    if (this.misbehaves(message, run)) return;
    for (const e of events) this.deliver(run, e);
    this.answer(message, run, { commands: run.guest.takeCommands() });
  }

  /** A long history comes in pieces. */
  private build(message: Activate): void {
    const before = this.pieces.get(message.handle) ?? [];
    const events = [...before, ...message.events];
    if (message.more) return void this.pieces.set(message.handle, events);
    this.pieces.delete(message.handle);
    this.begin({ ...message, events });
  }

  private begin(message: Activate): void {
    this.drop(message.handle);
    const partition = `run/${message.run}`;
    const events = checkReplayed(this.sim.journal, partition, message.events);
    const guest = new Guest(programOf(message.type));
    const { handle, shard } = message;
    const run: HeldRun = { handle, shard, partition, guest, last: events.at(-1), readyMs: 0, isGone: false };
    this.runs.set(message.handle, run);
    this.makeRoom(run);
    if (this.misbehaves(message, run)) return;
    for (const e of events) if (guestKinds.has(e.kind)) this.deliver(run, e);
    run.last = events.at(-1);
    const fresh = newCommands(partition, run.guest.takeCommands(), events);
    this.answer(message, run, { commands: message.readOnly ? [] : fresh });
  }

  private deliver(run: HeldRun, e: JournalEvent): void {
    run.guest.deliver(e.event, e.seq, e.timeMs);
    run.last = e;
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
    const fail = answer.status !== undefined;
    const readyMs = Math.max(run?.readyMs ?? 0, schedule.nowMs + workload.activationMs * prng.fraction() * 2);
    if (run !== undefined) run.readyMs = readyMs;
    schedule.at(readyMs, () => {
      if (this.isBroken || (run?.isGone === true && !fail)) return;
      this.send({ kind: "activated", value: { ...answer, handle: message.handle, activation: message.activation, shard: message.shard } });
    });
  }

  private makeRoom(keep: HeldRun): void {
    for (const run of [...this.runs.values()]) {
      if (this.runs.size <= this.sim.workload.runSlots) return;
      if (run === keep || run.readyMs > this.sim.schedule.nowMs) continue;
      this.drop(run.handle);
      this.send({ kind: "evicted", value: { handle: run.handle, shard: run.shard } });
    }
  }

  query(message: Query): void {
    const run = this.runs.get(message.handle);
    const { query, shard } = message;
    if (run === undefined) return this.send({ kind: "queryAnswer", value: { query, shard, notCached: true } });
    const data = text.encode(JSON.stringify({ seen: run.guest.lastSeq, digest: run.guest.digest }));
    run.readyMs = Math.max(run.readyMs, this.sim.schedule.nowMs);
    this.sim.schedule.at(run.readyMs, () => {
      if (!this.isBroken) this.send({ kind: "queryAnswer", value: { query, shard, result: { data } } });
    });
  }
}

const endingCommands: ReadonlySet<number> = new Set([CommandKind.complete, CommandKind.fail, CommandKind.cancelled]);

/** What the guest asked for beyond its history. Throws a `Violation` where it asked for something else. */
function newCommands(partition: string, commands: readonly CommandInit[], history: readonly JournalEvent[]): CommandInit[] {
  const asked = history.filter((e) => openingKinds.has(e.kind));
  const withdrawn = new Set(history.filter((e) => withdrawingKinds.has(e.kind)).map((e) => (e.event.body as { op: number }).op));
  const isEnded =
    history.some((e) => e.kind >= Kind.runCompleted && e.kind <= Kind.runTimedOut) || history.some((e) => e.kind === Kind.unwindStarted);
  const fresh: CommandInit[] = [];
  let at = 0;
  for (const command of commands) {
    const recorded = asked[at];
    if (command.kind === CommandKind.cancelOp) {
      if (!withdrawn.delete(command.op ?? 0)) fresh.push(command);
    } else if (command.kind !== undefined && endingCommands.has(command.kind)) {
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
    case Kind.signalSent:
      return (
        command.kind === CommandKind.sendSignal &&
        command.op === event.body.op &&
        command.to === event.body.to &&
        bytesEqual(command.payload?.data ?? new Uint8Array(0), event.body.payload?.data ?? new Uint8Array(0))
      );
    case Kind.channelSent:
      return (
        command.kind === CommandKind.sendChannel &&
        command.op === event.body.op &&
        command.to === event.body.to &&
        bytesEqual(command.payload?.data ?? new Uint8Array(0), event.body.payload?.data ?? new Uint8Array(0))
      );
    case Kind.channelAwaited:
      return command.kind === CommandKind.readChannel && command.op === event.body.op && command.to === event.body.to;
    case Kind.chunkYielded:
      return (
        command.kind === CommandKind.yieldChunk &&
        command.op === event.body.op &&
        bytesEqual(command.payload?.data ?? new Uint8Array(0), event.body.chunk?.data ?? new Uint8Array(0))
      );
    case Kind.compensationRegistered:
      return (
        command.kind === CommandKind.compensate &&
        command.op === event.body.op &&
        command.name === event.body.name &&
        command.trigger === event.body.trigger &&
        bytesEqual(command.payload?.data ?? new Uint8Array(0), event.body.input?.data ?? new Uint8Array(0))
      );
    case Kind.childSpawned:
      return (
        command.kind === CommandKind.spawn &&
        command.op === event.body.op &&
        command.to === event.body.to &&
        command.name === event.body.start?.type &&
        command.closePolicy === event.body.closePolicy
      );
    case Kind.resultAwaited:
      return command.kind === CommandKind.awaitResult && command.op === event.body.op && command.to === event.body.to;
    default:
      return false;
  }
}
