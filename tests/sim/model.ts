/**
 * What a run's events mean, told a second time and independently of Core: the checkers' oracle.
 *
 * The model follows what is committed, so it never goes back.
 */
import { limits } from "#core/base";
import type { RunEvent } from "#core/run";
import { CompensationTrigger, EventKind as Kind, RunStatus } from "#proto";

/** One event as the simulated log holds it. */
export interface JournalEvent {
  readonly partition: string;
  /** Shard whose log holds it, at `index`. */
  readonly shard: number;
  readonly index: number;
  readonly seq: number;
  readonly timeMs: number;
  readonly logical: number;
  readonly kind: number;
  readonly event: RunEvent;
  readonly bytes: Uint8Array;
  /** SHA-256 of `bytes`, by the independent hasher. */
  readonly hash: Uint8Array;
  readonly prevHash: Uint8Array;
  readonly issuer: string;
  /** The record's `delivered_seq`. */
  readonly deliveredSeq: number;
}

export interface OpModel {
  readonly op: number;
  readonly opened: JournalEvent;
  readonly name: string;
  attempt: number;
  delivery: number;
  /** Log index that made the current attempt and delivery. */
  sinceIndex: number;
  /** The current attempt does not begin before; 0 = at once. */
  dueMs: number;
  /** It claims an idempotency key that did not grant it yet. */
  isUngranted: boolean;
  /** Kind of the event that closed it; 0 = open. */
  closedBy: number;
}

/** A start that waits, by the events alone. */
export interface ContenderModel {
  readonly ticket: number;
  readonly key: string;
  /** Infinity = it waits as long as it takes. */
  readonly expiresAtMs: number;
  /** Ids of signals that wait with it, in order. */
  readonly held: string[];
}

/** Kinds that end a generation. */
export const terminalKinds: ReadonlySet<number> = new Set([
  Kind.runCompleted,
  Kind.runFailed,
  Kind.runCancelled,
  Kind.runTerminated,
  Kind.runTimedOut,
]);
/** Kinds that the workflow's code is told of. */
export const guestKinds: ReadonlySet<number> = new Set([
  Kind.runStarted,
  Kind.activityCompleted,
  Kind.activityFailed,
  Kind.timerFired,
  Kind.signalReceived,
  Kind.cancelRequested,
  Kind.signalSettled,
  Kind.resultReceived,
  Kind.childStarted,
  Kind.childEnded,
  Kind.chunkYielded,
  Kind.channelReceived,
  Kind.channelSendSettled,
]);

/** Kinds that open an operation of the workflow's code. */
export const openingKinds: ReadonlySet<number> = new Set([
  Kind.activityScheduled,
  Kind.timerStarted,
  Kind.signalAwaited,
  Kind.signalSent,
  Kind.resultAwaited,
  Kind.childSpawned,
  Kind.chunkYielded,
  Kind.channelSent,
  Kind.channelAwaited,
  Kind.compensationRegistered,
]);

/** Kinds by which the code withdraws one. */
export const withdrawingKinds: ReadonlySet<number> = new Set([
  Kind.activityCancelled,
  Kind.timerCancelled,
  Kind.signalWaitCancelled,
  Kind.signalSendCancelled,
  Kind.resultWaitCancelled,
  Kind.channelSendCancelled,
  Kind.channelWaitCancelled,
]);

type UnwindKind = (typeof Kind)[
  | "compensationRegistered"
  | "unwindStarted"
  | "compensationStarted"
  | "compensationCompleted"
  | "compensationFailed"
  | "unwindEnded"];
type ContendingKind = (typeof Kind)["startQueued" | "startExpired" | "startCancelled" | "supersedeRequested" | "signalQueued"];

export class RunModel {
  generation = 0;
  started: JournalEvent | undefined;
  ended: JournalEvent | undefined;
  /** The event that blocked it, while it is blocked. */
  blocked: JournalEvent | undefined;
  /** The event that paused it, while it is paused. */
  paused: JournalEvent | undefined;
  cancel: JournalEvent | undefined;
  /** The event that decided its end, while compensations are owed. */
  decided: JournalEvent | undefined;
  /** The event that says how its stream stands; undefined: nobody has consumed it. */
  stream: JournalEvent | undefined;
  /** What is owed, oldest first. */
  stack: { readonly op: number; readonly always: boolean }[] = [];
  /** Undo that is executing; 0 = none is. */
  undoing = 0;
  deadlineAtMs = 0;
  last: JournalEvent | undefined;
  readonly ops = new Map<number, OpModel>();
  /** Ids of the last signals of clients. */
  readonly signalIds: string[] = [];
  /** Idempotency keys of all generations. */
  readonly keys = new Map<string, number>();
  readonly unclaimed = new Map<string, number>();
  /** Starts that wait, the next first. */
  queue: ContenderModel[] = [];
  /** The live run is to be ended by what this asked for. */
  superseded: JournalEvent | undefined;
  /** Ids of signals that waited with the start, and that its run is to receive next. */
  held: string[] = [];

  get isLive(): boolean {
    return this.started !== undefined && this.ended === undefined;
  }

  fold(e: JournalEvent): void {
    const { event } = e;
    this.last = e;
    switch (event.kind) {
      case Kind.runStarted:
        this.begin(e, event.body);
        break;
      case Kind.scheduleCreated:
        this.begin(e, { generation: event.body.generation, idempotencyKey: "", deadlineMs: 0, ticket: 0 });
        break;
      case Kind.channelOpened:
        this.begin(e, { generation: event.body.generation, idempotencyKey: "", deadlineMs: 0, ticket: 0 });
        break;
      case Kind.channelChanged:
      case Kind.messagesAppended:
      case Kind.messagesDelivered:
      case Kind.messagesExpired:
      case Kind.scheduleUpdated:
      case Kind.schedulePaused:
      case Kind.scheduleResumed:
      case Kind.scheduleFired:
      case Kind.scheduleMissed:
      case Kind.scheduleTriggered:
      case Kind.scheduleBackfilled:
        break;
      case Kind.activityScheduled:
      case Kind.timerStarted:
      case Kind.signalAwaited:
      case Kind.signalSent:
      case Kind.resultAwaited:
      case Kind.childSpawned:
      case Kind.channelSent:
      case Kind.channelAwaited:
        this.open(e, event.body.op, "name" in event.body ? event.body.name : "", event.kind === Kind.timerStarted ? event.body.dueMs : 0);
        break;
      case Kind.chunkYielded:
        this.open(e, event.body.op, "", 0);
        this.close(event.body.op, e.kind);
        break;
      case Kind.streamConnected:
      case Kind.streamDisconnected:
        this.stream = e;
        break;
      case Kind.compensationRegistered:
      case Kind.unwindStarted:
      case Kind.compensationStarted:
      case Kind.compensationCompleted:
      case Kind.compensationFailed:
      case Kind.unwindEnded:
        this.unwind(e, event);
        break;
      case Kind.activityGranted:
        this.grant(e, event.body.op);
        break;
      case Kind.keyClaimed:
      case Kind.keySettled:
      case Kind.keyReleased:
      case Kind.keyForgotten:
        break;
      case Kind.compensationRetried:
      case Kind.activityRetried:
        this.retry(e, event.body);
        break;
      case Kind.activityCompleted:
      case Kind.activityFailed:
      case Kind.activityCancelled:
      case Kind.timerFired:
      case Kind.timerCancelled:
      case Kind.signalWaitCancelled:
      case Kind.signalSettled:
      case Kind.signalSendCancelled:
      case Kind.resultReceived:
      case Kind.resultWaitCancelled:
      case Kind.channelSendSettled:
      case Kind.channelSendCancelled:
      case Kind.channelReceived:
      case Kind.channelWaitCancelled:
      case Kind.childEnded:
        this.close(event.body.op, e.kind);
        break;
      case Kind.childStarted:
        if (event.body.failure !== undefined) this.close(event.body.op, e.kind);
        break;
      case Kind.signalReceived:
        this.signal(event.body);
        break;
      case Kind.cancelRequested:
        this.cancel = e;
        break;
      case Kind.runBlocked:
        this.blocked = e;
        break;
      case Kind.runResumed:
        this.blocked = undefined;
        break;
      case Kind.runPaused:
        this.paused = e;
        break;
      case Kind.runUnpaused:
        this.paused = undefined;
        break;
      case Kind.startQueued:
      case Kind.startExpired:
      case Kind.startCancelled:
      case Kind.supersedeRequested:
      case Kind.signalQueued:
        this.contend(e, event);
        break;
      default:
        this.ended = e;
        this.decided = undefined;
        this.stack = [];
        this.blocked = undefined;
        this.paused = undefined;
    }
  }

  /** A task lease of a later delivery. */
  foldLease(index: number, lease: { op: number; delivery: number }): void {
    const o = this.ops.get(lease.op);
    if (o === undefined) return;
    o.delivery = lease.delivery;
    o.sinceIndex = index;
  }

  private unwind(e: JournalEvent, event: Extract<RunEvent, { kind: UnwindKind }>): void {
    switch (event.kind) {
      case Kind.compensationRegistered:
        this.open(e, event.body.op, event.body.name, 0);
        this.close(event.body.op, e.kind);
        this.stack.push({ op: event.body.op, always: event.body.trigger === CompensationTrigger.always });
        break;
      case Kind.unwindStarted:
        this.decided = e;
        this.blocked = undefined;
        this.paused = undefined;
        this.deadlineAtMs = event.body.status === RunStatus.timedOut ? this.deadlineAtMs : 0;
        for (const o of this.ops.values()) if (o.closedBy === 0) o.closedBy = e.kind;
        if (event.body.status === RunStatus.completed) this.stack = this.stack.filter(({ always }) => always);
        break;
      case Kind.compensationStarted:
        this.undoing = event.body.op;
        this.execute(e, event.body.op);
        break;
      case Kind.compensationCompleted:
      case Kind.compensationFailed:
        this.undoing = 0;
        this.stack.pop();
        this.close(event.body.op, e.kind);
        break;
      default:
    }
  }

  /** A registered undo is a task from here on. */
  private execute(e: JournalEvent, op: number): void {
    const o = this.ops.get(op);
    if (o !== undefined) this.ops.set(op, { ...o, sinceIndex: e.index, closedBy: 0 });
  }

  private contend(e: JournalEvent, event: Extract<RunEvent, { kind: ContendingKind }>): void {
    switch (event.kind) {
      case Kind.startQueued: {
        const { idempotencyKey: key, budgetMs } = event.body;
        const expiresAtMs = budgetMs === 0 ? Number.POSITIVE_INFINITY : e.timeMs + budgetMs;
        this.queue.push({ ticket: e.seq, key, expiresAtMs, held: [] });
        break;
      }
      case Kind.supersedeRequested: {
        const { ticket } = event.body;
        this.superseded = e;
        this.queue.sort((a, b) => Number(b.ticket === ticket) - Number(a.ticket === ticket));
        break;
      }
      case Kind.signalQueued:
        this.remember(event.body.id);
        this.contender(event.body.ticket)?.held.push(event.body.id);
        break;
      default:
        this.useKey(this.contender(event.body.ticket)?.key ?? "", 0);
        this.queue = this.queue.filter(({ ticket }) => ticket !== event.body.ticket);
    }
  }

  contender(ticket: number): ContenderModel | undefined {
    return this.queue.find((one) => one.ticket === ticket);
  }

  /** Keys are known for the last starts only. */
  private useKey(key: string, generation: number): void {
    if (key === "") return;
    this.keys.set(key, generation);
    const [oldest] = this.keys.keys();
    if (this.keys.size > limits.usedKeysKept && oldest !== undefined) this.keys.delete(oldest);
  }

  private remember(id: string): void {
    if (id === "" || this.signalIds.includes(id)) return;
    this.signalIds.push(id);
    if (this.signalIds.length > limits.signalIdsKept) this.signalIds.shift();
  }

  private begin(e: JournalEvent, body: { generation: number; idempotencyKey: string; deadlineMs: number; ticket: number }): void {
    this.held = this.contender(body.ticket)?.held ?? [];
    this.queue = this.queue.filter(({ ticket }) => ticket !== body.ticket);
    this.superseded = undefined;
    this.generation = body.generation;
    this.started = e;
    this.ended = undefined;
    this.blocked = undefined;
    this.cancel = undefined;
    this.decided = undefined;
    this.stack = [];
    this.stream = undefined;
    this.undoing = 0;
    this.deadlineAtMs = body.deadlineMs > 0 ? e.timeMs + body.deadlineMs : 0;
    this.ops.clear();
    this.unclaimed.clear();
    this.useKey(body.idempotencyKey, body.generation);
  }

  private open(e: JournalEvent, op: number, name: string, dueMs: number): void {
    const o: OpModel = { op, opened: e, name, attempt: 1, delivery: 1, sinceIndex: e.index, dueMs, isUngranted: claims(e), closedBy: 0 };
    this.ops.set(op, o);
    const waiting = this.unclaimed.get(name) ?? 0;
    if (e.kind !== Kind.signalAwaited || waiting === 0) return;
    this.unclaimed.set(name, waiting - 1);
    o.closedBy = Kind.signalReceived;
  }

  private grant(e: JournalEvent, op: number): void {
    const o = this.ops.get(op);
    if (o !== undefined) Object.assign(o, { isUngranted: false, sinceIndex: e.index });
  }

  private retry(e: JournalEvent, body: { op: number; attempt: number; nextMs: number }): void {
    const o = this.ops.get(body.op);
    if (o === undefined) return;
    o.attempt = body.attempt + 1;
    o.delivery = 1;
    o.sinceIndex = e.index;
    o.dueMs = body.nextMs;
  }

  private close(op: number, kind: number): void {
    const o = this.ops.get(op);
    if (o !== undefined) o.closedBy = kind;
  }

  private signal(body: { name: string; id: string }): void {
    this.held.shift();
    this.remember(body.id);
    for (const o of this.ops.values()) {
      if (o.opened.kind !== Kind.signalAwaited || o.closedBy !== 0 || o.name !== body.name) continue;
      o.closedBy = Kind.signalReceived;
      return;
    }
    this.unclaimed.set(body.name, (this.unclaimed.get(body.name) ?? 0) + 1);
  }
}

const claims = ({ event }: JournalEvent): boolean => event.kind === Kind.activityScheduled && event.body.claim !== undefined;
