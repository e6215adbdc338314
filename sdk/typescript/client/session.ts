/**
 * One multiplexed stream for everything hot: requests go out as they are made, replies find
 * their request by its number.
 *
 * The stream is opened by the first request and again after a loss. Requests that may be sent
 * twice without a second effect survive the loss; the others fail, since nobody knows whether
 * they were done.
 */
import type { Client, Metadata } from "@grpc/grpc-js";
import type { ClientItem, ClientItemInit, ReplyItem } from "#proto";
import { type Closing, type Connection, clientCodec, connectGrpc, type FrameBounds, sessionPath } from "#proto/connection";
import { type HopError, UnavailableError } from "./errors.ts";
import { backoffMs, detailError, isRetryable } from "./retry.ts";

/** What a session can ask. */
export type AskKind = Exclude<ClientItem["kind"], "unknown">;
export type Ask<K extends AskKind> = Omit<Extract<ClientItemInit, { kind: K }>, "request">;
export type Answer<K extends AskKind> = Extract<ReplyItem, { kind: K }>["value"];

interface Pending {
  readonly item: ClientItemInit;
  readonly isIdempotent: boolean;
  readonly resolve: (value: never) => void;
  readonly reject: (error: Error) => void;
  /** When it was first refused for a cause that passes. */
  refusedMs: number | undefined;
  tries: number;
  timer: ReturnType<typeof setTimeout> | undefined;
}

export interface SessionOptions {
  readonly client: Client;
  readonly metadata: Metadata;
  readonly address: string;
  /** How long an outage may last before what waits for its end fails. */
  readonly retryMs: number;
  readonly onConnection: (state: ConnectionState) => void;
}

export type ConnectionState = "lost" | "back";

export const bounds: FrameBounds = { frameBytesSoft: 1 << 20, frameBytesMax: 64 << 20, bufferedBytesMax: 256 << 20 };
const requestMax = 0xffff_ffff;
/** A stream that lives so long counts as there again: a server that is about to end still takes one. */
const settledMs = 250;

export class ClientSession {
  private readonly options: SessionOptions;
  /** In the order in which they were asked. */
  private readonly pending = new Map<number, Pending>();
  private connection: Connection<ClientItemInit> | undefined;
  private lastRequest = 0;
  private isClosed = false;
  private isDown = false;
  /** Ends the outage's wait, also where an attempt to connect hangs. */
  private outage: ReturnType<typeof setTimeout> | undefined;
  private losses = 0;
  private reconnect: ReturnType<typeof setTimeout> | undefined;

  constructor(options: SessionOptions) {
    this.options = options;
  }

  /**
   * Asks, and resolves with the reply's value. `isIdempotent`: sending it twice does nothing that
   * sending it once does not. Rejects with `HopError`.
   */
  ask<K extends AskKind>(asked: Ask<K>, isIdempotent: boolean): Promise<Answer<K>> {
    if (this.isClosed) return Promise.reject(new UnavailableError("STORE_UNAVAILABLE", "The client is closed"));
    const request = this.freeNumber();
    const item = { ...asked, request } as unknown as ClientItemInit;
    return new Promise<Answer<K>>((resolve, reject) => {
      this.pending.set(request, { item, isIdempotent, resolve, reject, refusedMs: undefined, tries: 0, timer: undefined });
      this.send(request);
    });
  }

  /** Fails what is open and ends the stream. */
  close(): void {
    this.isClosed = true;
    clearTimeout(this.reconnect);
    clearTimeout(this.outage);
    this.failAll(new UnavailableError("STORE_UNAVAILABLE", "The client was closed before the reply came"));
    this.connection?.close("The client was closed");
    this.connection = undefined;
  }

  private freeNumber(): number {
    do this.lastRequest = this.lastRequest >= requestMax ? 1 : this.lastRequest + 1;
    while (this.pending.has(this.lastRequest));
    return this.lastRequest;
  }

  private send(request: number): void {
    const pending = this.pending.get(request);
    if (pending === undefined || this.isClosed) return;
    if (this.connection === undefined) {
      // Opening sends everything that is pending; while an outage lasts that is the timer's work.
      if (this.reconnect === undefined) this.open();
      return;
    }
    try {
      this.connection.send(pending.item);
    } catch (error) {
      this.settle(request)?.reject(error as Error);
    }
  }

  private open(): void {
    this.reconnect = undefined;
    const { client, metadata } = this.options;
    const connection = connectGrpc(
      client,
      sessionPath,
      clientCodec,
      bounds,
      () => ({
        item: (item: ReplyItem) => this.receive(item),
        ended: () => this.connection?.end(),
        closed: (closing: Closing) => this.lost(connection, closing),
      }),
      metadata,
    );
    this.connection = connection;
    client.waitForReady(Date.now() + this.options.retryMs, (error) => {
      if (error !== undefined) return;
      setTimeout(() => {
        if (this.connection === connection) this.up();
      }, settledMs);
    });
    for (const [request, pending] of this.pending) if (pending.timer === undefined) this.send(request);
  }

  private up(): void {
    if (this.isDown && !this.isClosed) this.options.onConnection("back");
    this.isDown = false;
    clearTimeout(this.outage);
    this.losses = 0;
  }

  private receive(item: ReplyItem): void {
    this.up();
    const pending = this.pending.get(item.request);
    if (pending === undefined) return;
    if (item.kind === "error") {
      this.refused(item.request, pending, detailError(item.value));
      return;
    }
    this.pending.delete(item.request);
    if (item.kind === pending.item.kind) pending.resolve(item.value as never);
    else pending.reject(new UnavailableError("INTERNAL", `Cannot read the reply: it is of kind ${item.kind}, want ${pending.item.kind}`));
  }

  private refused(request: number, pending: Pending, error: HopError): void {
    pending.refusedMs ??= performance.now();
    const isOver = performance.now() - pending.refusedMs >= this.options.retryMs;
    if (!isRetryable(error) || !pending.isIdempotent || isOver) {
      this.settle(request)?.reject(error);
      return;
    }
    pending.tries++;
    pending.timer = setTimeout(
      () => {
        pending.timer = undefined;
        this.send(request);
      },
      backoffMs(pending.tries, error.retryAfterMs),
    );
  }

  private lost(connection: Connection<ClientItemInit>, closing: Closing): void {
    if (this.connection !== connection || this.isClosed) return;
    this.connection = undefined;
    this.losses++;
    const cause = new Error(closing.message);
    const { address } = this.options;
    for (const [request, pending] of this.pending) {
      if (pending.isIdempotent || pending.timer !== undefined) continue;
      this.settle(request)?.reject(
        new UnavailableError("STORE_UNAVAILABLE", `The stream to ${address} was lost before the reply came`, { cause }),
      );
    }
    // An idle stream is opened again by the next request.
    if (this.pending.size === 0) return;
    if (!this.isDown) this.down(cause);
    this.reconnect = setTimeout(() => this.open(), backoffMs(this.losses));
  }

  /** Begins an outage: what waits for its end fails when it lasts too long. */
  private down(cause: Error): void {
    const { address, retryMs, onConnection } = this.options;
    this.isDown = true;
    onConnection("lost");
    this.outage = setTimeout(() => {
      this.isDown = false;
      this.failAll(
        new UnavailableError("STORE_UNAVAILABLE", `Cannot reach ${address} for ${Math.round(retryMs)} ms: ${cause.message}`, { cause }),
      );
    }, retryMs);
  }

  private failAll(error: Error): void {
    for (const request of this.pending.keys()) this.settle(request)?.reject(error);
  }

  private settle(request: number): Pending | undefined {
    const pending = this.pending.get(request);
    if (pending !== undefined) clearTimeout(pending.timer);
    this.pending.delete(request);
    return pending;
  }
}
