/**
 * The records of one flush, encoded in a buffer that is kept for ever.
 *
 * A batch that outgrows it borrows a larger buffer, and gives that back when it has been written.
 */
import { assert, type Index, type ShardId, type Term } from "#core/base";
import { Writer } from "#proto";
import { frameBytes, type Salt, sealFrames, viewOf, writeHead, writeLength, writeMarkerHead } from "./record-frame.ts";

export class RecordBatch {
  readonly writer: Writer;
  /** Data records in it. */
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

  begin(shard: ShardId, index: Index, term: Term): Writer {
    assert(this.opened < 0, "a record is ended before the next one begins");
    const writer = this.writer;
    const at = writer.at;
    writer.room(frameBytes);
    writeHead(this.viewNow(), at, { shard, index, term });
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

  addMarker(): void {
    assert(this.opened < 0 && this.writer.at === 0, "a marker has a flush of its own");
    writeMarkerHead(this.viewNow(), 0);
    this.writer.at = frameBytes;
  }

  seal(salt: Salt, fileOffset: number, each: (shard: number, index: number, offset: number) => void): void {
    sealFrames(this.writer.bytes, this.writer.at, salt, fileOffset, each);
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
