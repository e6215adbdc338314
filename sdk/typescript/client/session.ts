/**
 * One multiplexed stream for everything hot: requests go out as they are made, replies find
 * their request by its number.
 *
 * The stream is opened by the first request and again after a loss, then at another node where
 * there is one. Requests that may be sent twice without a second effect survive the loss; the
 * others fail, since nobody knows whether they were done.
 */
import type { Metadata } from "@grpc/grpc-js";
import type { ClientItem, ClientItemInit, ReplyItem } from "#proto";
import { type Closing, type Connection, clientCodec, connectGrpc, sessionPath } from "#proto/connection";
import { bounds, type Endpoint, type Endpoints } from "./endpoints.ts";
import { type HopError, UnavailableError } from "./errors.ts";
import type { Pulse, Watched } from "./pulse.ts";
import { backoffMs, detailError, isRetryable, waitingMs } from "./retry.ts";

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
  readonly endpoints: Endpoints;
  readonly metadata: Metadata;
  readonly pulse: Pulse;
  /** How long an outage may last before what waits for its end fails. */
  readonly retryMs: number;
  readonly onConnection: (state: ConnectionState) => void;
  /** Told what is in the way of requests that have waited for a while. */
  readonly onWaiting: (problem: string) => void;
}

export type ConnectionState = "lost" | "back";

const requestMax = 0xffff_ffff;
/** A stream that lives so long counts as there again: a server that is about to end still takes one. */
const settledMs = 250;
/** A node that could not be reached within this is given up, the sooner where there is another one. */
const connectMsMax = { withOthers: 2_000, alone: 10_000 } as const;
/** However short an outage may last: a node that is there gets this long to take a connection. */
const connectMsMin = 1_000;
/** A node that is there but refuses for this long, while others could serve, is left. */
const refusalsMsMax = 1_000;

export class ClientSession {
  private readonly options: SessionOptions;
  /** In the order in which they were asked. */
  private readonly pending = new Map<number, Pending>();
  private connection: Connection<ClientItemInit> | undefined;
  private endpoint: Endpoint | undefined;
  /** While an answer is owed. */
  private watched: Watched | undefined;
  private openedMs = 0;
  private lastRequest = 0;
  private isClosed = false;
  private isDown = false;
  private downMs = 0;
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
    this.unwatch();
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
      this.watch(this.connection);
    } catch (error) {
      this.settle(request)?.reject(error as Error);
    }
  }

  /** From the first request to the last answer. */
  private watch(connection: Connection<ClientItemInit>): void {
    if (this.watched !== undefined || this.endpoint === undefined) return;
    this.watched = this.options.pulse.watch(this.endpoint, (problem) => connection.close(problem));
  }

  private unwatch(): void {
    this.watched?.done();
    this.watched = undefined;
  }

  private open(): void {
    this.reconnect = undefined;
    const { endpoints, metadata, retryMs } = this.options;
    const endpoint = endpoints.current();
    const connection = connectGrpc(
      endpoint.client,
      sessionPath,
      clientCodec,
      bounds,
      () => ({
        item: (item: ReplyItem) => this.receive(item),
        ended: () => this.connection?.end(),
        closed: (closing: Closing) => this.lost(connection, endpoint.address, closing),
      }),
      metadata,
    );
    this.connection = connection;
    this.endpoint = endpoint;
    this.openedMs = performance.now();
    const connectMs = Math.min(Math.max(retryMs, connectMsMin), endpoints.count > 1 ? connectMsMax.withOthers : connectMsMax.alone);
    endpoint.client.waitForReady(Date.now() + connectMs, (error) => {
      if (this.connection !== connection) return;
      if (error !== undefined) connection.close(`no connection within ${Math.round(connectMs)} ms`);
      else setTimeout(() => this.connection === connection && this.up(), settledMs);
    });
    for (const [request, pending] of this.pending) if (pending.timer === undefined) this.send(request);
  }

  private up(): void {
    if (this.isDown && !this.isClosed) this.options.onConnection("back");
    this.isDown = false;
    clearTimeout(this.outage);
    this.losses = 0;
    if (this.endpoint !== undefined) this.options.endpoints.worked(this.endpoint.address);
  }

  private receive(item: ReplyItem): void {
    this.watched?.heard();
    // It tells that the stream began, not that it is of use.
    if (item.kind === "nodes") return this.options.endpoints.learn(item.value.address);
    this.up();
    const pending = this.pending.get(item.request);
    if (pending === undefined) return;
    if (item.kind === "error") {
      this.refused(item.request, pending, detailError(item.value));
      return;
    }
    this.settle(item.request);
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
    if (performance.now() - pending.refusedMs >= waitingMs) this.options.onWaiting(error.message);
    this.moveAway(pending, error);
    pending.tries++;
    pending.timer = setTimeout(
      () => {
        pending.timer = undefined;
        this.send(request);
      },
      backoffMs(pending.tries, error.retryAfterMs),
    );
  }

  /** A node that is cut off from the others refuses for as long as it is: another one may serve. */
  private moveAway(pending: Pending, error: HopError): void {
    const { endpoints } = this.options;
    const nowMs = performance.now();
    if (error.reason === "BUFFER_FULL" || endpoints.count < 2) return;
    if (nowMs - (pending.refusedMs ?? nowMs) < refusalsMsMax || nowMs - this.openedMs < refusalsMsMax) return;
    // What is never sent again would be lost with the stream.
    for (const other of this.pending.values()) if (!other.isIdempotent) return;
    this.connection?.close(error.message);
  }

  private lost(connection: Connection<ClientItemInit>, address: string, closing: Closing): void {
    if (this.connection !== connection || this.isClosed) return;
    this.connection = undefined;
    this.unwatch();
    this.losses++;
    const cause = new Error(closing.message);
    const { endpoints } = this.options;
    const problem = closing.message.replace(/^UNAVAILABLE: /, "");
    endpoints.failed(address, problem);
    for (const [request, pending] of this.pending) {
      if (pending.isIdempotent || pending.timer !== undefined) continue;
      this.settle(request)?.reject(
        new UnavailableError("STORE_UNAVAILABLE", `The stream to ${address} was lost before the reply came`, { cause }),
      );
    }
    // An idle stream is opened again by the next request.
    if (this.pending.size === 0) return;
    if (!this.isDown) this.down(cause);
    else if (performance.now() - this.downMs >= waitingMs) this.options.onWaiting(endpoints.tried());
    // Each node is tried once before any is waited for.
    const others = endpoints.count - 1;
    this.reconnect = setTimeout(() => this.open(), this.losses <= others ? 0 : backoffMs(this.losses - others));
  }

  /** Begins an outage: what waits for its end fails when it lasts too long. */
  private down(cause: Error): void {
    const { endpoints, retryMs, onConnection } = this.options;
    this.isDown = true;
    this.downMs = performance.now();
    onConnection("lost");
    this.outage = setTimeout(() => {
      this.isDown = false;
      this.failAll(
        new UnavailableError("STORE_UNAVAILABLE", `Cannot reach the server for ${Math.round(retryMs)} ms: tried ${endpoints.tried()}`, {
          cause,
        }),
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
    if (this.pending.size === 0) this.unwatch();
    return pending;
  }
}
