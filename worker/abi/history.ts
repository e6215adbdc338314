/**
 * What a run's events mean for its guest: some are told to it (deliveries), some record what it
 * asked for (recorded operations), and the rest is between Core and its operators.
 */
import { noBytes } from "#core/base";
import {
  type ActivityScheduled,
  type ChannelReceived,
  type DurableRef,
  decodeActivityCancelled,
  decodeActivityCompleted,
  decodeActivityFailed,
  decodeActivityScheduled,
  decodeCancelRequested,
  decodeCancelSent,
  decodeChannelReceived,
  decodeChunkYielded,
  decodeCompensationRegistered,
  decodeCompensationWithdrawn,
  decodeMethodAnswered,
  decodeMethodCallCancelled,
  decodeMethodCalled,
  decodeMethodCallSent,
  decodeResultAwaited,
  decodeRunCancelled,
  decodeRunCompleted,
  decodeRunFailed,
  decodeRunStarted,
  decodeSearchableSet,
  decodeSignalAwaited,
  decodeSignalReceived,
  decodeSignalSent,
  decodeTimerFired,
  decodeTimerStarted,
  decodeUnwindStarted,
  EventKind,
  type Failure,
  fromBytes,
  type Payload,
  Reader,
  type RunStarted,
  RunStatus,
  type UnwindStarted,
} from "#proto";
import type { Delivery } from "../host/guest-host.ts";
import { ReadParts, type RecordedUse, recordedUse } from "./channel.ts";
import { type RecordedSpawn, recordedSpawn } from "./child.ts";
import { type Settlement, settlementOf } from "./settlement.ts";

/** What the guest asked for at the time, as its history has it. */
export type RecordedOp = { readonly seq: number } & (
  | { readonly kind: "activity"; readonly op: number; readonly name: string; readonly input: ActivityScheduled["input"] }
  | { readonly kind: "timer"; readonly op: number; readonly durationMs: number }
  | { readonly kind: "await-signal"; readonly op: number; readonly name: string }
  | {
      readonly kind: "send-signal";
      readonly op: number;
      readonly to: string;
      readonly name: string;
      readonly payload: Payload | undefined;
      readonly child: number;
    }
  | RecordedUse
  | { readonly kind: "set-searchable"; readonly op: number; readonly name: string; readonly value: string }
  | { readonly kind: "yield-chunk"; readonly op: number; readonly chunk: Payload | undefined }
  | { readonly kind: "await-result"; readonly op: number; readonly to: string }
  | {
      readonly kind: "call-method";
      readonly op: number;
      readonly to: string;
      readonly name: string;
      readonly input: Payload | undefined;
      readonly propagates: boolean;
    }
  | {
      readonly kind: "answer-call";
      readonly call: number;
      readonly result: Payload | undefined;
      readonly failure: Failure | undefined;
      readonly rejected: boolean;
    }
  | ({ readonly kind: "spawn" } & RecordedSpawn)
  | { readonly kind: "cancel-run"; readonly op: number; readonly to: string; readonly child: number; readonly reason: string }
  | { readonly kind: "cancel-op"; readonly op: number }
  | {
      readonly kind: "compensate";
      readonly op: number;
      readonly name: string;
      readonly input: Payload | undefined;
      readonly trigger: number;
    }
  | { readonly kind: "withdraw-compensation"; readonly op: number }
  | { readonly kind: "complete"; readonly result: Payload | undefined }
  | { readonly kind: "fail"; readonly failure: Failure | undefined }
  | { readonly kind: "cancelled"; readonly reason: string }
);

/** A payload that is still in storage: `put` sets its bytes where they are wanted. */
export interface MissingBlob {
  readonly ref: DurableRef;
  readonly put: (bytes: Uint8Array) => void;
}

export interface History {
  /** Complete once all of `missing` are put. */
  readonly deliveries: Delivery[];
  readonly recorded: RecordedOp[];
  readonly missing: MissingBlob[];
  /** How many of the deliveries come before the last recorded operation: the guest was told those once. */
  toldCount: number;
  /** The first event, where it is among them. */
  started: RunStarted | undefined;
}

const seqTag = 16;
const timeTag = 24;
const kindTag = 40;
const payloadTag = 66;

/** What a guest's side needs of an event. */
interface GuestEvent {
  seq: number;
  timeMs: number;
  kind: number;
  payload: Uint8Array;
}

type Mutable<T> = { -readonly [K in keyof T]: T[K] };

/** Reads canonical event bytes in log order. Throws `CodecError`. */
export function readHistory(events: readonly Uint8Array[]): History {
  const history: History = { deliveries: [], recorded: [], missing: [], toldCount: 0, started: undefined };
  for (const bytes of events) {
    const event = readEvent(bytes);
    // A chunk is both: what the guest asked for, and then what it is told of that.
    if (event.kind === EventKind.chunkYielded) addRecorded(history, event);
    if (!addDelivery(history, event)) addRecorded(history, event);
  }
  return history;
}

/** Steps over what stands for others: partition, identity and hashes cost more to read than all the rest. */
function readEvent(bytes: Uint8Array): GuestEvent {
  const event: GuestEvent = { seq: 0, timeMs: 0, kind: 0, payload: noBytes };
  const reader = new Reader(bytes);
  const end = bytes.length;
  reader.enter();
  while (reader.at < end) {
    const tag = reader.varint();
    if (tag === seqTag) event.seq = reader.varint();
    else if (tag === timeTag) event.timeMs = reader.varint();
    else if (tag === kindTag) event.kind = reader.varint();
    else if (tag === payloadTag) event.payload = reader.view(end);
    else reader.skip(tag, end);
  }
  reader.leave(end);
  return event;
}

function addDelivery(history: History, event: GuestEvent): boolean {
  const nowMs = event.timeMs;
  const body = event.payload;
  switch (event.kind) {
    case EventKind.runStarted: {
      const started = fromBytes(decodeRunStarted, body);
      history.started = started;
      const delivery = { kind: "start" as const, nowMs, input: noBytes as Uint8Array };
      take(history, started.input, (input) => {
        delivery.input = input;
      });
      history.deliveries.push(delivery);
      return true;
    }
    case EventKind.activityCompleted: {
      const { op, result } = fromBytes(decodeActivityCompleted, body);
      resolve(history, nowMs, op, result);
      return true;
    }
    case EventKind.timerFired:
      resolve(history, nowMs, fromBytes(decodeTimerFired, body).op, undefined);
      return true;
    case EventKind.activityFailed: {
      const { op, attempt, failure } = fromBytes(decodeActivityFailed, body);
      history.deliveries.push({ kind: "reject", nowMs, op, failure: failure ?? {}, attempts: attempt });
      takeDetails(history, failure);
      return true;
    }
    case EventKind.signalReceived: {
      const { name, payload } = fromBytes(decodeSignalReceived, body);
      const delivery = { kind: "signal" as const, nowMs, name, value: noBytes as Uint8Array };
      take(history, payload, (value) => {
        delivery.value = value;
      });
      history.deliveries.push(delivery);
      return true;
    }
    case EventKind.cancelRequested:
      history.deliveries.push({ kind: "cancel", nowMs, reason: fromBytes(decodeCancelRequested, body).reason });
      return true;
    default: {
      const said = settlementOf(event.kind, body);
      if (said === undefined) return addCallDelivery(history, event);
      settle(history, nowMs, said.op, said);
      return true;
    }
  }
}

function addCallDelivery(history: History, event: GuestEvent): boolean {
  const { timeMs: nowMs, payload: body } = event;
  switch (event.kind) {
    case EventKind.methodCalled: {
      const { call, name, input } = fromBytes(decodeMethodCalled, body);
      const delivery = { kind: "call" as const, nowMs, call, name, input: noBytes as Uint8Array };
      take(history, input, (bytes) => {
        delivery.input = bytes;
      });
      history.deliveries.push(delivery);
      return true;
    }
    case EventKind.channelReceived:
      addRead(history, nowMs, fromBytes(decodeChannelReceived, body));
      return true;
    case EventKind.methodCallCancelled: {
      const { call, reason } = fromBytes(decodeMethodCallCancelled, body);
      history.deliveries.push({ kind: "cancel-call", nowMs, call, reason });
      return true;
    }
    default:
      return false;
  }
}

function addRead(history: History, nowMs: number, received: ChannelReceived): void {
  const { op, failure, batch, large } = received;
  if (failure !== undefined) return settle(history, nowMs, op, { result: undefined, failure });
  const delivery = { kind: "resolve" as const, nowMs, op, value: noBytes as Uint8Array };
  history.deliveries.push(delivery);
  const parts = new ReadParts(received, (value) => {
    delivery.value = value;
  });
  take(history, batch, (bytes) => parts.putBatch(bytes));
  for (const [at, payload] of large.entries()) take(history, payload, (bytes) => parts.putLarge(at, bytes));
}

function resolve(history: History, nowMs: number, op: number, payload: Payload | undefined): void {
  const delivery = { kind: "resolve" as const, nowMs, op, value: noBytes as Uint8Array };
  take(history, payload, (value) => {
    delivery.value = value;
  });
  history.deliveries.push(delivery);
}

function settle(history: History, nowMs: number, op: number, { result, failure }: Omit<Settlement, "op">): void {
  if (failure === undefined) return resolve(history, nowMs, op, result);
  history.deliveries.push({ kind: "reject", nowMs, op, failure });
  takeDetails(history, failure);
}

/** Puts the payload's bytes now, or notes that they have to be fetched. */
function take(history: History, payload: Payload | undefined, put: (bytes: Uint8Array) => void): void {
  if (payload === undefined) return;
  if (payload.ref === undefined) put(payload.data);
  else history.missing.push({ ref: payload.ref, put });
}

function takeDetails(history: History, failure: Failure | undefined): void {
  for (let at = failure; at !== undefined; at = at.cause) {
    const details: Mutable<Payload> | undefined = at.details;
    if (details?.ref === undefined) continue;
    take(history, details, (bytes) => {
      details.data = bytes;
      details.ref = undefined;
    });
  }
}

function addRecorded(history: History, event: GuestEvent): void {
  const op = recordedOp(event);
  if (op === undefined) return;
  history.recorded.push(op);
  history.toldCount = history.deliveries.length;
}

/** Marks the first deliveries as repetitions, so that the guest does not write its log lines again. */
export function markReplay(history: History, count: number): void {
  for (const delivery of history.deliveries.slice(0, count) as { replay?: boolean }[]) delivery.replay = true;
}

function decidedEnd(seq: number, { status, result, failure, reason }: UnwindStarted): RecordedOp | undefined {
  if (status === RunStatus.completed) return { seq, kind: "complete", result };
  if (status === RunStatus.failed) return { seq, kind: "fail", failure };
  return status === RunStatus.cancelled ? { seq, kind: "cancelled", reason } : undefined;
}

/** Undefined for events that the guest neither asked for nor is told, those of later versions included. */
function recordedOp(event: GuestEvent): RecordedOp | undefined {
  const { seq, payload: body } = event;
  switch (event.kind) {
    case EventKind.activityScheduled: {
      const { op, name, input } = fromBytes(decodeActivityScheduled, body);
      return { seq, kind: "activity", op, name, input };
    }
    case EventKind.timerStarted: {
      const { op, durationMs } = fromBytes(decodeTimerStarted, body);
      return { seq, kind: "timer", op, durationMs };
    }
    case EventKind.signalAwaited: {
      const { op, name } = fromBytes(decodeSignalAwaited, body);
      return { seq, kind: "await-signal", op, name };
    }
    case EventKind.signalSent: {
      const { op, to, name, payload, child } = fromBytes(decodeSignalSent, body);
      return { seq, kind: "send-signal", op, to, name, payload, child };
    }
    case EventKind.chunkYielded:
      return { seq, kind: "yield-chunk", ...fromBytes(decodeChunkYielded, body) };
    case EventKind.resultAwaited: {
      const { op, to } = fromBytes(decodeResultAwaited, body);
      return { seq, kind: "await-result", op, to };
    }
    case EventKind.methodCallSent: {
      const { op, to, name, input, propagates } = fromBytes(decodeMethodCallSent, body);
      return { seq, kind: "call-method", op, to, name, input, propagates };
    }
    case EventKind.methodAnswered: {
      const { call, result, failure, rejected } = fromBytes(decodeMethodAnswered, body);
      return { seq, kind: "answer-call", call, result, failure, rejected };
    }
    case EventKind.childSpawned:
      return { seq, kind: "spawn", ...recordedSpawn(body) };
    case EventKind.cancelSent: {
      const { op, to, child, reason } = fromBytes(decodeCancelSent, body);
      return { seq, kind: "cancel-run", op, to, child, reason };
    }
    case EventKind.searchableSet: {
      const { op, name, value } = fromBytes(decodeSearchableSet, body);
      return { seq, kind: "set-searchable", op, name, value };
    }
    // Those that withdraw an operation begin alike.
    case EventKind.activityCancelled:
    case EventKind.timerCancelled:
    case EventKind.signalWaitCancelled:
    case EventKind.signalSendCancelled:
    case EventKind.cancelSendCancelled:
    case EventKind.resultWaitCancelled:
    case EventKind.channelSendCancelled:
    case EventKind.channelWaitCancelled:
    case EventKind.methodCallWithdrawn:
      return { seq, kind: "cancel-op", op: fromBytes(decodeActivityCancelled, body).op };
    case EventKind.compensationRegistered: {
      const { op, name, input, trigger } = fromBytes(decodeCompensationRegistered, body);
      return { seq, kind: "compensate", op, name, input, trigger };
    }
    case EventKind.compensationWithdrawn:
      return { seq, kind: "withdraw-compensation", op: fromBytes(decodeCompensationWithdrawn, body).op };
    default: {
      const use = recordedUse(event.kind, body);
      return use === undefined ? recordedEnd(event) : { seq, ...use };
    }
  }
}

function recordedEnd({ seq, kind, payload: body }: GuestEvent): RecordedOp | undefined {
  switch (kind) {
    // The event that ends the run says the same again, later.
    case EventKind.unwindStarted:
      return decidedEnd(seq, fromBytes(decodeUnwindStarted, body));
    case EventKind.runCompleted:
      return { seq, kind: "complete", result: fromBytes(decodeRunCompleted, body).result };
    case EventKind.runFailed:
      return { seq, kind: "fail", failure: fromBytes(decodeRunFailed, body).failure };
    case EventKind.runCancelled:
      return { seq, kind: "cancelled", reason: fromBytes(decodeRunCancelled, body).reason };
    default:
      return undefined;
  }
}
