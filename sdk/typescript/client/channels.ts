/** Channels, seen from outside: whoever sends to them, and reads along without being one of their readers. */
import {
  type ChannelCommandInit,
  type ChannelConfigInit,
  type ChannelReply,
  type DescribeReply,
  type ListReply,
  type ListRequestInit,
  type ReducerName,
  reducers,
} from "#proto";
import { clientMethods } from "#proto/descriptors";
import { milliseconds } from "./milliseconds.ts";
import { toPayload } from "./payload.ts";
import { call, type Channel as Road } from "./rpc.ts";
import type { Chunk } from "./run-handle.ts";

export interface ChannelOptions {
  /** What it makes of messages: "none", so where left out, keeps each until all its readers have it. */
  readonly reducer?: ReducerName;
  /** A message that some reader has not taken after so many milliseconds is dropped; left out: none is. */
  readonly expireMs?: number;
  /** Messages, and bytes of them, that may wait for readers; above it senders are refused for a while. Left out: 65,536 and 4 MiB. */
  readonly messagesMax?: number;
  readonly bytesMax?: number;
  /** For people. */
  readonly note?: string;
}

export interface MessagesOptions {
  /** Messages with this offset and later ones; left out: all. */
  readonly fromOffset?: number;
  /** Ends behind the last message that is there, in place of waiting for more. */
  readonly untilNow?: boolean;
}

/** How it stands: `channel` holds what it is, who reads it and how far. */
export type ChannelDescription = DescribeReply;

/** What the client lends to it. */
export interface ChannelClientParts {
  readonly road: Road;
  readonly namespace: string;
  /** Over the stream that carries requests, sent again after a loss. */
  readonly ask: (command: ChannelCommandInit) => Promise<ChannelReply>;
  readonly messages: (channel: string, options: MessagesOptions) => AsyncGenerator<Chunk>;
  readonly freshId: () => string;
}

export class ChannelClient {
  private readonly parts: ChannelClientParts;

  constructor(parts: ChannelClientParts) {
    this.parts = parts;
  }

  /** By its address (namespace:name), or its name in this client's namespace. */
  handle<T = unknown>(name: string): ChannelHandle<T> {
    return new ChannelHandle<T>(this, name.includes(":") ? name : `${this.parts.namespace}:${name}`);
  }

  /**
   * Opens a channel of that name. One that is the same already is left as it is. Rejects with `HopError` CHANNEL_EXISTS
   * where an open one has other settings. Whoever only sends, or reads, need not open one first.
   */
  async open<T = unknown>(name: string, options: ChannelOptions = {}): Promise<ChannelHandle<T>> {
    const handle = this.handle<T>(name);
    await this.change({ channel: handle.id, kind: "open", value: configOf(options) });
    return handle;
  }

  /** One page of open channels, newest first; `nextPageToken` asks for the next one. */
  list(request: ListRequestInit = {}): Promise<ListReply> {
    return call(this.parts.road, clientMethods.listChannels, { namespace: this.parts.namespace, ...request });
  }

  /** As the wire has it. */
  change(command: ChannelCommandInit): Promise<ChannelReply> {
    return call(this.parts.road, clientMethods.changeChannel, command);
  }

  describe(id: string): Promise<ChannelDescription> {
    return call(this.parts.road, clientMethods.describeChannel, { run: id });
  }

  /** All of them or none. Returns the offset of the first. */
  async send(id: string, messages: readonly unknown[], options: { readonly id?: string } = {}): Promise<number> {
    const message = messages.map((one) => toPayload(one) ?? {});
    const value = { message, id: options.id ?? this.parts.freshId() };
    return (await this.parts.ask({ channel: id, kind: "send", value })).offset;
  }

  messages(id: string, options: MessagesOptions): AsyncGenerator<Chunk> {
    return this.parts.messages(id, options);
  }
}

const configOf = ({ reducer = "none", expireMs, ...rest }: ChannelOptions): ChannelConfigInit => ({
  ...rest,
  expireMs: milliseconds("expireMs", expireMs),
  reducer: reducers[reducer],
});

/** One channel. */
export class ChannelHandle<T = unknown> {
  /** namespace:name */
  readonly id: string;
  private readonly client: ChannelClient;

  constructor(client: ChannelClient, id: string) {
    this.client = client;
    this.id = id;
  }

  /**
   * Sends a message, and resolves with its offset once it is durable. `id`: sent again with the same one, it is the same
   * message. Rejects with `HopError` BUFFER_FULL (after having tried for a while) where its readers are behind, and with
   * CHANNEL_CLOSED.
   */
  send(message: T, options: { readonly id?: string } = {}): Promise<number> {
    return this.client.send(this.id, [message], options);
  }

  /** Many at one time (up to 10,000, 4 MiB), all of them or none: the fastest way. Resolves with the offset of the first. */
  sendAll(messages: readonly T[], options: { readonly id?: string } = {}): Promise<number> {
    return this.client.send(this.id, messages, options);
  }

  /**
   * What was sent, from the channel's history, and what comes: without being one of its readers, so nothing is kept for
   * it and nothing is taken from others.
   */
  messages(options: MessagesOptions = {}): AsyncGenerator<Chunk<T>> {
    return this.client.messages(this.id, options) as AsyncGenerator<Chunk<T>>;
  }

  /** Takes the place of its settings, except that the reducer stays. */
  async change(options: ChannelOptions): Promise<void> {
    await this.client.change({ channel: this.id, kind: "change", value: configOf(options) });
  }

  /** Nothing more can be sent; readers are given what is there, and told that no more comes. */
  async close(reason = ""): Promise<void> {
    await this.client.change({ channel: this.id, kind: "close", value: { reason } });
  }

  describe(): Promise<ChannelDescription> {
    return this.client.describe(this.id);
  }
}
