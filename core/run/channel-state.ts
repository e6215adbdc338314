/**
 * What a channel's partition has beside what a run's has: the messages that it keeps, who reads them and how far, and when
 * something of that is due.
 */
import { limits, noBytes, type Partition } from "#core/base";
import {
  type ChannelConfig,
  type ChannelSending,
  type ChannelState,
  encodeMessageBatch,
  type Message,
  MessageKind,
  type Payload,
  Reducer,
  toBytes,
} from "#proto";
import { fromReduced, type Tally, toReduced } from "./tally.ts";

/** A generation of a run that reads. */
export interface Reader {
  readonly partition: Partition;
  readonly generation: number;
  /** It has all before this. */
  offset: number;
  /** Its read that waits; 0 = none does. */
  op: number;
  messagesMax: number;
  lingerMs: number;
  /** The latest delivery. */
  deliveredMs: number;
  deliveredCount: number;
  deliveredEnd: number;
  /** Where the channel reduces: what the latest delivery had, for as long as the reader did not say that it has it, and what came since. */
  taken: Tally;
  since: Tally;
}

interface Kept {
  readonly payload: Payload;
  readonly sentMs: number;
}

export interface Channel {
  config: ChannelConfig;
  nextOffset: number;
  /** Offset of the first of `kept`. */
  keptFrom: number;
  readonly kept: Kept[];
  keptBytes: number;
  readonly readers: Map<string, Reader>;
  sendings: ChannelSending[];
  /** Of all messages since it was opened, where it reduces. */
  total: Tally;
  dropped: number;
}

export const blankConfig: ChannelConfig = { reducer: Reducer.none, expireMs: 0, messagesMax: 0, bytesMax: 0, note: "" };

export const readerKey = (partition: string, generation: number) => `${partition}#${generation}`;

/** Bytes that a payload takes where it is kept. */
export const weightOf = ({ data, ref }: Payload): number => data.length + (ref === undefined ? 0 : 48);

/** Messages before that offset are kept no more. */
export function drop(channel: Channel, before: number): void {
  const gone = channel.kept.splice(0, Math.max(0, before - channel.keptFrom));
  for (const { payload } of gone) channel.keptBytes -= weightOf(payload);
  channel.keptFrom += gone.length;
}

/** What every reader has is not kept. */
export function trim(channel: Channel): void {
  let before = channel.nextOffset;
  for (const { offset } of channel.readers.values()) before = Math.min(before, offset);
  drop(channel, before);
}

/** Whether that operation of a run waits for messages. */
export const isReading = ({ readers }: Channel, { partition, generation, op }: { partition: string; generation: number; op: number }) =>
  readers.get(readerKey(partition, generation))?.op === op;

/** What a delivery holds as it travels: the messages themselves, where they are kept each. */
export function withBatch(channel: Channel | undefined, message: Message): Message {
  if (channel === undefined || channel.config.reducer !== Reducer.none || message.count === 0) return message;
  const from = message.offset - channel.keptFrom;
  const batch = from < 0 ? [] : channel.kept.slice(from, from + message.count).map(({ payload }) => payload);
  const large = batch.filter(({ ref }) => ref !== undefined);
  return { ...message, payload: { data: toBytes(encodeMessageBatch, { message: batch }), ref: undefined }, large };
}

/** When a reader that waits is given what there is; infinity = when there is something. */
export function deliveryDueMs(channel: Channel, reader: Reader): number {
  if (reader.op === 0) return Number.POSITIVE_INFINITY;
  const there = availableTo(channel, reader);
  if (there === 0) return Number.POSITIVE_INFINITY;
  const { lingerMs, deliveredMs, deliveredCount, messagesMax } = reader;
  if (lingerMs === 0 || deliveredCount < limits.lingerFromCount) return 0;
  // What messages come to is never full.
  if (channel.config.reducer !== Reducer.none) return deliveredMs + lingerMs;
  // Where many come, twice as many as last time, so that a flood becomes few deliveries.
  const enough = Math.min(messagesMax || limits.batchMessagesMax, deliveredCount * 2);
  return channel.keptBytes >= limits.batchBytesMax || there >= enough ? 0 : deliveredMs + lingerMs;
}

/** Messages that the reader does not have. */
export function availableTo(channel: Channel, reader: Reader): number {
  return channel.config.reducer === Reducer.none ? channel.nextOffset - Math.max(reader.offset, channel.keptFrom) : reader.since.count;
}

/** Offset of the first message that is under way to a reader: what is behind it stays until the reader has it. */
export function inFlightFrom(outbox: Outbox): number {
  let from = Number.POSITIVE_INFINITY;
  for (const { messages } of outbox.values())
    for (const { kind, count: given, offset } of messages) if (kind === MessageKind.delivered && given > 0) from = Math.min(from, offset);
  return from;
}

type Outbox = ReadonlyMap<Partition, { readonly messages: readonly Message[] }>;

/** When the first message that is kept is dropped; infinity = never, or when it is not under way any more. */
export function expiryMs({ config, keptFrom, kept: [first] }: Channel, outbox: Outbox): number {
  const mayGo = first !== undefined && config.expireMs > 0 && inFlightFrom(outbox) > keptFrom;
  return mayGo ? first.sentMs + config.expireMs : Number.POSITIVE_INFINITY;
}

/** When a channel must be looked at: 0 = at once, Infinity = when something happens. */
export function channelDueMs(channel: Channel, outbox: Outbox): number {
  let due = expiryMs(channel, outbox);
  for (const reader of channel.readers.values()) due = Math.min(due, deliveryDueMs(channel, reader));
  return due;
}

export function saveChannel(channel: Channel | undefined): ChannelState | undefined {
  if (channel === undefined) return undefined;
  const { config, nextOffset, keptFrom, keptBytes, sendings, total, dropped } = channel;
  const { reducer } = config;
  const reader = [...channel.readers.values()].map((one) => ({
    ...one,
    taken: toReduced(one.taken, reducer),
    since: toReduced(one.since, reducer),
  }));
  return {
    config,
    nextOffset,
    keptFrom,
    kept: channel.kept as ChannelState["kept"],
    keptBytes,
    reader,
    sending: sendings,
    total: toReduced(total, reducer),
    dropped,
  };
}

export function loadChannel(saved: ChannelState | undefined): Channel | undefined {
  if (saved === undefined) return undefined;
  const { config = blankConfig, nextOffset, keptFrom, keptBytes, dropped } = saved;
  const { reducer } = config;
  const readers = saved.reader.map((one): [string, Reader] => [
    readerKey(one.partition, one.generation),
    { ...one, partition: one.partition as Partition, taken: fromReduced(one.taken, reducer), since: fromReduced(one.since, reducer) },
  ]);
  const messages = saved.kept.map(({ payload, sentMs }) => ({ payload: payload ?? { data: noBytes, ref: undefined }, sentMs }));
  return {
    config,
    nextOffset,
    keptFrom,
    kept: messages,
    keptBytes,
    readers: new Map(readers),
    sendings: saved.sending,
    total: fromReduced(saved.total, reducer),
    dropped,
  };
}
