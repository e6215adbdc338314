/** Channels: messages between any senders and any readers, beside the histories of both. */
import { checkAddress, checkDuration } from "./checks.ts";
import { type ChannelRead, engine } from "./engine.ts";
import { ChannelError } from "./errors.ts";

/** Messages, and bytes of them, are kept by the channel; a read is given as many as fit one batch. */
const messagesMax = 10_000;
const lingerMsDefault = 500;
const lingerMsMax = 60_000;

export interface ReadOptions {
  /** Messages that are given at most; left out: as many as there are, up to 10,000 or about a megabyte. */
  readonly max?: number;
  /**
   * Where many come, how long the first of them waits for others, in milliseconds: a flood becomes few reads. A message
   * that comes alone never waits. Left out: 500, at most 60,000; 0: never.
   */
  readonly lingerMs?: number;
  /** Rejects with `TimeoutError` when there was nothing in time. */
  readonly timeoutMs?: number;
}

/** What a read is given. */
export interface ChannelBatch<T> {
  /** Of the first message. */
  readonly offset: number;
  readonly messages: readonly T[];
  /** Messages before these that were dropped, because their time was over, before the run had read them. */
  readonly missed: number;
  /** The channel is closed, and there are no more. */
  readonly closed: boolean;
}

/** What a channel with a reducer made of all that was sent to it since the run's last read. */
export interface Reduction<V> {
  /** Messages that it is made of. */
  readonly count: number;
  /** Undefined where nothing came before the channel was closed. */
  readonly value: V | undefined;
  readonly closed: boolean;
}

export interface Channel<T> extends AsyncIterable<T> {
  /** As it was given. */
  readonly address: string;
  /**
   * Sends a message, and waits until the channel has it. Where the channel is full that takes until its readers have
   * taken some. Rejects with a `ChannelError` where the channel is closed, or can't reduce the value.
   */
  send(message: T): Promise<void>;
  /**
   * Waits for messages that this run has not read. They are numbered by offsets, and the run's history holds those,
   * and a hash, however many messages there are. One read of a channel at a time.
   */
  read(options?: ReadOptions): Promise<ChannelBatch<T>>;
  /** As `read`, of a channel with a reducer. */
  reduced<V = number>(options?: Omit<ReadOptions, "max">): Promise<Reduction<V>>;
}

/**
 * A channel of the run's own namespace, or of another one (`namespace:name`). It is made by the first that sends to it or
 * reads it; `hop channel open` makes one with a reducer or other bounds. Iterate over it to take one message after the
 * other, until it is closed; what a loop that is left did not use, the next read or loop is given first.
 *
 * ```ts
 * for await (const order of channel<Order>("orders")) await pack(order);
 * ```
 */
export function channel<T = unknown>(address: string): Channel<T> {
  checkAddress(address, "channel");
  const read = (options: ReadOptions = {}) => engine("channel()").readChannel(address, checked(options));
  /** What was read in the wrong way is there for who reads it in the right one. */
  const refuse = (given: ChannelRead, why: string) => {
    engine("channel()").unread(address, given);
    return new ChannelError(address, "ChannelReadError", `Cannot read channel ${address} so: ${why}`);
  };
  const kept = (given: ChannelRead): ChannelRead => {
    if ("value" in given && given.count > 0)
      throw refuse(given, "it has a reducer, and keeps no messages: take what they came to with reduced()");
    return given;
  };
  return Object.freeze({
    address,
    send: (message: T) => engine("channel()").sendChannel(address, message),
    async read(options?: ReadOptions) {
      const { offset, messages, missed, closed } = kept(await read(options));
      return { offset, messages: messages as readonly T[], missed, closed };
    },
    async reduced<V>(options: Omit<ReadOptions, "max"> = {}) {
      const given = await read(options);
      if (!("value" in given) && given.messages.length > 0)
        throw refuse(given, "it keeps messages, and has no reducer: take them with read(), or iterate over it");
      const { count, value, closed } = given;
      return { count, value: count === 0 ? undefined : (value as V), closed };
    },
    async *[Symbol.asyncIterator]() {
      for (;;) {
        const batch = kept(await read());
        let used = 0;
        try {
          for (const message of batch.messages) {
            used++;
            yield message as T;
          }
        } finally {
          engine("channel()").unread(address, behind(batch, used));
        }
        if (batch.closed) return;
      }
    },
  });
}

/** What is left of a read; nothing where all of it is used. */
function behind(read: ChannelRead, used: number): ChannelRead {
  const messages = read.messages.slice(used);
  return { ...read, messages, count: messages.length, offset: read.offset + used, missed: 0, closed: read.closed && messages.length > 0 };
}

function checked({ max, lingerMs = lingerMsDefault, timeoutMs }: ReadOptions) {
  if (max !== undefined && !(Number.isInteger(max) && max >= 1 && max <= messagesMax))
    throw new RangeError(`max is ${max}, want a whole number from 1 to ${messagesMax}`);
  const linger = checkDuration("lingerMs", lingerMs);
  if (linger > lingerMsMax) throw new RangeError(`lingerMs is ${lingerMs}, at most ${lingerMsMax} are allowed`);
  return { max: max ?? 0, lingerMs: linger, timeoutMs: timeoutMs === undefined ? undefined : checkDuration("timeoutMs", timeoutMs) };
}
