/** Operations on other runs: signals sent to them, waits for their results. */
import type { Partition } from "#core/base";
import {
  EventKind,
  type Failure,
  type Message,
  MessageKind,
  type Payload,
  type ResultAwaited,
  type ResultWaitCancelled,
  type SignalSent,
} from "#proto";
import { channelOf, isChannelUse, readRefused } from "./channel-use.ts";
import { childLost, startRefused } from "./child.ts";
import type { EventOf, RunEvent } from "./event.ts";
import { claimRefused } from "./idempotency.ts";
import { enqueue, nextNumber, partitionOf } from "./outbox.ts";
import { refusalFailure } from "./refusal.ts";
import { callRefused, cycleFailure, cycleOf, pathOf } from "./remote-call.ts";
import { closeOperation } from "./sender.ts";
import { isOpen, kept, type Operation, openOperation, type Run } from "./state.ts";

export interface SendRequest {
  readonly op: number;
  /** `namespace:instance`. */
  readonly to: string;
  readonly name: string;
  readonly payload: Payload | undefined;
  /** For the run that this operation spawned; 0 = for the newest of its name. */
  readonly child: number;
}

export function decideSendSignal(run: Run, { op, to, name, payload, child }: SendRequest): RunEvent {
  return { kind: EventKind.signalSent, body: { op, to, name, payload, child, number: nextNumber(run, partitionOf(to)) } };
}

/** `inCall`: number of the own call whose code waits; 0 = the workflow's own does. Two events where the wait fails at once. */
export function decideAwaitResult(run: Run, { op, to, inCall }: { op: number; to: string; inCall: number }): RunEvent[] {
  const cycle = cycleOf(pathOf(run, inCall), to);
  if (cycle === undefined) return [{ kind: EventKind.resultAwaited, body: { op, to, number: nextNumber(run, partitionOf(to)) } }];
  const failure = cycleFailure(`Cannot wait for ${to}: the wait`, cycle);
  return [{ kind: EventKind.resultAwaited, body: { op, to, number: 0 } }, refused({ op }, partitionOf(to), failure)];
}

export function decideWaitCancelled(run: Run, { op, to }: Operation): RunEvent {
  return { kind: EventKind.resultWaitCancelled, body: { op, to, number: nextNumber(run, partitionOf(to)) } };
}

/** The partition that the operation is about. */
export const receiverOf = (o: Operation): Partition => (isChannelUse(o) ? channelOf(o.to) : partitionOf(o.to));

/** What the run's code is to be told once a message was taken; undefined = nothing. */
export function decideSettled(run: Run, to: Partition, message: Message, refusal: string | undefined): RunEvent | undefined {
  if (!isOpen(run) || message.generation !== run.generation) return undefined;
  const o = run.pending.get(message.op);
  if (o === undefined) return undefined;
  if (o.key === to) return refusal === undefined || message.kind !== MessageKind.claim ? undefined : claimRefused(o, refusal);
  if (receiverOf(o) !== to) return undefined;
  const failure = refusal === undefined ? undefined : refusalFailure(message.kind as MessageKind, o.to, refusal);
  if (message.kind === MessageKind.signal && o.kind === EventKind.signalSent) {
    return { kind: EventKind.signalSettled, body: { op: o.op, failure } };
  }
  if (message.kind === MessageKind.publish && o.kind === EventKind.channelSent)
    return { kind: EventKind.channelSendSettled, body: { op: o.op, failure } };
  if (message.kind === MessageKind.read && o.kind === EventKind.channelAwaited && failure !== undefined) return readRefused(o, to, failure);
  if (message.kind === MessageKind.cancel && o.kind === EventKind.cancelSent)
    return { kind: EventKind.cancelSettled, body: { op: o.op, failure } };
  if (message.kind === MessageKind.start && o.kind === EventKind.childSpawned && failure !== undefined) return startRefused(o, to, failure);
  if (message.kind === MessageKind.call && o.kind === EventKind.methodCallSent && failure !== undefined) return callRefused(o, to, failure);
  if (message.kind === MessageKind.wait && o.kind === EventKind.resultAwaited && failure !== undefined) return refused(o, to, failure);
  return undefined;
}

/** A wait that the receiver will not answer: why is told to the run's code. */
export function decideWaitRefused(o: Operation, to: Partition, refusal: string): RunEvent {
  const failure = refusalFailure(MessageKind.wait, o.to, refusal);
  return o.kind === EventKind.childSpawned ? childLost(o, to, failure) : refused(o, to, failure);
}

function refused({ op }: Pick<Operation, "op">, from: Partition, failure: Failure): RunEvent {
  return { kind: EventKind.resultReceived, body: { op, from, number: 0, generation: 0, status: 0, result: undefined, failure } };
}

type RemoteEvent = EventOf<"signalSent" | "resultAwaited" | "resultReceived" | "resultWaitCancelled">;

export function applyToRemote(run: Run, event: RemoteEvent, at: { seq: number; timeMs: number }): void {
  switch (event.kind) {
    case EventKind.signalSent:
      return applySignalSent(run, event.body, at);
    case EventKind.resultAwaited:
      return applyResultAwaited(run, event.body, at);
    case EventKind.resultReceived:
      return closeOperation(run, event.body);
    case EventKind.resultWaitCancelled:
      return applyWaitCancelled(run, event.body);
  }
}

function applySignalSent(run: Run, body: SignalSent, at: { seq: number; timeMs: number }): void {
  const { op, to, name, child } = body;
  openOperation(run, at, { op, kind: EventKind.signalSent, name, to });
  const { generation } = run;
  enqueue(run, partitionOf(to), { kind: MessageKind.signal, op, generation, name, payload: kept(body.payload), child });
}

function applyResultAwaited(run: Run, { op, to, number }: ResultAwaited, at: { seq: number; timeMs: number }): void {
  openOperation(run, at, { op, kind: EventKind.resultAwaited, to });
  if (number === 0) return;
  enqueue(run, partitionOf(to), { kind: MessageKind.wait, op, generation: run.generation });
}

function applyWaitCancelled(run: Run, { op, to }: ResultWaitCancelled): void {
  run.pending.delete(op);
  cancelWait(run, op, to);
}

/** The run has ended: nobody is to keep its waits. */
export function cancelWaits(run: Run): void {
  for (const o of run.pending.values()) if (o.kind === EventKind.resultAwaited) cancelWait(run, o.op, o.to);
}

function cancelWait(run: Run, op: number, to: string): void {
  enqueue(run, partitionOf(to), { kind: MessageKind.waitCancelled, op, generation: run.generation });
}
