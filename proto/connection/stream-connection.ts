/**
 * The part of a connection that is the same in all its forms: frames out of items, items out of
 * frames, and the order in which a stream ends.
 */
import { CodecError, Reader } from "../codec/reader.ts";
import type { Closing, Connection, FrameBounds, ItemCodec, Open, Receiver } from "./connection.ts";
import { Outbox } from "./outbox.ts";

/** Carries frames. Each form implements it and reports to a `StreamConnection`. */
export interface Link {
  /** Bytes that the link writes of its own in front of a frame; they are left free. */
  readonly headroom: number;
  /** Frame bytes handed to `write` that have not left yet. */
  readonly bufferedBytes: number;
  /** Takes the frame (headroom included). False: `drained` will be called before more is wanted. */
  write(frame: Uint8Array): boolean;
  /** Ends this side after what was written. */
  end(): void;
  /** Tears the stream down; the link reports nothing afterwards. */
  destroy(closing: Closing): void;
  pause(): void;
  resume(): void;
}

const itemTag = 10;

export class StreamConnection<Out, In> implements Connection<Out> {
  private readonly outbox: Outbox<Out>;
  private readonly codec: ItemCodec<Out, In>;
  private readonly bounds: FrameBounds;
  private readonly receiver: Receiver<In>;
  /** Why the stream was closed before it had a link. */
  private closedEarly: Closing | undefined;
  private link: Link | undefined;
  private isWritable = true;
  private isArmed = false;
  private isEnding = false;
  private isEnded = false;
  isOver = false;

  constructor(codec: ItemCodec<Out, In>, bounds: FrameBounds, open: Open<Out, In>) {
    this.codec = codec;
    this.bounds = bounds;
    this.outbox = new Outbox(codec.encodeOut, bounds);
    this.receiver = open(this);
  }

  /** Gives the connection its link. What `open` sent already leaves with the tick. */
  attach(link: Link): void {
    this.link = link;
    if (this.closedEarly === undefined) {
      this.arm();
      return;
    }
    link.destroy(this.closedEarly);
    this.receiver.closed(this.closedEarly);
  }

  get bufferedBytes(): number {
    return this.outbox.bytes + (this.link?.bufferedBytes ?? 0);
  }

  send(item: Out): void {
    if (this.isOver || this.isEnding) return;
    this.outbox.add(item);
    const waiting = this.bufferedBytes;
    if (waiting > this.bounds.bufferedBytesMax) {
      this.finish({
        kind: "lost",
        message: `The peer takes too little: ${waiting} bytes wait for it, at most ${this.bounds.bufferedBytesMax} may`,
      });
    } else this.arm();
  }

  end(): void {
    this.isEnding = true;
    this.arm();
  }

  close(reason: string): void {
    this.finish({ kind: "closed", message: reason });
  }

  pause(): void {
    this.link?.pause();
  }

  resume(): void {
    this.link?.resume();
  }

  /** The link has room again. */
  drained(): void {
    this.isWritable = true;
    this.flush();
  }

  /** A frame came in; its memory is this connection's own from now on. */
  frame(bytes: Uint8Array): void {
    try {
      this.read(bytes);
    } catch (error) {
      if (error instanceof CodecError) this.finish({ kind: "malformed", message: error.message });
      else this.fail(error);
    }
  }

  /** The peer ended its side. */
  peerEnded(): void {
    if (!this.isOver) this.receiver.ended();
  }

  /** The link is gone, by itself. */
  gone(closing: Closing): void {
    if (this.isOver) return;
    this.isOver = true;
    this.receiver.closed(closing);
  }

  private read(bytes: Uint8Array): void {
    const reader = new Reader(bytes);
    const end = bytes.length;
    while (reader.at < end && !this.isOver) {
      const tag = reader.varint();
      if (tag === itemTag) this.receiver.item(this.codec.decodeIn(reader, reader.extent(end)));
      else reader.skip(tag, end);
    }
    if (reader.at > end) throw new CodecError(`Cannot read a frame: it ends ${reader.at - end} bytes too early`);
  }

  /** A fault of the receiver is a bug: the stream ends and the process hears of it, whatever the link would do with a throw. */
  private fail(error: unknown): void {
    this.finish({ kind: "closed", message: `The receiver failed: ${String(error)}` });
    queueMicrotask(() => {
      throw error;
    });
  }

  private arm(): void {
    if (this.isArmed) return;
    this.isArmed = true;
    queueMicrotask(this.onTick);
  }

  private readonly onTick = (): void => {
    this.isArmed = false;
    this.flush();
  };

  private flush(): void {
    const link = this.link;
    if (this.isOver || link === undefined) return;
    while (this.isWritable) {
      const frame = this.outbox.next(link.headroom);
      if (frame === undefined) break;
      this.isWritable = link.write(frame);
      // The peer of an in-process stream may have closed it while it read this frame.
      if (this.isOver) return;
    }
    if (!this.isEnding || this.isEnded || this.outbox.bytes > 0) return;
    this.isEnded = true;
    link.end();
  }

  private finish(closing: Closing): void {
    if (this.isOver) return;
    this.isOver = true;
    if (this.link === undefined) {
      this.closedEarly = closing;
      return;
    }
    this.link.destroy(closing);
    this.receiver.closed(closing);
  }
}
