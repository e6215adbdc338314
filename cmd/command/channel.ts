/** `hop channel open`, `change`, `send` and `close`. */
import { randomUUID } from "node:crypto";
import { HopError, limits } from "#core/base";
import { type ChannelCommandInit, type ChannelConfig, type ChannelConfigInit, type ReducerName, reducers } from "#proto";
import { withRemote } from "../connect.ts";
import { type Context, type GlobalOptions, parseCount, runId } from "../context.ts";
import { parseDuration } from "../duration.ts";
import { type ExitCode, exit, UsageError } from "../failure.ts";
import { readInput, readText } from "../input.ts";
import type { Remote } from "../remote.ts";
import { parseSize } from "../size.ts";
import { visible } from "../terminal.ts";

interface ConfigOptions extends GlobalOptions {
  readonly expire?: string;
  readonly messages?: string;
  readonly bytes?: string;
  readonly note?: string;
}

export interface OpenOptions extends ConfigOptions {
  readonly reducer?: ReducerName;
}

export interface SendOptions extends GlobalOptions {
  readonly input?: string;
  readonly lines?: boolean;
  readonly id?: string;
}

export interface CloseOptions extends GlobalOptions {
  readonly reason?: string;
}

/** What the options say, and `before` where they are silent. */
function configOf({ expire, messages, bytes, note }: ConfigOptions, before?: ChannelConfig): ChannelConfigInit {
  return {
    ...before,
    ...(expire === undefined ? {} : { expireMs: parseDuration(expire, "--expire") }),
    ...(messages === undefined ? {} : { messagesMax: parseCount(messages, "messages", { min: 1, max: limits.channelMessagesMax }) }),
    ...(bytes === undefined ? {} : { bytesMax: parseSize(bytes, "--bytes") }),
    ...(note === undefined ? {} : { note }),
  };
}

async function change(
  context: Context,
  options: GlobalOptions,
  { id, words, commandOf }: { id: string; words: string; commandOf: (remote: Remote) => Promise<ChannelCommandInit> },
): Promise<ExitCode> {
  return withRemote(context, options, async (remote) => {
    const { offset } = await remote.channels.change(await commandOf(remote));
    const { output } = context;
    if (output.format === "ids") output.line(id);
    else if (output.isForPeople) output.say(`${words}; its next message has offset ${offset}`);
    else output.json({ channel: id, nextOffset: offset });
    return exit.ok;
  });
}

export function channelOpen(context: Context, options: OpenOptions, name: string): Promise<ExitCode> {
  const channel = runId(name, options, context.env);
  const value = { ...configOf(options), reducer: reducers[options.reducer ?? "none"] };
  const commandOf = async (): Promise<ChannelCommandInit> => ({ channel, kind: "open", value });
  return change(context, options, { id: channel, words: `Opened channel ${visible(channel)}`, commandOf });
}

export function channelChange(context: Context, options: ConfigOptions, name: string): Promise<ExitCode> {
  if (Object.keys(configOf(options)).length === 0)
    throw new UsageError("Cannot change a channel: nothing was given", { next: "say what with --expire, --messages, --bytes or --note" });
  const channel = runId(name, options, context.env);
  const commandOf = async (remote: Remote): Promise<ChannelCommandInit> => {
    const { channel: state } = await remote.channels.describe(channel);
    if (state === undefined) throw new HopError("CHANNEL_NOT_FOUND", `Cannot change channel ${channel}: there is no such channel`);
    return { channel, kind: "change", value: configOf(options, state.config) };
  };
  return change(context, options, { id: channel, words: `Changed channel ${visible(channel)}`, commandOf });
}

export function channelClose(context: Context, options: CloseOptions, name: string): Promise<ExitCode> {
  const channel = runId(name, options, context.env);
  const commandOf = async (): Promise<ChannelCommandInit> => ({ channel, kind: "close", value: { reason: options.reason ?? "" } });
  return change(context, options, { id: channel, words: `Closed channel ${visible(channel)}`, commandOf });
}

/** Messages of one request. */
const sentAtOnce = 1000;

export async function channelSend(context: Context, options: SendOptions, name: string): Promise<ExitCode> {
  const channel = runId(name, options, context.env);
  const messages = await messagesOf(options);
  return withRemote(context, options, async (remote) => {
    const { output } = context;
    let first: number | undefined;
    for (const part of partsOf(messages, await mostAtOnce(remote, channel))) {
      // Where the reply is lost, it is sent again, and is one sending.
      const id = options.id ?? `send-${randomUUID()}`;
      const { offset } = await remote.sendToChannel({ channel, kind: "send", value: { message: part.map((data) => ({ data })), id } });
      first ??= offset;
      if (output.format === "ids") for (let i = 0; i < part.length; i++) output.line(`${offset + i}`);
      else if (!output.isForPeople) output.json({ channel, offset, messages: part.length });
    }
    if (output.isForPeople)
      output.say(
        messages.length === 1
          ? `Sent message ${first} to channel ${visible(channel)}`
          : `Sent ${messages.length} messages to channel ${visible(channel)}, the first of them ${first}`,
      );
    return exit.ok;
  });
}

async function messagesOf({ input, lines, id }: SendOptions): Promise<Uint8Array[]> {
  if (lines !== true) {
    const message = await readInput(input);
    if (message !== undefined) return [message];
    throw new UsageError("Cannot send: no message was given", { next: "give one with --input JSON, or many with --lines" });
  }
  if (id !== undefined) throw new UsageError("Cannot use --id with --lines: it names one sending");
  const text = await linesOf(input);
  const messages = text.split("\n").filter((line) => line.trim() !== "");
  if (messages.length === 0) throw new UsageError("Cannot send: the input has no lines");
  for (const [at, line] of messages.entries()) if (!isJson(line)) throw new UsageError(`Cannot send line ${at + 1}: it is not valid JSON`);
  return messages.map((line) => new TextEncoder().encode(line));
}

const linesOf = async (input = "-"): Promise<string> =>
  input === "-" || input.startsWith("@") ? readText(input.replace(/^@/, "")) : input;

function isJson(text: string): boolean {
  try {
    JSON.parse(text);
    return true;
  } catch {
    return false;
  }
}

/** A channel with a small bound is sent no more than that at one time. */
async function mostAtOnce(remote: Remote, channel: string): Promise<number> {
  try {
    const { channel: state } = await remote.channels.describe(channel);
    return Math.min(sentAtOnce, state?.config?.messagesMax || sentAtOnce);
  } catch (error) {
    if ((error as { reason?: string }).reason === "CHANNEL_NOT_FOUND") return sentAtOnce;
    throw error;
  }
}

function* partsOf(messages: readonly Uint8Array[], most: number): Generator<readonly Uint8Array[]> {
  let part: Uint8Array[] = [];
  let bytes = 0;
  for (const message of messages) {
    if (part.length >= most || (part.length > 0 && bytes + message.length > limits.sendingBytesMax)) {
      yield part;
      part = [];
      bytes = 0;
    }
    part.push(message);
    bytes += message.length;
  }
  if (part.length > 0) yield part;
}
