/**
 * What a run does with channels: it sends to them, and reads them. Its history has the offsets of what it read and
 * the hash of it, and says from where on it reads next.
 */
import { channelPartition, type Partition, type RunId, runOf } from "#core/base";
import {
  type ChannelAwaited,
  type ChannelReceived,
  type ChannelSent,
  EventKind,
  type Failure,
  type Message,
  MessageKind,
  type Payload,
} from "#proto";
import type { EventOf, RunEvent } from "./event.ts";
import { failureOf } from "./failure.ts";
import { enqueue, nextNumber } from "./outbox.ts";
import { closeOperation } from "./sender.ts";
import { type EventPlace, kept, type Operation, openOperation, type Run } from "./state.ts";

/** Of a channel by its address, `namespace:name`. */
export const channelOf = (address: string): Partition => channelPartition(address as RunId);

export const isChannelUse = ({ kind }: Pick<Operation, "kind">) => kind === EventKind.channelSent || kind === EventKind.channelAwaited;

export interface ReadRequest {
  readonly op: number;
  /** `namespace:name`. */
  readonly to: string;
  readonly messagesMax: number;
  readonly lingerMs: number;
}

export function decideSendChannel(run: Run, { op, to, payload }: { op: number; to: string; payload: Payload | undefined }): RunEvent {
  return { kind: EventKind.channelSent, body: { op, to, payload, number: nextNumber(run, channelOf(to)) } };
}

/** One event, or two where the read fails at once. */
export function decideRead(run: Run, { op, to, messagesMax, lingerMs }: ReadRequest): RunEvent[] {
  const offset = run.reads.get(to) ?? 0;
  const isReading = [...run.pending.values()].some((o) => o.kind === EventKind.channelAwaited && o.to === to);
  const number = isReading ? 0 : nextNumber(run, channelOf(to));
  const awaited: RunEvent = { kind: EventKind.channelAwaited, body: { op, to, offset, messagesMax, lingerMs, number } };
  if (!isReading) return [awaited];
  const message = `Cannot read channel ${to}: another read of it by this run has not ended`;
  return [awaited, readRefused({ op }, channelOf(to), failureOf("ChannelBusyError", message, { nonRetryable: true }))];
}

export function readRefused({ op }: Pick<Operation, "op">, from: Partition, failure: Failure): RunEvent {
  const nothing = { offset: 0, count: 0, batch: undefined, large: [], reduced: undefined, missed: 0, closed: false };
  return { kind: EventKind.channelReceived, body: { op, from, number: 0, ...nothing, failure } };
}

/** What a read is given: of an operation that waits for it. */
export function received(from: Partition, message: Message): RunEvent {
  const { op, number, offset, count, payload: batch, large, reduced, missed, closed } = message;
  return {
    kind: EventKind.channelReceived,
    body: { op, from, number, offset, count, batch, large, reduced, missed, closed, failure: undefined },
  };
}

export function decideReadCancelled(run: Run, { op, to }: Operation): RunEvent {
  return { kind: EventKind.channelWaitCancelled, body: { op, to, number: nextNumber(run, channelOf(to)) } };
}

type UseEvent = EventOf<
  "channelSent" | "channelSendSettled" | "channelSendCancelled" | "channelAwaited" | "channelReceived" | "channelWaitCancelled"
>;

export function applyToChannelUse(run: Run, event: UseEvent, at: EventPlace): void {
  switch (event.kind) {
    case EventKind.channelSent:
      return applySent(run, event.body, at);
    case EventKind.channelSendSettled:
    case EventKind.channelSendCancelled:
      run.pending.delete(event.body.op);
      return;
    case EventKind.channelAwaited:
      return applyAwaited(run, event.body, at);
    case EventKind.channelReceived:
      return applyReceived(run, event.body);
    case EventKind.channelWaitCancelled: {
      const { op, to } = event.body;
      run.pending.delete(op);
      enqueue(run, channelOf(to), { kind: MessageKind.readCancelled, op, generation: run.generation });
    }
  }
}

function applySent(run: Run, { op, to, payload }: ChannelSent, at: EventPlace): void {
  openOperation(run, at, { op, kind: EventKind.channelSent, to });
  enqueue(run, channelOf(to), { kind: MessageKind.publish, op, generation: run.generation, payload: kept(payload) });
}

function applyAwaited(run: Run, { op, to, offset, messagesMax, lingerMs, number }: ChannelAwaited, at: EventPlace): void {
  openOperation(run, at, { op, kind: EventKind.channelAwaited, to });
  if (number === 0) return;
  if (!run.reads.has(to)) run.reads.set(to, offset);
  enqueue(run, channelOf(to), { kind: MessageKind.read, op, generation: run.generation, offset, count: messagesMax, lingerMs });
}

function applyReceived(run: Run, body: ChannelReceived): void {
  closeOperation(run, body);
  if (body.failure === undefined) run.reads.set(runOf(body.from as Partition), body.offset + body.count);
}

/** The run has ended: its channels keep nothing for it any more. */
export function leaveChannels(run: Run): void {
  for (const [to, offset] of run.reads) enqueue(run, channelOf(to), { kind: MessageKind.leave, op: 0, generation: run.generation, offset });
  run.reads.clear();
}
