/**
 * A channel's partition: a run without code, which keeps messages until its readers have them.
 *
 * Messages are numbered by offsets, over all generations of the name. A reader is a generation of a run; it says with
 * each read from where on it wants more, so that what it has is known from its own history, and a delivery that it never
 * used is made again. Without a reducer a message is kept until all readers have it; with one nothing is kept but what the
 * messages came to, for each reader since its last read.
 */
import { limits, type Partition } from "#core/base";
import {
  type ChannelConfig,
  type ChannelSending,
  EventKind,
  type InboxTaken,
  MessageKind,
  type MessagesAppended,
  type MessagesDelivered,
  type MessagesExpired,
  type Payload,
  Reducer,
  RunStatus,
} from "#proto";
import { blankConfig, type Channel, drop, type Reader, readerKey, trim, weightOf } from "./channel-state.ts";
import type { EventOf, RunEvent } from "./event.ts";
import { enqueue } from "./outbox.ts";
import { markAsker } from "./sender.ts";
import { type EventPlace, isLive, kept, type Run } from "./state.ts";
import { copyOf, count, emptyTally, join } from "./tally.ts";

export type ChannelEvent = EventOf<
  "channelOpened" | "channelChanged" | "messagesAppended" | "messagesDelivered" | "messagesExpired" | "channelClosed"
>;

/** Whether the event is one that only a channel has. */
export const isOfChannel = (event: RunEvent): event is ChannelEvent =>
  event.kind >= EventKind.channelOpened && event.kind <= EventKind.channelClosed;

export function applyChannel(run: Run, event: ChannelEvent, at: EventPlace): void {
  if (event.kind === EventKind.channelOpened) return applyOpened(run, event.body.generation, event.body.config ?? blankConfig, at);
  const { channel } = run;
  if (channel === undefined) return;
  switch (event.kind) {
    case EventKind.channelChanged:
      channel.config = event.body.config ?? blankConfig;
      return;
    case EventKind.messagesAppended:
      return applyAppended(run, channel, event.body, at.timeMs);
    case EventKind.messagesDelivered:
      return applyDelivered(run, channel, event.body, at.timeMs);
    case EventKind.messagesExpired:
      return applyExpired(channel, event.body);
    case EventKind.channelClosed:
      run.status = RunStatus.completed;
      run.closedMs = at.timeMs;
      run.note = event.body.reason;
  }
}

/** What readers did not take of the generation before is still there for them. */
function applyOpened(run: Run, generation: number, config: ChannelConfig, at: EventPlace): void {
  run.generation = generation;
  run.status = RunStatus.running;
  run.startedMs = at.timeMs;
  run.closedMs = 0;
  run.firstSeq = at.seq;
  run.note = "";
  const before = run.channel;
  const blank = { nextOffset: 0, keptFrom: 0, kept: [], keptBytes: 0, readers: new Map(), sendings: [], dropped: 0 };
  run.channel = { ...blank, ...before, config, total: emptyTally() };
}

function applyAppended(run: Run, channel: Channel, body: MessagesAppended, timeMs: number): void {
  markAsker(run, body);
  const { reducer } = channel.config;
  for (const message of body.message) {
    channel.nextOffset++;
    if (reducer === Reducer.none) {
      channel.kept.push({ payload: kept(message) as Payload, sentMs: timeMs });
      channel.keptBytes += weightOf(message);
      continue;
    }
    count(channel.total, reducer, message);
    for (const { since } of channel.readers.values()) count(since, reducer, message);
  }
  if (reducer !== Reducer.none) channel.keptFrom = channel.nextOffset;
  if (body.id === "") return;
  channel.sendings.push({ id: body.id, offset: body.offset, count: body.message.length, digest: digestOf(body.message) });
  if (channel.sendings.length > limits.sendingsKept) channel.sendings.shift();
}

/** Tells other messages under an id that was used, as far as 32 bits can. */
function digestOf(messages: readonly Payload[]): number {
  let sum = 0x811c9dc5;
  for (const { data, ref } of messages) {
    const bytes = ref?.sha256 ?? data;
    for (let i = 0; i < bytes.length; i++) sum = Math.imul(sum ^ (bytes[i] as number), 0x01000193);
    sum = Math.imul(sum ^ bytes.length, 0x01000193);
  }
  return sum >>> 0;
}

export const isSameSending = ({ count: counted, digest }: ChannelSending, messages: readonly Payload[]): boolean =>
  counted === messages.length && digest === digestOf(messages);

function applyDelivered(run: Run, { config, readers }: Channel, body: MessagesDelivered, timeMs: number): void {
  const { to, generation, op, offset, count: given, reduced, missed, closed } = body;
  const reader = readers.get(readerKey(to, generation));
  if (reader === undefined) return;
  reader.op = 0;
  reader.deliveredMs = timeMs;
  reader.deliveredCount = given;
  reader.deliveredEnd = offset + given;
  if (config.reducer !== Reducer.none) {
    join(reader.taken, config.reducer, reader.since);
    reader.since = emptyTally();
  }
  const message = { kind: MessageKind.delivered, op, generation, offset, count: given, reduced, missed, closed };
  enqueue(run, to as Partition, message);
}

function applyExpired(channel: Channel, { before, count: dropped }: MessagesExpired): void {
  drop(channel, before);
  channel.dropped += dropped;
}

/** A reader asks for more, asks no more, or leaves: facts beside the history, since its own has them. */
export function applyReaderFact(run: Run, fact: InboxTaken): void {
  const { channel } = run;
  if (channel === undefined) return;
  const { sender, generation, kind, op, offset } = fact;
  const key = readerKey(sender, generation);
  if (kind === MessageKind.read) return applyRead(channel, key, fact);
  const reader = channel.readers.get(key);
  if (reader === undefined) return;
  if (kind === MessageKind.readCancelled) {
    if (reader.op === op) reader.op = 0;
    return;
  }
  if (kind !== MessageKind.leave) return;
  reader.offset = Math.max(reader.offset, offset);
  trim(channel);
  channel.readers.delete(key);
}

function applyRead(channel: Channel, key: string, fact: InboxTaken): void {
  const { sender, generation, op, offset, count: messagesMax, lingerMs } = fact;
  // One that has read what a restore lost goes on with what comes now.
  const from = Math.min(offset, channel.nextOffset);
  const reader = channel.readers.get(key) ?? newReader(channel, sender as Partition, generation, from);
  channel.readers.set(key, reader);
  if (from >= reader.deliveredEnd) reader.taken = emptyTally();
  else {
    // It did not use what it was given: that is part of what it is given next.
    join(reader.taken, channel.config.reducer, reader.since);
    reader.since = reader.taken;
    reader.taken = emptyTally();
  }
  if (from > 0) reader.offset = from;
  reader.op = op;
  reader.messagesMax = messagesMax;
  reader.lingerMs = lingerMs;
  trim(channel);
}

/** One that has read nothing so far begins with what there is; where the channel reduces, with what all came to. */
function newReader(channel: Channel, partition: Partition, generation: number, offset: number): Reader {
  const from = channel.config.reducer === Reducer.none ? Math.max(offset, offset === 0 ? channel.keptFrom : 0) : offset;
  return {
    ...{ partition, generation, offset: from, op: 0, messagesMax: 0, lingerMs: 0 },
    ...{ deliveredMs: 0, deliveredCount: 0, deliveredEnd: from, taken: emptyTally(), since: copyOf(channel.total) },
  };
}

export const isChannelOpen = (run: Run): boolean => run.channel !== undefined && isLive(run);
