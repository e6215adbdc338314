/**
 * What the rest of a node needs from the network between nodes: unreliable Raft messages, calls,
 * and streams of chunks, each to a node by its number.
 *
 * Nothing here retries. A message that was taken may be lost with its link; a call that failed may
 * have been carried out.
 */
import { HopError, type NodeId, type ShardId } from "#core/base";
import type { RaftMessage, RaftMessageInit } from "#proto";

/** A call of which nothing left this node: nobody has carried it out, and it may be tried elsewhere. */
export class NotSentError extends HopError {
  /** The rule by which the peer, or this node, turned the other away; undefined where it could not be reached. */
  readonly rule: string | undefined;

  constructor(message: string, options: { retryAfterMs?: number; cause?: unknown; rule?: string | undefined } = {}) {
    super("STORE_UNAVAILABLE", message, options);
    this.rule = options.rule;
  }
}

export const neverSent = (error: unknown): error is NotSentError => error instanceof NotSentError;

export interface CallOptions {
  /** Gives up after this long with BUDGET_EXPIRED. Left out: 10 s for a call, never for a stream. */
  readonly timeoutMs?: number | undefined;
  /** Gives up when it aborts: rejects with the signal's reason. */
  readonly signal?: AbortSignal | undefined;
}

export interface StreamOptions extends CallOptions {
  /** Bytes that may be under way unread. Left out: 2 MiB. */
  readonly windowBytes?: number;
}

export interface ServeOptions {
  /** Also a node that belongs to no cluster yet may ask; `from` is 0 then. */
  readonly forStrangers?: boolean;
}

/**
 * `from` is the node that asks, 0 = one that is joining. `gone` aborts when nobody wants the
 * answer any more. A thrown `HopError` reaches the caller with its reason, anything else as INTERNAL.
 */
export type CallHandler = (from: NodeId, body: Uint8Array, gone: AbortSignal) => Promise<Uint8Array> | Uint8Array;
/** Each chunk is at most 16 MiB. Chunks are asked for no faster than the other side reads them. */
export type StreamHandler = (from: NodeId, body: Uint8Array, gone: AbortSignal) => AsyncIterable<Uint8Array>;

/** Where a call goes that is meant for an address and not for a node. */
export interface PeerPlace {
  /** host:port; an address, or a name that is resolved at each dial. */
  readonly address: string;
  /** Name that the certificate must bear, where links are encrypted. Left out: the host. */
  readonly serverName?: string;
}

export interface PeerNet {
  /** This node's number; 0 while it is joining. */
  readonly self: NodeId;
  /** host:port where it listens. */
  readonly address: string;
  /** Encodes the message at once and sends it with the tick's frame. Unreliable; false = dropped. Dials where there is no link. */
  sendRaft(to: NodeId, shard: ShardId, message: RaftMessageInit): boolean;
  /** Byte fields of the message are views that stay as they are. */
  onRaft: (from: NodeId, shard: ShardId, message: RaftMessage) => void;
  /**
   * Asks and waits for the answer. A call to this node itself is carried out at once, without a link.
   *
   * Rejects with `HopError`: STORE_UNAVAILABLE where the peer can't be reached, too much waits for
   * it, or the link breaks, and that as `NotSentError` where nothing of the call was handed to a
   * link that was up; BUDGET_EXPIRED at the timeout; else what the peer refused it with.
   */
  call(to: NodeId, method: string, body: Uint8Array, options?: CallOptions): Promise<Uint8Array>;
  /** The same of whoever is at a place, such as a seed. */
  callAt(place: PeerPlace, method: string, body: Uint8Array, options?: CallOptions): Promise<Uint8Array>;
  serve(method: string, handler: CallHandler, options?: ServeOptions): void;
  /** Begins when it is first read. Fails as a call does. Leaving the loop tells the peer to stop. */
  stream(to: NodeId, method: string, body: Uint8Array, options?: StreamOptions): AsyncIterable<Uint8Array>;
  /** The same of whoever is at a place. */
  streamAt(place: PeerPlace, method: string, body: Uint8Array, options?: StreamOptions): AsyncIterable<Uint8Array>;
  serveStream(method: string, handler: StreamHandler, options?: ServeOptions): void;
  /** Where nodes are (host:port); replaces what was known. Links to nodes that are gone or moved are closed. */
  setPeers(addresses: ReadonlyMap<NodeId, string>): void;
  /** The link to `node` is up. */
  onReachable: (node: NodeId) => void;
  /** The link to `node` went down, or none could be made. Told once until it is up again. */
  onUnreachable: (node: NodeId) => void;
  /** Monotonic milliseconds (`performance.now`) when something was last heard from it; 0 = never in this life. */
  lastHeardMs(node: NodeId): number;
  /**
   * What this node's idle groups have to say to `to`, asked every 100 ms for each link that is up;
   * undefined = nothing, and the node is shown to live every 500 ms.
   */
  beatPayload: (to: NodeId) => Uint8Array | undefined;
  onBeat: (from: NodeId, payload: Uint8Array) => void;
  /** Drops all links; calls under way reject. Nothing is called afterwards. */
  close(): void;
}
