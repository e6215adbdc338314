/**
 * A two-way stream of items between two processes, or between two parts of one.
 *
 * It has three forms (gRPC, a framed socket, in-process) with one behaviour: items arrive whole
 * and in order; what is sent in one tick leaves as one frame; a stream ends by itself only where
 * one side ended it, the peer is gone, sent something malformed, or takes nothing any more.
 */
import type { Reader } from "../codec/reader.ts";
import type { Writer } from "../codec/writer.ts";

/** How items are written and read on one side of a stream. */
export interface ItemCodec<Out, In> {
  readonly encodeOut: (writer: Writer, item: Out) => void;
  readonly decodeIn: (reader: Reader, end: number) => In;
}

/** Sizes in bytes. `limits` of core/base fits. */
export interface FrameBounds {
  /** A frame ends before the item that would take it above this size. */
  readonly frameBytesSoft: number;
  /** No frame, and so no item, is larger: a peer that sends one is cut off. */
  readonly frameBytesMax: number;
  /** With more than this waiting to be sent, the peer counts as dead. */
  readonly bufferedBytesMax: number;
}

export interface Connection<Out> {
  /**
   * Encodes `item` at once, so that its bytes may change afterwards, and sends it with the tick's
   * frame. Does nothing on a stream that is over. Throws `RangeError` for an item above the bound.
   */
  send(item: Out): void;
  /** Bytes accepted by `send` that have not left this process yet. */
  readonly bufferedBytes: number;
  readonly isOver: boolean;
  /** Sends what is left, then ends this side. A server's end finishes the stream for both. */
  end(): void;
  /** Ends the stream at once, both ways; what was not sent is lost. The peer sees it as lost. */
  close(reason: string): void;
  /** Stops reading, until `resume`: the peer comes to feel it. */
  pause(): void;
  resume(): void;
}

export interface Receiver<In> {
  /** One item; its bytes are views that stay as they are. */
  item(item: In): void;
  /** The peer sends nothing more. To finish the stream, end this side too. */
  ended(): void;
  /** The stream is over. Called once, and nothing after it. */
  closed(closing: Closing): void;
}

export interface Closing {
  /**
   * `finished`: both sides ended it. `lost`: the peer or the road to it is gone, or was too slow.
   * `malformed`: the peer sent what can't be read. `closed`: this side called `close`.
   */
  readonly kind: "finished" | "lost" | "malformed" | "closed";
  readonly message: string;
}

/** Called with a new stream before anything is read from it. */
export type Open<Out, In> = (connection: Connection<Out>) => Receiver<In>;
