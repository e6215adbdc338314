/**
 * What must hold of channels, by the events of both sides: each message has one offset, without gaps; a sending that comes again
 * is one sending; a reader is given what the channel has at the offsets that it is told, each once and in order; nothing is
 * dropped but what was there too long.
 */
import { decodeMessageBatch, fromBytes, EventKind as Kind, type MessageBatch, Reducer } from "#proto";
import type { PartitionJournal } from "../journal.ts";
import type { JournalEvent } from "../model.ts";
import { claim } from "../violation.ts";

const rule = "channelMessagesOnce";

interface Sent {
  readonly text: string;
  readonly timeMs: number;
}

interface ChannelModel {
  reducer: number;
  expireMs: number;
  readonly sent: Sent[];
  readonly ids: Set<string>;
  /** Messages before this were dropped. */
  droppedBefore: number;
}

export class Channels {
  private readonly channels = new Map<string, ChannelModel>();
  /** How far a generation of a run has read a channel. */
  private readonly places = new Map<string, number>();
  /** What deliveries were made of, by reader, generation and operation. */
  private readonly given = new Map<string, { readonly offset: number; readonly count: number; readonly value: string }>();
  /** How often things happened. */
  readonly counts = { sent: 0, read: 0 };

  /** `at` is as of before the event. */
  event(at: PartitionJournal, e: JournalEvent): void {
    const { event, partition } = e;
    switch (event.kind) {
      case Kind.channelOpened: {
        const { reducer = 0, expireMs = 0 } = event.body.config ?? {};
        const before = this.channels.get(partition);
        this.channels.set(partition, { ...(before ?? { sent: [], ids: new Set(), droppedBefore: 0 }), reducer, expireMs });
        return;
      }
      case Kind.messagesAppended:
        return this.appended(e, event.body);
      case Kind.messagesExpired:
        return this.expired(e, event.body);
      case Kind.messagesDelivered: {
        const { to, generation, op, offset, count, reduced } = event.body;
        this.given.set(`${partition} ${to} ${generation} ${op}`, { offset, count, value: reduced?.value ?? "" });
        return;
      }
      case Kind.channelReceived:
        if (event.body.failure === undefined) this.received(at, e, event.body);
        return;
      default:
    }
  }

  private of(partition: string): ChannelModel {
    const found = this.channels.get(partition);
    claim(rule, found !== undefined, () => `${partition} was never opened`);
    return found;
  }

  private appended(e: JournalEvent, body: { offset: number; message: readonly { data: Uint8Array }[]; id: string }): void {
    const channel = this.of(e.partition);
    claim(rule, body.offset === channel.sent.length, () => `${e.partition} has messages at ${body.offset} behind ${channel.sent.length}`);
    claim(rule, body.id === "" || !channel.ids.has(body.id), () => `${e.partition} has sending ${body.id} twice`);
    if (body.id !== "") channel.ids.add(body.id);
    for (const { data } of body.message) channel.sent.push({ text: new TextDecoder().decode(data), timeMs: e.timeMs });
    this.counts.sent += body.message.length;
  }

  private expired(e: JournalEvent, { before, count }: { before: number; count: number }): void {
    const channel = this.of(e.partition);
    const late = channel.sent.slice(before - count, before).find(({ timeMs }) => timeMs + channel.expireMs > e.timeMs);
    claim(
      rule,
      channel.expireMs > 0 && late === undefined,
      () => `${e.partition} drops ${late?.text} at ${e.timeMs}, sent at ${late?.timeMs}`,
    );
    channel.droppedBefore = before;
  }

  private received(
    at: PartitionJournal,
    e: JournalEvent,
    body: {
      op: number;
      from: string;
      offset: number;
      count: number;
      missed: number;
      batch: { data: Uint8Array } | undefined;
      reduced: { count: number; value: string } | undefined;
    },
  ): void {
    const { op, from, offset, count, missed, batch, reduced } = body;
    const channel = this.of(from);
    const { generation } = at.model;
    const given = this.given.get(`${from} ${e.partition} ${generation} ${op}`);
    claim(
      rule,
      given?.offset === offset && given.count === count,
      () => `${e.partition} #${op} reads ${offset}+${count} of ${from}, which gave ${JSON.stringify(given)}`,
    );
    const key = `${e.partition} ${generation} ${from}`;
    const place = this.places.get(key);
    const isNext = place === undefined || offset - missed === place;
    claim(rule, isNext, () => `${e.partition} #${op} reads ${from} at ${offset}, ${missed} missed, behind ${place}`);
    const mayMiss = missed === 0 || offset <= channel.droppedBefore;
    claim(
      rule,
      mayMiss,
      () => `${e.partition} #${op} misses ${missed} messages of ${from} before ${offset}, ${channel.droppedBefore} were dropped`,
    );
    this.places.set(key, offset + count);
    this.counts.read += count;
    if (channel.reducer !== Reducer.none) return this.reduced(e, { channel, from, offset, count, value: reduced?.value ?? "" });
    const want = channel.sent.slice(offset, offset + count).map(({ text }) => text);
    const got =
      batch === undefined
        ? []
        : (fromBytes(decodeMessageBatch, batch.data) as MessageBatch).message.map(({ data }) => new TextDecoder().decode(data));
    claim(
      rule,
      want.join() === got.join(),
      () => `${e.partition} #${op} is given ${got.join()} at ${offset} of ${from}, which has ${want.join()}`,
    );
  }

  /** Of sums, which the simulator's are: of all that the offsets stand for. */
  private reduced(
    e: JournalEvent,
    { channel, from, offset, count, value }: { channel: ChannelModel; from: string; offset: number; count: number; value: string },
  ): void {
    const sum = channel.sent.slice(offset, offset + count).reduce((total, { text }) => total + Number(text), 0);
    claim(
      "reducedOnce",
      count === 0 || value === String(sum),
      () => `${e.partition} is told ${value} of ${count} messages of ${from}, which come to ${sum}`,
    );
  }
}
