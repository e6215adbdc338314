/**
 * The frames of one flush, encoded in a buffer that is kept for ever.
 *
 * A batch that outgrows it borrows a larger buffer, and gives that back when it has been written.
 */
import { asIndex, assert, asTerm } from "#core/base";
import { Writer } from "#proto";
import type { LogEntry } from "./log-store.ts";
import {
  eachHead,
  entryKindOf,
  type FrameHead,
  frameBytes,
  isRebase,
  isRecord,
  type Origin,
  originBytes,
  type PlacedHead,
  type Salt,
  sealFrames,
  setWide,
  viewOf,
  voteBytes,
  writeHead,
  writeLength,
  writeMarkerHead,
} from "./record-frame.ts";

export class RecordBatch {
  readonly writer: Writer;
  /** Frames in it, but for a marker. */
  count = 0;
  private readonly home: Uint8Array;
  private view: DataView;
  private opened = -1;

  constructor(bufferBytes: number) {
    this.writer = new Writer(bufferBytes);
    this.home = this.writer.bytes;
    this.view = viewOf(this.home);
  }

  get bytes(): number {
    return this.writer.at;
  }

  get isOpen(): boolean {
    return this.opened >= 0;
  }

  begin(head: FrameHead): Writer {
    assert(this.opened < 0, "a record is ended before the next one begins");
    const writer = this.writer;
    const at = writer.at;
    writer.room(frameBytes);
    writeHead(this.viewNow(), at, head);
    this.opened = at;
    writer.at = at + frameBytes;
    return writer;
  }

  end(): void {
    assert(this.opened >= 0, "a record that ends has begun");
    const writer = this.writer;
    const bodyBytes = writer.at - this.opened - frameBytes;
    const padding = -bodyBytes & 7;
    writer.room(padding);
    for (let i = 0; i < padding; i++) writer.bytes[writer.at++] = 0;
    writeLength(this.viewNow(), this.opened, bodyBytes);
    this.opened = -1;
    this.count++;
  }

  /** A whole frame at once. */
  add(head: FrameHead, body?: Uint8Array): void {
    const writer = this.begin(head);
    if (body !== undefined) writer.raw(body);
    this.end();
  }

  /** A frame that says a vote. */
  addVote(head: FrameHead, vote: number): void {
    const writer = this.begin(head);
    writer.room(voteBytes);
    setWide(this.viewNow(), writer.at, vote);
    writer.at += voteBytes;
    this.end();
  }

  /** A copy of a record that was written elsewhere at first. */
  addMoved(head: FrameHead, { segment, offset }: Origin, body: Uint8Array): void {
    const writer = this.begin(head);
    writer.room(originBytes);
    const view = this.viewNow();
    view.setUint32(writer.at, segment, true);
    view.setUint32(writer.at + 4, offset, true);
    writer.at += originBytes;
    writer.raw(body);
    this.end();
  }

  /** A copy of what the open frame's body is by now. */
  openBody(): Uint8Array {
    assert(this.opened >= 0, "a record is open");
    return this.writer.bytes.slice(this.opened + frameBytes, this.writer.at);
  }

  addMarker(): void {
    assert(this.opened < 0 && this.writer.at === 0, "a marker has a flush of its own");
    writeMarkerHead(this.viewNow(), 0);
    this.writer.at = frameBytes;
  }

  seal(salt: Salt, fileOffset: number): void {
    sealFrames(this.writer.bytes, this.writer.at, salt, fileOffset);
  }

  /** Tells the place of each frame, with the batch at `fileOffset`. */
  eachFrame(fileOffset: number, tell: (head: PlacedHead, bodyAt: number, bodyBytes: number) => void): void {
    eachHead(this.writer.bytes, this.writer.at, fileOffset, tell);
  }

  /**
   * Lays the shard's records with index in [from, end) into `out`, from `out[0]` on, with copies of
   * their bytes; what a later frame overwrites goes.
   */
  collect(shard: number, { from, end }: { readonly from: number; readonly end: number }, out: LogEntry[]): void {
    this.eachFrame(0, (head, bodyAt, bodyBytes) => {
      if (head.shard !== shard || !(isRecord(head.kind) || isRebase(head.kind))) return;
      out.length = Math.max(0, Math.min(out.length, head.index - from));
      if (isRebase(head.kind) || head.index < from || head.index >= end) return;
      const data = this.writer.bytes.slice(bodyAt, bodyAt + bodyBytes);
      out.push({ index: asIndex(head.index), term: asTerm(head.term), kind: entryKindOf(head.kind), data });
    });
  }

  clear(): void {
    if (this.writer.bytes !== this.home) this.writer.bytes = this.home;
    this.writer.at = 0;
    this.count = 0;
  }

  /** The writer replaces its buffer when it grows. */
  private viewNow(): DataView {
    if (this.view.buffer !== this.writer.bytes.buffer) this.view = viewOf(this.writer.bytes);
    return this.view;
  }
}
