/**
 * What this node asked of another and waits for: one answer, or a stream of chunks.
 *
 * An ask is over once, by an answer, a refusal, a timeout, an abort, or the loss of its link;
 * what comes for it afterwards is ignored.
 */
import { HopError } from "#core/base";
import type { PeerItemInit } from "#proto";
import { peerBounds } from "./peer-bounds.ts";
import type { CallOptions, StreamOptions } from "./peer-net.ts";

/** What carries an ask: a link, or this node itself. */
export interface AskRoad {
  /** The asker wants nothing more of it. */
  giveUp(ask: Ask): void;
  /** The asker took chunks that cost `bytes`. */
  credit(ask: Ask, bytes: number): void;
}

export interface Ask {
  /** Its number on the link; 0 = it was not sent yet. */
  id: number;
  readonly body: Uint8Array;
  /** The item that sends it. */
  item(id: number): PeerItemInit;
  /** True where this kind of ask takes such an item. */
  answer(body: Uint8Array): boolean;
  chunk(body: Uint8Array): boolean;
  end(): boolean;
  fail(error: unknown): void;
}

export interface Question {
  readonly method: string;
  readonly body: Uint8Array;
  /** Who is asked, for messages: `node 3`. */
  readonly whom: string;
}

export const chunkCost = (body: Uint8Array) => body.length + peerBounds.chunkCost;

/** A timer can't be set for longer. */
const timerMsMax = 2 ** 31 - 1;

/** Ends an ask when its time is over or its signal aborts. */
class Patience {
  private readonly timer: ReturnType<typeof setTimeout> | undefined;
  private readonly signal: AbortSignal | undefined;
  private readonly onAbort: () => void;

  constructor(
    question: Question,
    options: { readonly timeoutMs: number | undefined; readonly signal: AbortSignal | undefined },
    expire: (error: unknown) => void,
  ) {
    const { timeoutMs, signal } = options;
    this.signal = signal;
    this.onAbort = () => expire(signal?.reason);
    signal?.addEventListener("abort", this.onAbort);
    const late = () =>
      new HopError("BUDGET_EXPIRED", `Cannot wait longer for ${question.method} of ${question.whom}: ${timeoutMs} ms are over`);
    this.timer = timeoutMs === undefined ? undefined : setTimeout(() => expire(late()), Math.min(timeoutMs, timerMsMax));
  }

  stop(): void {
    clearTimeout(this.timer);
    this.signal?.removeEventListener("abort", this.onAbort);
  }
}

export class CallAsk implements Ask {
  id = 0;
  readonly promise: Promise<Uint8Array>;
  private readonly question: Question;
  private readonly patience: Patience;
  private readonly resolve: (body: Uint8Array) => void;
  private readonly reject: (error: unknown) => void;

  constructor(question: Question, options: CallOptions, road: AskRoad) {
    this.question = question;
    const { promise, resolve, reject } = Promise.withResolvers<Uint8Array>();
    this.promise = promise;
    this.resolve = resolve;
    this.reject = reject;
    this.patience = new Patience(question, { timeoutMs: options.timeoutMs ?? peerBounds.callMs, signal: options.signal }, (error) => {
      road.giveUp(this);
      this.fail(error);
    });
  }

  get body(): Uint8Array {
    return this.question.body;
  }

  item(id: number): PeerItemInit {
    const { method, body } = this.question;
    return { kind: "call", value: { id, method, body } };
  }

  answer(body: Uint8Array): boolean {
    this.patience.stop();
    this.resolve(body);
    return true;
  }

  chunk(): boolean {
    return false;
  }

  end(): boolean {
    return false;
  }

  fail(error: unknown): void {
    this.patience.stop();
    this.reject(error);
  }
}

/** Chunks on their way to their reader: at most a window of them and one more. */
export class StreamAsk implements Ask, AsyncIterableIterator<Uint8Array> {
  id = 0;
  readonly window: number;
  private readonly question: Question;
  private readonly patience: Patience;
  private readonly road: AskRoad;
  private readonly chunks: Uint8Array[] = [];
  private readonly waiters: ReturnType<typeof Promise.withResolvers<IteratorResult<Uint8Array, undefined>>>[] = [];
  /** Cost of the chunks that were not read yet. */
  private unread = 0;
  /** Cost of those that were, and that the sender has no credit for yet. */
  private taken = 0;
  private isOver = false;
  private failure: { readonly error: unknown } | undefined;

  constructor(question: Question, options: StreamOptions, road: AskRoad) {
    this.question = question;
    this.road = road;
    this.window = Math.min(Math.max(options.windowBytes ?? peerBounds.windowBytes, 1), peerBounds.windowBytesMax);
    this.patience = new Patience(question, { timeoutMs: options.timeoutMs, signal: options.signal }, (error) => {
      if (!this.isOver) road.giveUp(this);
      this.fail(error);
    });
  }

  /** A stream whose signal has aborted already fails when it is read. */
  static of(question: Question, options: StreamOptions, road: AskRoad): StreamAsk {
    options.signal?.throwIfAborted();
    return new StreamAsk(question, options, road);
  }

  get body(): Uint8Array {
    return this.question.body;
  }

  item(id: number): PeerItemInit {
    const { method, body } = this.question;
    return { kind: "open", value: { id, method, body, window: this.window } };
  }

  answer(): boolean {
    return false;
  }

  /** False also for a chunk that nobody gave credit for. */
  chunk(body: Uint8Array): boolean {
    if (this.isOver) return true;
    if (this.unread > this.window || body.length > peerBounds.chunkBytesMax) return false;
    const waiter = this.waiters.shift();
    if (waiter === undefined) {
      this.chunks.push(body);
      this.unread += chunkCost(body);
    } else {
      waiter.resolve({ done: false, value: body });
      this.took(body);
    }
    return true;
  }

  end(): boolean {
    this.isOver = true;
    this.patience.stop();
    for (const waiter of this.waiters.splice(0)) waiter.resolve({ done: true, value: undefined });
    return true;
  }

  fail(error: unknown): void {
    if (this.isOver) return;
    this.failure = { error };
    this.isOver = true;
    this.patience.stop();
    const first = this.waiters.shift();
    if (first === undefined) return;
    this.failure = undefined;
    first.reject(error);
    this.end();
  }

  async next(): Promise<IteratorResult<Uint8Array, undefined>> {
    const body = this.chunks.shift();
    if (body !== undefined) {
      this.unread -= chunkCost(body);
      this.took(body);
      return { done: false, value: body };
    }
    const { failure } = this;
    if (failure !== undefined) {
      this.failure = undefined;
      throw failure.error;
    }
    if (this.isOver) return { done: true, value: undefined };
    const waiter = Promise.withResolvers<IteratorResult<Uint8Array, undefined>>();
    this.waiters.push(waiter);
    return waiter.promise;
  }

  async return(): Promise<IteratorResult<Uint8Array, undefined>> {
    if (!this.isOver) this.road.giveUp(this);
    this.chunks.length = 0;
    this.failure = undefined;
    this.end();
    return { done: true, value: undefined };
  }

  [Symbol.asyncIterator](): this {
    return this;
  }

  private took(body: Uint8Array): void {
    this.taken += chunkCost(body);
    if (this.isOver || this.taken * 2 < this.window) return;
    this.road.credit(this, this.taken);
    this.taken = 0;
  }
}

/** A stream that is asked for when it is first read. */
export function lazyStream(begin: () => StreamAsk): AsyncIterable<Uint8Array> {
  return { [Symbol.asyncIterator]: begin };
}
