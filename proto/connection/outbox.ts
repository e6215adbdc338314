/**
 * Items on their way out, encoded one behind the other where frames are cut from.
 *
 * A frame is a message of `repeated item = 1`, so the encoded items of a tick are one already.
 */
import { Writer } from "../codec/writer.ts";
import type { FrameBounds } from "./connection.ts";

const itemTag = 10;
const capacityInitial = 1 << 14;
/** A larger buffer is given back once it is empty. */
const capacityKept = 1 << 22;

export class Outbox<Out> {
  private readonly writer = new Writer(capacityInitial);
  private readonly encode: (writer: Writer, item: Out) => void;
  private readonly bounds: FrameBounds;
  /** Ends of the frames that are complete; the last frame is still open. */
  private cuts: number[] = [];
  private from = 0;
  private frameStart = 0;

  constructor(encode: (writer: Writer, item: Out) => void, bounds: FrameBounds) {
    this.encode = encode;
    this.bounds = bounds;
  }

  get bytes(): number {
    return this.writer.at - this.from;
  }

  /** Throws `RangeError` where the item alone is above `frameBytesMax`; the outbox is then as before. */
  add(item: Out): void {
    const writer = this.writer;
    const start = writer.at;
    try {
      const mark = writer.begin(itemTag);
      this.encode(writer, item);
      writer.close(mark);
    } catch (error) {
      writer.at = start;
      throw error;
    }
    const bytes = writer.at - start;
    if (bytes > this.bounds.frameBytesMax) {
      writer.at = start;
      throw new RangeError(`Cannot send an item: it has ${bytes} bytes, at most ${this.bounds.frameBytesMax} are allowed`);
    }
    if (start > this.frameStart && writer.at - this.frameStart > this.bounds.frameBytesSoft) {
      this.cuts.push(start);
      this.frameStart = start;
    }
  }

  /** A copy of the next frame behind `headroom` bytes left for the link, or undefined. */
  next(headroom: number): Uint8Array | undefined {
    const to = this.cuts.shift() ?? this.writer.at;
    if (to === this.from) return undefined;
    const frame = Buffer.allocUnsafe(headroom + to - this.from);
    frame.set(this.writer.bytes.subarray(this.from, to), headroom);
    this.from = to;
    if (to === this.writer.at) this.reset();
    else this.compact();
    return frame;
  }

  private reset(): void {
    this.writer.at = 0;
    this.from = 0;
    this.frameStart = 0;
    if (this.writer.bytes.length > capacityKept) this.writer.bytes = new Uint8Array(capacityInitial);
  }

  /** A slow peer may keep the outbox from ever being empty: what left is overwritten in time. */
  private compact(): void {
    const { from, writer } = this;
    if (from < capacityKept || from < writer.at / 2) return;
    writer.bytes.copyWithin(0, from, writer.at);
    writer.at -= from;
    this.frameStart -= from;
    this.cuts = this.cuts.map((cut) => cut - from);
    this.from = 0;
  }
}
