/**
 * Channels: Core keeps their messages and hands them to the runs that read, without a worker. What is sent is one event
 * for all that comes at one time; what a reader is given is one event, however many messages it holds, and the
 * messages travel beside it.
 */
import { limits, noBytes, type Partition, type Rejection, type RequestId } from "#core/base";
import {
  availableTo,
  blankConfig,
  type Channel,
  channelOf,
  deliveryDueMs,
  expiryMs,
  inFlightFrom,
  isChannelOpen,
  isFull,
  isSameSending,
  type Reader,
  readerKey,
  toReduced,
  valueProblem,
  weightOf,
} from "#core/run";
import {
  type ChannelCommand,
  type ChannelConfig,
  type ChannelSend,
  type Envelope,
  EventKind,
  type Identity,
  type IdentityInit,
  type Message,
  MessageKind,
  type MessagesAppended,
  type Payload,
  Reducer,
} from "#proto";
import type { ShardContext } from "./context.ts";
import { senderIdentity } from "./identity.ts";
import type { CommandOf } from "./input.ts";
import type { LiveRun } from "./live-run.ts";
import { recordTaken } from "./message-facts.ts";
import { remind } from "./reminders.ts";
import { reject, respond } from "./replies.ts";

/** At the end of a step that changed it: readers that wait are given what there is, and what time will make due is minded. */
export function carryOnChannel(ctx: ShardContext, live: LiveRun): void {
  const { channel } = live.run;
  if (channel === undefined) return;
  const isOpen = isChannelOpen(live.run);
  let due = expiryMs(channel, live.run.outbox);
  for (const reader of channel.readers.values()) {
    if (reader.op === 0) continue;
    const dueMs = isOpen ? deliveryDueMs(channel, reader) : 0;
    if (dueMs <= ctx.nowMs) deliver(ctx, live, channel, reader, !isOpen);
    else due = Math.min(due, dueMs);
  }
  if (due !== Number.POSITIVE_INFINITY) remind(ctx, live, "channel", Math.max(due, ctx.nowMs + 1));
}

function deliver(ctx: ShardContext, live: LiveRun, channel: Channel, reader: Reader, isClosed: boolean): void {
  const { partition: to, generation, op, since } = reader;
  const { reducer } = channel.config;
  const offset = reducer === Reducer.none ? Math.max(reader.offset, channel.keptFrom) : reader.offset;
  const there = availableTo(channel, reader);
  const count = reducer === Reducer.none ? batchOf(channel, reader, offset) : there;
  const body = {
    ...{ to, generation, op, offset, count, missed: offset - reader.offset, closed: isClosed && count === there },
    reduced: reducer === Reducer.none ? undefined : toReduced(since, reducer),
  };
  ctx.append(live, { kind: EventKind.messagesDelivered, body }, ctx.core(live.chain.size - 1));
}

/** How many messages from the offset on make one batch; at least one, where there is one. */
function batchOf({ kept, keptFrom }: Channel, { messagesMax }: Reader, offset: number): number {
  const most = Math.min(messagesMax || limits.batchMessagesMax, limits.batchMessagesMax);
  let bytes = 0;
  let count = 0;
  for (let at = offset - keptFrom; at < kept.length && count < most; at++) {
    bytes += weightOf(kept[at]?.payload as Payload);
    if (count > 0 && bytes > limits.batchBytesMax) break;
    count++;
  }
  return count;
}

/** Readers whose time has come are given theirs at the end of the step; what nobody took in time is dropped. */
export function onChannelDue(ctx: ShardContext, live: LiveRun): void {
  const { channel } = live.run;
  if (channel === undefined) return;
  ctx.touch(live);
  const { expireMs } = channel.config;
  if (expiryMs(channel, live.run.outbox) > ctx.nowMs) return;
  const late = channel.kept.findIndex(({ sentMs }) => sentMs + expireMs > ctx.nowMs);
  const before = Math.min(channel.keptFrom + (late < 0 ? channel.kept.length : late), inFlightFrom(live.run.outbox));
  const count = before - channel.keptFrom;
  // What is under way to a reader stays until that has it.
  if (count <= 0) return;
  ctx.append(live, { kind: EventKind.messagesExpired, body: { before, count } }, ctx.core(live.chain.size - 1));
}

export function onChannel(ctx: ShardContext, request: RequestId, identity: Identity, { run: id, ask }: CommandOf<"channel">): void {
  const partition = channelOf(id);
  const live = ask.kind === "send" || ask.kind === "open" ? ctx.findOrCreate(partition) : ctx.find(partition);
  if (live?.run.channel === undefined && ask.kind !== "send" && ask.kind !== "open") {
    return reject(ctx, request, {
      reject: "CHANNEL_NOT_FOUND",
      message: `Cannot ${verbs[ask.kind]} channel ${id}: there is no such channel`,
    });
  }
  const done = decide(ctx, live as LiveRun, identity, ask);
  if (typeof done === "number") return respond(ctx, request, live as LiveRun, { kind: "channelled", answer: { offset: done } });
  reject(ctx, request, { ...done, message: `Cannot ${verbs[ask.kind]} channel ${id}: ${done.message}` }, live);
}

const verbs: Readonly<Record<ChannelCommand["kind"], string>> = {
  send: "send to",
  open: "open",
  change: "change",
  close: "close",
  unknown: "change",
};

/** Appends what is asked for, and returns the offset to be told; or says why not. */
function decide(ctx: ShardContext, live: LiveRun, identity: Identity, ask: ChannelCommand): number | Rejection {
  switch (ask.kind) {
    case "send":
      return send(ctx, live, identity, ask.value);
    case "open":
      return open(ctx, live, identity, ask.value);
    case "change":
      return change(ctx, live, identity, ask.value);
    case "close":
      if (isChannelOpen(live.run)) ctx.append(live, { kind: EventKind.channelClosed, body: ask.value }, identity);
      return nextOffset(live);
    case "unknown":
      return { reject: "BAD_REQUEST", message: "this version does not know what is asked" };
  }
}

const nextOffset = ({ run }: LiveRun) => run.channel?.nextOffset ?? 0;

function open(ctx: ShardContext, live: LiveRun, identity: IdentityInit, config: ChannelConfig): number | Rejection {
  const { channel, generation } = live.run;
  if (isChannelOpen(live.run)) {
    // Sent again, it is the same one.
    if (channel !== undefined && isSame(channel.config, config)) return nextOffset(live);
    return { reject: "CHANNEL_EXISTS", message: "it is open, with other settings" };
  }
  if (channel !== undefined && channel.config.reducer !== config.reducer && channel.readers.size > 0)
    return { reject: "BAD_REQUEST", message: "runs still read what it had, and it can't reduce otherwise meanwhile" };
  ctx.append(live, { kind: EventKind.channelOpened, body: { generation: generation + 1, config } }, identity);
  return nextOffset(live);
}

function change(ctx: ShardContext, live: LiveRun, identity: Identity, config: ChannelConfig): number | Rejection {
  const { channel } = live.run;
  if (!isChannelOpen(live.run)) return closed;
  if (channel?.config.reducer !== config.reducer)
    return { reject: "BAD_REQUEST", message: "its reducer stays what it is while it is open: close it, and open it anew" };
  if (!isSame(channel.config, config)) ctx.append(live, { kind: EventKind.channelChanged, body: { config } }, identity);
  return nextOffset(live);
}

const isSame = (a: ChannelConfig, b: ChannelConfig) =>
  a.reducer === b.reducer && a.expireMs === b.expireMs && a.messagesMax === b.messagesMax && a.bytesMax === b.bytesMax && a.note === b.note;

const closed: Rejection = { reject: "CHANNEL_CLOSED", message: "it is closed" };

function send(ctx: ShardContext, live: LiveRun, identity: Identity, { message, id }: ChannelSend): number | Rejection {
  const known = id === "" ? undefined : live.run.channel?.sendings.find((one) => one.id === id);
  if (known !== undefined) return isSameSending(known, message) ? known.offset : otherSending(id);
  openFirst(ctx, live, identity);
  const refused = refuse(live, message);
  if (refused !== undefined) return refused;
  return append(ctx, live, { message, id, from: "", number: 0 }, identity);
}

const otherSending = (id: string): Rejection => ({
  reject: "IDEMPOTENCY_CONFLICT",
  message: `id ${JSON.stringify(id)} was used for other messages`,
});

/** Whoever is first to send to a name or to read it makes the channel. */
export function openFirst(ctx: ShardContext, live: LiveRun, identity: IdentityInit): void {
  if (live.run.generation > 0) return;
  open(ctx, live, identity, blankConfig);
  // A replica folds a record's facts before its events: a reader is of a channel that is there.
  ctx.seal();
}

function append(ctx: ShardContext, live: LiveRun, sending: Omit<MessagesAppended, "offset">, identity: IdentityInit): number {
  const offset = nextOffset(live);
  ctx.append(live, { kind: EventKind.messagesAppended, body: { offset, ...sending } }, identity);
  return offset;
}

/** Why the messages can't be taken, now or at all. */
function refuse({ run }: LiveRun, messages: readonly Payload[]): Rejection | undefined {
  const { channel } = run;
  if (channel === undefined || !isChannelOpen(run)) return closed;
  for (const message of messages) {
    const problem = valueProblem(channel.config.reducer, message);
    if (problem !== undefined) return { reject: "BAD_REQUEST", message: problem };
  }
  if (channel.config.reducer !== Reducer.none) return isFull(channel.total) ? tooManyMembers : undefined;
  const { messagesMax } = boundsOf(channel);
  if (messages.length > messagesMax) {
    const message = `it lets ${messagesMax} messages wait, and is sent ${messages.length} at one time: send fewer`;
    return { reject: "BAD_REQUEST", message };
  }
  return refuseRoom(channel, { count: messages.length, bytes: messages.reduce((sum, message) => sum + weightOf(message), 0) });
}

const boundsOf = ({ config }: Channel) => ({
  messagesMax: config.messagesMax || limits.channelMessages,
  bytesMax: config.bytesMax || limits.channelBytes,
});

/** Where nothing waits, bytes are taken as they come: one message may be larger than all that may wait. */
function refuseRoom(channel: Channel, more: { readonly count: number; readonly bytes: number }): Rejection | undefined {
  const { kept, keptBytes } = channel;
  const { messagesMax, bytesMax } = boundsOf(channel);
  if (kept.length === 0 || (kept.length + more.count <= messagesMax && keptBytes + more.bytes <= bytesMax)) return undefined;
  const message = `${kept.length} messages of ${keptBytes} bytes wait in it for readers, at most ${messagesMax} of ${bytesMax} bytes may`;
  return { reject: "BUFFER_FULL", message, retryAfterMs: limits.channelFullRetryMs };
}

const tooManyMembers: Rejection = {
  reject: "BAD_REQUEST",
  message: `its union has ${limits.unionMembersMax} different values or ${limits.unionBytesMax} bytes of them, and no more may be`,
};

/** Takes what it can of the messages, which are the next ones of their sender; else says in how many milliseconds to try again. */
export function takeForChannel(ctx: ShardContext, live: LiveRun, envelope: Envelope, messages: readonly Message[]): number {
  const isUsed = messages.some(({ kind }) => kind === MessageKind.publish || kind === MessageKind.read);
  if (isUsed) openFirst(ctx, live, senderIdentity(envelope.from as Partition));
  let left = messages;
  for (let [message] = left; message !== undefined; [message] = left) {
    if (message.kind !== MessageKind.publish) {
      takeReader(ctx, live, envelope, message);
      left = left.slice(1);
      continue;
    }
    const published = runOfPublished(live, left);
    const refused = refuse(
      live,
      published.map(({ payload }) => payloadOf(payload)),
    );
    if (refused?.reject === "BUFFER_FULL") return refused.retryAfterMs ?? limits.channelFullRetryMs;
    if (refused === undefined) appendPublished(ctx, live, envelope, published);
    else recordTaken(ctx, live, envelope, message, { ...readOf(message), refusal: refused.reject });
    left = left.slice(refused === undefined ? published.length : 1);
  }
  return 0;
}

/** Those that begin the list and fit become one event; one that is refused stands alone. */
function runOfPublished({ run: { channel } }: LiveRun, messages: readonly Message[]): readonly Message[] {
  if (channel === undefined) return messages.slice(0, 1);
  const { reducer } = channel.config;
  const more = { count: 0, bytes: 0 };
  for (const { kind, payload } of messages) {
    if (kind !== MessageKind.publish || valueProblem(reducer, payloadOf(payload)) !== undefined) break;
    more.bytes += weightOf(payloadOf(payload));
    if (reducer === Reducer.none && more.count > 0 && refuseRoom(channel, { ...more, count: more.count + 1 }) !== undefined) break;
    more.count++;
  }
  return messages.slice(0, Math.max(1, more.count));
}

const payloadOf = (payload: Payload | undefined): Payload => payload ?? { data: noBytes, ref: undefined };

function appendPublished(ctx: ShardContext, live: LiveRun, { from }: Envelope, published: readonly Message[]): void {
  const message = published.map(({ payload }) => payloadOf(payload));
  append(ctx, live, { message, id: "", from, number: published.at(-1)?.number ?? 0 }, senderIdentity(from as Partition));
  // A replica folds a record's facts before its events: what a reader is given is told in their order.
  ctx.seal();
}

/** Of a message that a restore made the channel forget. */
export function takePublishedAgain(ctx: ShardContext, live: LiveRun, from: Partition, { number, payload }: Message): boolean {
  const identity = senderIdentity(from);
  openFirst(ctx, live, identity);
  if (refuse(live, [payloadOf(payload)]) !== undefined) return false;
  append(ctx, live, { message: [payloadOf(payload)], id: "", from, number }, identity);
  return true;
}

function takeReader(ctx: ShardContext, live: LiveRun, envelope: Envelope, message: Message): void {
  const { readers = new Map<string, Reader>() } = live.run.channel ?? {};
  const { kind, generation } = message;
  const isNew = !readers.has(readerKey(envelope.from, generation));
  const isTooMany = kind === MessageKind.read && isNew && readers.size >= limits.channelReadersMax;
  const isKnown = kind === MessageKind.read || kind === MessageKind.readCancelled || kind === MessageKind.leave;
  recordTaken(ctx, live, envelope, message, { ...readOf(message), refusal: isTooMany ? "BUFFER_FULL" : isKnown ? "" : "BAD_REQUEST" });
  ctx.touch(live);
}

/** What a reader's message says of the read. */
const readOf = ({ offset, count, lingerMs }: Message) => ({ offset, count, lingerMs });
