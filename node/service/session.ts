/**
 * WorkflowClient.Session: many requests over one stream, each answered by its own item.
 *
 * Requests are decided in the order they came; a bad one is answered with its error and does not
 * end the stream. When the stream ends, nobody waits for its open requests any more.
 */

import { HopError } from "#core/base";
import type { ClientItem, ReplyItemInit } from "#proto";
import type { Connection, Receiver } from "#proto/connection";
import type { Caller, Calls, Prepared } from "./calls.ts";
import { errorItem, replyItem } from "./calls.ts";
import type { NodeList } from "./cluster-control.ts";
import { OrderedIntake } from "./intake.ts";

/** Open requests of one stream. Above it a request is refused until others are answered. */
const openMax = 100_000;

export interface SessionParts {
  readonly calls: Calls;
  /** Where else the client can ask: it is told when the session begins and after each change. */
  readonly nodes?: NodeList | undefined;
  /** Told when the session is over. */
  readonly onClosed: (session: Session) => void;
  /** Told of errors that are bugs. */
  readonly onFault: (error: unknown) => void;
}

export class Session implements Receiver<ClientItem> {
  private readonly connection: Connection<ReplyItemInit>;
  private readonly caller: Caller;
  private readonly parts: SessionParts;
  private readonly intake: OrderedIntake;
  /** Open requests by the client's number, with what makes Core forget them. */
  private readonly open = new Map<number, () => void>();
  private isEnding = false;
  private readonly stopNodes: (() => void) | undefined;

  constructor(connection: Connection<ReplyItemInit>, caller: Caller, parts: SessionParts) {
    this.connection = connection;
    this.caller = caller;
    this.parts = parts;
    this.intake = new OrderedIntake((isWaiting) => (isWaiting ? connection.pause() : connection.resume()));
    const { nodes } = parts;
    if (nodes === undefined) return;
    connection.send({ kind: "nodes", value: nodes.nodes() });
    this.stopNodes = nodes.onNodes((value) => connection.send({ kind: "nodes", value }));
  }

  item(item: ClientItem): void {
    const { request } = item;
    try {
      this.take(item);
    } catch (error) {
      this.refuse(request, error);
    }
  }

  /** The client asks nothing more: what is open is still answered. */
  ended(): void {
    this.isEnding = true;
    this.endWhenAnswered();
  }

  closed(): void {
    this.stopNodes?.();
    this.intake.close();
    for (const forget of this.open.values()) forget();
    this.open.clear();
    this.parts.onClosed(this);
  }

  /** The node shuts down: the client comes back on a new stream. */
  close(reason: string): void {
    this.connection.close(reason);
  }

  private take(item: ClientItem): void {
    const { request } = item;
    if (item.kind === "unknown") throw new HopError("BAD_REQUEST", "Cannot take the request: this version does not know its kind");
    if (this.open.has(request))
      throw new HopError("BAD_REQUEST", `Cannot take the request: number ${request} is still open on this stream`);
    if (this.open.size >= openMax)
      throw new HopError("BUFFER_FULL", `Cannot take the request: ${openMax} are open on this stream`, { retryAfterMs: 100 });
    const prepared = this.parts.calls.prepare(item);
    // It counts as open from here on, so that its number is not used twice while it waits.
    this.open.set(request, () => {});
    this.intake.add(
      prepared.ready,
      () => this.issue(request, prepared),
      (error) => this.settle(request, () => this.refuse(request, error)),
    );
  }

  private issue(request: number, prepared: Prepared): void {
    try {
      let isAnswered = false;
      const forget = this.parts.calls.issue(this.caller, prepared, (reply) => {
        isAnswered = true;
        this.settle(request, () => this.connection.send(replyItem(request, reply)));
      });
      if (!isAnswered) this.open.set(request, forget);
    } catch (error) {
      this.settle(request, () => this.refuse(request, error));
    }
  }

  private settle(request: number, answer: () => void): void {
    this.open.delete(request);
    answer();
    this.endWhenAnswered();
  }

  private refuse(request: number, error: unknown): void {
    if (!(error instanceof HopError)) this.parts.onFault(error);
    this.connection.send(errorItem(request, error));
  }

  private endWhenAnswered(): void {
    if (this.isEnding && this.open.size === 0) this.connection.end();
  }
}
