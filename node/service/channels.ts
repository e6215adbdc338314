/** What clients ask of channels: checked, before Core sees it. */
import { limits, noBytes, type RunId } from "#core/base";
import type { Command } from "#core/shard";
import { type ChannelCommand, type ChannelConfig, type ChannelSend, type Payload, Reducer, type SignalRequest } from "#proto";
import { freshId } from "./run-names.ts";
import { bad, checkAddress, checkMs, checkName, checkText } from "./validate.ts";

type OfChannel = Extract<Command, { kind: "channel" }>;

export function checkChannel(m: ChannelCommand): OfChannel {
  const doing = doings[m.kind];
  const { run, ticket } = checkAddress(doing, m.channel, "channel");
  if (ticket > 0) throw bad(doing, "channel", "holds a ticket, want namespace:name");
  switch (m.kind) {
    case "send":
      return of(run, { ...m, value: checkSend(doing, m.value) });
    case "open":
    case "change":
      return of(run, { ...m, value: checkConfig(doing, m.value) });
    case "close":
      checkText(doing, "reason", m.value.reason);
      return of(run, m);
    case "unknown":
      throw bad(doing, "kind", "is one that this version does not know");
  }
}

const of = (run: RunId, ask: ChannelCommand): OfChannel => ({ kind: "channel", run, ask });

const doings: Readonly<Record<ChannelCommand["kind"], string>> = {
  send: "send to a channel",
  open: "open a channel",
  change: "change a channel",
  close: "close a channel",
  unknown: "use a channel",
};

function checkSend(doing: string, { message, id }: ChannelSend): ChannelSend {
  const { length } = message;
  if (length === 0) throw bad(doing, "message", "is empty, want at least one message");
  if (length > limits.sendingMessagesMax)
    throw bad(doing, "message", `holds ${length} messages, want at most ${limits.sendingMessagesMax} at one time`);
  const bytes = message.reduce((sum, { data }) => sum + Math.min(data.length, limits.inlineBytesMax), 0);
  if (bytes > limits.sendingBytesMax)
    throw bad(doing, "message", `holds ${bytes} bytes, want at most ${limits.sendingBytesMax} at one time`);
  if (id !== "") checkName(doing, "id", id);
  return { message, id: id === "" ? freshId("message") : id };
}

function checkConfig(doing: string, config: ChannelConfig): ChannelConfig {
  if (config.reducer > Reducer.last) throw bad(doing, "reducer", `is ${config.reducer}, which this version does not know`);
  checkMs(doing, "expire_ms", config.expireMs);
  if (config.messagesMax > limits.channelMessagesMax)
    throw bad(doing, "messages_max", `is ${config.messagesMax}, want at most ${limits.channelMessagesMax}`);
  if (config.bytesMax > limits.channelBytesMax)
    throw bad(doing, "bytes_max", `is ${config.bytesMax}, want at most ${limits.channelBytesMax}`);
  checkText(doing, "note", config.note);
  return config;
}

/** What has to be admitted. */
export const messagesOf = (ask: ChannelCommand): readonly Payload[] => (ask.kind === "send" ? ask.value.message : []);

/** A message for a channel, by the request that signals are sent with too. */
export function sendOf({ channel, payload, id, run, name }: SignalRequest): ChannelCommand {
  const doing = "send to a channel";
  if (run !== "" || name !== "") throw bad(doing, "channel", 'is given together with "run" or "name", want one of them');
  return { channel, kind: "send", value: { message: [payload ?? { data: noBytes, ref: undefined }], id } };
}
