/**
 * State of one run: what its events fold into.
 *
 * Invariants: `nextOp` is one above the highest operation issued; `pending` holds operations that
 * are neither finished nor withdrawn; a closed run has none. Nothing here depends on which worker
 * holds the run or on time passing without an event.
 */
import type { Partition, RunId } from "#core/base";
import { limits, noBytes } from "#core/base";
import {
  type ActivityOptions,
  type AnsweredCall,
  type Compensation,
  type Contender,
  type DeadLetter,
  type DecidedEnd,
  type Ending,
  EventKind,
  type Failure,
  type KeyState,
  type OpenCall,
  OverlapPolicy,
  type Payload,
  RunStatus,
  type ScheduleState,
  type StartedBy,
  StreamState,
  type UsedKey,
} from "#proto";
import { type Channel, channelDueMs } from "./channel-state.ts";
import type { Owed, Pair, ResultWaiter } from "./outbox.ts";
import type { Sender } from "./sender.ts";

/** An open operation. Times are milliseconds since 1970; 0 = none. */
export interface Operation {
  readonly op: number;
  readonly kind:
    | typeof EventKind.activityScheduled
    | typeof EventKind.timerStarted
    | typeof EventKind.signalAwaited
    | typeof EventKind.signalSent
    | typeof EventKind.methodCallSent
    | typeof EventKind.channelSent
    | typeof EventKind.channelAwaited
    | typeof EventKind.resultAwaited
    /** Open until the child has ended. */
    | typeof EventKind.childSpawned
    | typeof EventKind.cancelSent
    | typeof EventKind.compensationStarted
    | typeof EventKind.deadLetterReplayed;
  readonly name: string;
  /** Address of the other run, or the channel, that it is about; empty = none. */
  readonly to: string;
  readonly input: Payload | undefined;
  readonly options: ActivityOptions | undefined;
  readonly scheduledMs: number;
  readonly scheduledSeq: number;
  /** Execution number of an activity, from 1. */
  attempt: number;
  /** Offer number within the attempt, from 1. */
  delivery: number;
  /** A timer fires, or a failed activity is tried again, at this time. */
  dueMs: number;
  /** Progress that the last attempt reported. */
  heartbeat: Payload | undefined;
  /** Message of the last failed attempt, for people. */
  lastFailure: string;
  /** Of a method call: withdrawing it cancels it in the other run. */
  readonly propagates: boolean;
  /** Of a child: a `ParentClosePolicy`. */
  readonly closePolicy: number;
  /** Of a child: its generation; 0 = it waits in its queue, or nothing was told yet. */
  of: number;
  /** Of a child: what came of its start was told. */
  started: boolean;
  /** Of an activity with an idempotency key: the key's partition; empty = it needs no grant. */
  readonly key: Partition | "";
  /** The key granted it: it may be executed. */
  granted: boolean;
}

/** Where an event stands in its history. */
export interface EventPlace {
  readonly seq: number;
  readonly timeMs: number;
}

export interface Run {
  readonly run: RunId;
  generation: number;
  type: string;
  bundle: Uint8Array;
  status: RunStatus;
  seed: number;
  startedMs: number;
  /** 0 = no deadline. */
  deadlineAtMs: number;
  closedMs: number;
  /** Keys that started this generation and those before it, and of starts that left the queue, oldest first. */
  usedKeys: UsedKey[];
  /** Of the start that made this generation; 0 = it was not queued. */
  ticket: number;
  /** Whose operation started this generation; undefined = a client did. */
  startedBy: StartedBy | undefined;
  /** It is no run but a schedule, which is live as one. */
  schedule: ScheduleState | undefined;
  /** It is no run but a channel, open or closed. */
  channel: Channel | undefined;
  /** It is no run but an idempotency key, which is not free. */
  key: KeyState | undefined;
  /** Starts that wait for the run's end, the next first. */
  queue: Contender[];
  /** How starts before this generation ended, the latest last. */
  endings: Ending[];
  cancelRequested: boolean;
  /** Compensations that are owed, oldest first. */
  compensations: Compensation[];
  /** How the run ends, while its compensations are executed. */
  decided: DecidedEnd | undefined;
  /** Compensations of every generation that failed for good, oldest first. */
  deadLetters: DeadLetter[];
  /** Replays of dead letters that there ever were. */
  replays: number;
  nextOp: number;
  /** Sequence of the generation's RunStarted. */
  firstSeq: number;
  pending: Map<number, Operation>;
  result: Payload | undefined;
  failure: Failure | undefined;
  /** Why the run is blocked or was ended, for people. */
  note: string;
  signalIds: string[];
  /** JSON of what the code made searchable, by name. */
  readonly searchable: Map<string, string>;
  stream: StreamState;
  /** Channels that the generation reads, by address: it has all before these offsets. */
  readonly reads: Map<string, number>;
  /** Signals that came before the workflow asked for them, by name. */
  unclaimed: Map<string, number>;
  /** Calls of the generation's methods without an answer, by number, the oldest first. */
  readonly calls: Map<number, OpenCall>;
  /** Calls with an id that were answered, also of generations before, the latest last. */
  answeredCalls: AnsweredCall[];
  /** Number of the generation's latest call. */
  lastCall: number;
  /** Messages that their receivers have not confirmed, by receiver. */
  readonly outbox: Map<Partition, Pair>;
  /** How many those are. */
  unsettled: number;
  /** Next number of receivers with nothing in the outbox, the latest settled last. */
  readonly settledTo: Map<Partition, number>;
  /** Number of the first message to any other receiver. */
  numberFloor: number;
  messagesSent: number;
  /** Senders whose messages were taken, the latest last. */
  readonly inbox: Map<Partition, Sender>;
  /** Who is to be told how this generation ends. */
  readonly awaiters: Map<string, ResultWaiter>;
  /** How generations ended of which somebody is still to be told. */
  readonly owed: Map<number, Owed>;
  /** The guest has seen all events below this sequence. */
  deliveredSeq: number;
  /** One above the sequence of the last event that is for the guest. */
  deliverableEnd: number;
  /** Events below this sequence expired: the one of it says so. 0 = none did. */
  expiredEnd: number;
}

/** A run before its first event. */
export function emptyRun(run: RunId): Run {
  return {
    run,
    generation: 0,
    type: "",
    bundle: noBytes,
    status: RunStatus.unspecified,
    seed: 0,
    startedMs: 0,
    deadlineAtMs: 0,
    closedMs: 0,
    usedKeys: [],
    ticket: 0,
    startedBy: undefined,
    schedule: undefined,
    channel: undefined,
    key: undefined,
    queue: [],
    endings: [],
    cancelRequested: false,
    compensations: [],
    decided: undefined,
    deadLetters: [],
    replays: 0,
    nextOp: 1,
    firstSeq: 0,
    pending: new Map(),
    result: undefined,
    failure: undefined,
    note: "",
    signalIds: [],
    searchable: new Map(),
    stream: StreamState.unspecified,
    reads: new Map(),
    unclaimed: new Map(),
    calls: new Map(),
    answeredCalls: [],
    lastCall: 0,
    outbox: new Map(),
    unsettled: 0,
    settledTo: new Map(),
    numberFloor: 1,
    messagesSent: 0,
    inbox: new Map(),
    awaiters: new Map(),
    owed: new Map(),
    deliveredSeq: 0,
    deliverableEnd: 0,
    expiredEnd: 0,
  };
}

/** Records that the workflow issued an operation which is now open. What is left out is empty. */
export function openOperation(
  run: Run,
  at: { readonly seq: number; readonly timeMs: number },
  operation: Pick<Operation, "op" | "kind"> & Partial<Operation>,
): Operation {
  run.nextOp = operation.op + 1;
  const opened: Operation = {
    name: "",
    to: "",
    input: undefined,
    options: undefined,
    attempt: 0,
    delivery: 0,
    dueMs: 0,
    heartbeat: undefined,
    lastFailure: "",
    propagates: false,
    closePolicy: 0,
    of: 0,
    started: false,
    key: "",
    granted: false,
    ...operation,
    scheduledMs: at.timeMs,
    scheduledSeq: at.seq,
  };
  run.pending.set(operation.op, opened);
  return opened;
}

/** Its events are for code of a workflow's; schedules, channels and idempotency keys are carried on by Core alone. */
export const hasGuest = (run: Run) => run.schedule === undefined && run.channel === undefined && run.key === undefined;
/** It holds its name: it is under way, or its end is decided and comes after its compensations. */
export const isLive = (run: Run) => isOpen(run) || run.status === RunStatus.compensating;
/** Its end is not decided: its code may go on. */
export const isOpen = (run: Run) => run.status === RunStatus.running || run.status === RunStatus.blocked || run.status === RunStatus.paused;
export const isClosed = (run: Run) => run.status !== RunStatus.unspecified && !isLive(run);

/** The guest has seen everything that is for it. */
export const isSettled = (run: Run) => run.deliveredSeq >= run.deliverableEnd;

/** Replays of dead letters are numbered from here on: no run issues so many operations. */
export const firstReplayOp = 0x8000_0000;

export const isReplayOp = (op: number) => op >= firstReplayOp;

/** The generation by which an operation is fenced: a replay belongs to none. */
export const generationOf = (run: Run, op: number) => (isReplayOp(op) ? 0 : run.generation);

/** It is executed by workers: an activity, a compensation, the replay of one. */
export const isTask = ({ kind }: Pick<Operation, "kind">) =>
  kind === EventKind.activityScheduled || kind === EventKind.compensationStarted || kind === EventKind.deadLetterReplayed;

/** It waits for its idempotency key to grant it. */
export const isUngranted = ({ key, granted }: Operation) => key !== "" && !granted;

/** A task that may be offered or executed at `nowMs`, not waiting for its key or its next attempt. */
export const mayBeOffered = (o: Operation, nowMs: number) => isTask(o) && !isUngranted(o) && o.dueMs <= nowMs;

/**
 * When the run must be looked at again: 0 = as soon as a node has it, Infinity = only on a command.
 */
export function attentionMs(run: Run): number {
  if (run.outbox.size > 0) return 0;
  if (run.status === RunStatus.running && !isSettled(run)) return 0;
  // The next compensation, or the run's end, follows at once.
  if (run.status === RunStatus.compensating && !run.pending.has(run.compensations.at(-1)?.op ?? 0)) return 0;
  for (const o of run.pending.values()) if (mayBeOffered(o, 0)) return 0;
  return dueMs(run);
}

/** When the next of a run's own timers, or of a replay's, is due that is due after `afterMs`; infinity where none is. */
export function dueMs(run: Run, afterMs = 0): number {
  if (run.schedule !== undefined) return scheduleDueMs(run.schedule, run.pending.size);
  if (run.channel !== undefined) return channelDueMs(run.channel, run.outbox);
  if (run.key !== undefined) return keyDueMs(run.key);
  let due = Number.POSITIVE_INFINITY;
  const count = (atMs: number) => {
    if (atMs > afterMs && atMs < due) due = atMs;
  };
  if (isOpen(run)) count(run.deadlineAtMs);
  for (const { expiresAtMs } of run.queue) count(expiresAtMs);
  for (const o of run.pending.values()) {
    count(o.dueMs);
    const limit = o.options?.scheduleToCloseMs ?? 0;
    if (limit > 0) count(o.scheduledMs + limit);
  }
  return due;
}

/** When a key must be looked at: as it is to be forgotten; Infinity = it is held. */
export const keyDueMs = ({ forgetAtMs }: KeyState): number => forgetAtMs || Number.POSITIVE_INFINITY;

/** Whether the first instant that waits for earlier runs of the schedule need not wait any more, while so many are live. */
export function mayStartNext({ waiting: [first], config }: ScheduleState, live: number): boolean {
  if (first === undefined || live >= limits.scheduleLiveMax) return false;
  return first.atOnce || live === 0 || config?.policy?.overlap === OverlapPolicy.allowAll;
}

/** When a schedule of which so many runs are live must be looked at: 0 = at once, Infinity = when something happens. */
export function scheduleDueMs(schedule: ScheduleState, live: number): number {
  if (mayStartNext(schedule, live)) return 0;
  const { paused, next } = schedule;
  return paused || next === undefined || next.atMs === 0 ? Number.POSITIVE_INFINITY : next.dueMs;
}

/**
 * Bytes to keep for as long as the run lives. A small view would hold the whole message that it
 * arrived in, so it is copied out.
 */
export function kept(payload: Payload | undefined): Payload | undefined {
  if (payload === undefined) return undefined;
  const { data, ref } = payload;
  if (data.byteLength * 2 >= data.buffer.byteLength && ref === undefined) return payload;
  return { data: data.slice(), ref: ref === undefined ? undefined : { sha256: ref.sha256.slice(), size: ref.size } };
}
