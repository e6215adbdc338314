/** Events of channels, and of runs that use them, for the eye. */
import {
  type ChannelConfig,
  decodeChannelAwaited,
  decodeChannelChanged,
  decodeChannelClosed,
  decodeChannelOpened,
  decodeChannelReceived,
  decodeChannelSendCancelled,
  decodeChannelSendSettled,
  decodeChannelSent,
  decodeChannelWaitCancelled,
  decodeMessagesAppended,
  decodeMessagesDelivered,
  decodeMessagesExpired,
  EventKind,
  type Payload,
  Reducer,
  reducerName,
} from "#proto";
import { formatDuration } from "../duration.ts";
import { type Kind, kind, words } from "../event-kind.ts";
import { failureText, payloadText } from "../event-text.ts";

/** Messages [offset, offset + count). */
const range = (offset: number, count: number) =>
  count === 1 ? `message ${offset}` : count === 0 ? "no messages" : `messages ${offset}–${offset + count - 1}`;

const configText = ({ reducer, expireMs, messagesMax, bytesMax }: ChannelConfig) =>
  words(
    reducer === Reducer.none ? "keeps messages" : `reduces by ${reducerName(reducer)}`,
    expireMs > 0 && `for ${formatDuration(expireMs)}`,
    messagesMax > 0 && `up to ${messagesMax}`,
    bytesMax > 0 && `up to ${bytesMax} bytes`,
  );

const shownMax = 3;
const messagesText = (message: readonly Payload[]) =>
  words(...message.slice(0, shownMax).map(payloadText), message.length > shownMax && "…");

export const channelKinds: Record<number, Kind> = {
  [EventKind.channelOpened]: kind("ChannelOpened", decodeChannelOpened, (m) => (m.config === undefined ? "" : configText(m.config))),
  [EventKind.channelChanged]: kind("ChannelChanged", decodeChannelChanged, (m) => (m.config === undefined ? "" : configText(m.config))),
  [EventKind.messagesAppended]: kind("MessagesAppended", decodeMessagesAppended, (m) =>
    words(`${range(m.offset, m.message.length)}:`, messagesText(m.message)),
  ),
  [EventKind.messagesDelivered]: kind("MessagesDelivered", decodeMessagesDelivered, (m) =>
    words(
      m.reduced === undefined ? range(m.offset, m.count) : `${m.reduced.value} of ${m.reduced.count} messages`,
      `to ${m.to}#${m.op}`,
      m.missed > 0 && `(${m.missed} missed)`,
      m.closed && "(the last)",
    ),
  ),
  [EventKind.messagesExpired]: kind("MessagesExpired", decodeMessagesExpired, (m) => range(m.before - m.count, m.count)),
  [EventKind.channelClosed]: kind("ChannelClosed", decodeChannelClosed, (m) => m.reason),
  [EventKind.channelSent]: kind("ChannelSent", decodeChannelSent, (m) => words(`#${m.op}`, `to ${m.to}`, payloadText(m.payload))),
  [EventKind.channelSendSettled]: kind("ChannelSendSettled", decodeChannelSendSettled, (m) =>
    words(`#${m.op}`, m.failure !== undefined && failureText(m.failure)),
  ),
  [EventKind.channelSendCancelled]: kind("ChannelSendCancelled", decodeChannelSendCancelled, (m) => `#${m.op}`),
  [EventKind.channelAwaited]: kind("ChannelAwaited", decodeChannelAwaited, (m) => `#${m.op} ${m.to} from ${m.offset} on`),
  [EventKind.channelReceived]: kind("ChannelReceived", decodeChannelReceived, (m) =>
    words(
      `#${m.op}`,
      m.failure !== undefined
        ? failureText(m.failure)
        : m.reduced === undefined
          ? range(m.offset, m.count)
          : `${m.reduced.value} of ${m.reduced.count} messages`,
      m.missed > 0 && `(${m.missed} missed)`,
      m.closed && "(closed)",
    ),
  ),
  [EventKind.channelWaitCancelled]: kind("ChannelWaitCancelled", decodeChannelWaitCancelled, (m) => `#${m.op}`),
};
