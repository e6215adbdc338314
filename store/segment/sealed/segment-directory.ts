/**
 * The end of an index: where everything is, in the index and in the segment, and its hash.
 *
 * Whoever has it needs neither the Parquet file's footer nor more than one block and one part of a
 * row group to find a history. Blocks follow each other from the index's first byte on, the filter
 * follows them; row groups follow each other behind the four bytes with which a Parquet file begins.
 */
import { CodecError, Reader, Writer } from "#proto";
import type { BlockStart } from "./index-block.ts";
import { sealedFormat } from "./summary.ts";

const hashBytes = 32;
/** Bytes with which a Parquet file begins, and ends. */
export const magicBytes = 4;

/** Bytes of an object with their hash. */
export interface Extent {
  readonly at: number;
  readonly bytes: number;
  readonly sha256: Uint8Array;
}

/** Compressed values of a column, in the history part. */
export interface BodyPlace {
  readonly at: number;
  readonly bytes: number;
}

export interface RowGroupPlace {
  readonly firstRow: number;
  readonly rows: number;
  /** The columns that are copies, and the ones that histories are read from. */
  readonly copy: Extent;
  readonly history: Extent;
  readonly logIndex: BodyPlace;
  readonly term: BodyPlace;
  readonly hash: BodyPlace;
  readonly event: BodyPlace;
  /** Of the column of events, decompressed. */
  readonly eventBytes: number;
}

export interface BlockPlace extends BlockStart {
  readonly extent: Extent;
}

export interface SegmentDirectory {
  readonly format: number;
  readonly shard: number;
  readonly firstIndex: number;
  readonly lastIndex: number;
  readonly rows: number;
  readonly segmentBytes: number;
  readonly segmentSha256: Uint8Array;
  readonly rowGroups: readonly RowGroupPlace[];
  readonly blocks: readonly BlockPlace[];
  readonly filter: Extent;
}

export function encodeDirectory(directory: SegmentDirectory): Uint8Array {
  const writer = new Writer();
  for (const value of [
    directory.format,
    directory.shard,
    directory.firstIndex,
    directory.lastIndex,
    directory.rows,
    directory.segmentBytes,
  ])
    writer.varint(value);
  writer.raw(directory.segmentSha256);
  writer.varint(directory.rowGroups.length);
  for (const group of directory.rowGroups) {
    writer.varint(group.rows);
    putExtent(writer, group.copy);
    putExtent(writer, group.history);
    for (const { at, bytes } of [group.logIndex, group.term, group.hash, group.event]) {
      writer.varint(at);
      writer.varint(bytes);
    }
    writer.varint(group.eventBytes);
  }
  writer.varint(directory.blocks.length);
  for (const { name, seq, row, extent } of directory.blocks) {
    writer.varint(name.length);
    writer.raw(name);
    writer.varint(seq);
    writer.varint(row);
    putExtent(writer, extent);
  }
  putExtent(writer, directory.filter);
  return writer.finish();
}

/** Where an extent begins follows from the one before. */
function putExtent(writer: Writer, { bytes, sha256 }: Extent): void {
  writer.varint(bytes);
  writer.raw(sha256);
}

/** Throws `CodecError` where the bytes are no directory of a format that is known. */
export function decodeDirectory(bytes: Uint8Array): SegmentDirectory {
  const reader = new DirectoryReader(bytes);
  const format = reader.varint();
  if (format !== sealedFormat) throw new CodecError(`Cannot read a directory: its format is ${format}, known is ${sealedFormat}`);
  const [shard, firstIndex, lastIndex, rows, segmentBytes] = [
    reader.varint(),
    reader.varint(),
    reader.varint(),
    reader.varint(),
    reader.varint(),
  ];
  const segmentSha256 = reader.hash();
  reader.next = magicBytes;
  let firstRow = 0;
  const rowGroups = reader.list(() => {
    const group = reader.rowGroup(firstRow);
    firstRow += group.rows;
    return group;
  });
  reader.next = 0;
  const blocks = reader.list(() => reader.block());
  const filter = reader.extentOf();
  if (reader.at !== bytes.length) throw new CodecError(`Cannot read a directory: ${bytes.length - reader.at} bytes follow it`);
  if (firstRow !== rows) throw new CodecError(`Cannot read a directory: its row groups have ${firstRow} rows, want ${rows}`);
  return { format, shard, firstIndex, lastIndex, rows, segmentBytes, segmentSha256, rowGroups, blocks, filter };
}

class DirectoryReader extends Reader {
  /** Where the next extent begins. */
  next = 0;

  hash(): Uint8Array {
    return this.raw(hashBytes);
  }

  list<T>(item: () => T): T[] {
    const count = this.varint();
    const items: T[] = [];
    for (let i = 0; i < count; i++) items.push(item());
    return items;
  }

  extentOf(): Extent {
    const bytes = this.varint();
    const extent = { at: this.next, bytes, sha256: this.hash() };
    this.next += bytes;
    return extent;
  }

  rowGroup(firstRow: number): RowGroupPlace {
    const rows = this.varint();
    const copy = this.extentOf();
    const history = this.extentOf();
    const body = () => this.body(history.bytes);
    return { firstRow, rows, copy, history, logIndex: body(), term: body(), hash: body(), event: body(), eventBytes: this.varint() };
  }

  block(): BlockPlace {
    const name = this.raw(this.varint());
    return { name, seq: this.varint(), row: this.varint(), extent: this.extentOf() };
  }

  private body(end: number): BodyPlace {
    const place = { at: this.varint(), bytes: this.varint() };
    if (place.at + place.bytes > end)
      throw new CodecError(`Cannot read a directory: a column ends at ${place.at + place.bytes} of ${end} bytes`);
    return place;
  }

  private raw(length: number): Uint8Array {
    const to = this.at + length;
    if (to > this.bytes.length) throw new CodecError("Cannot read a directory: it ends too early");
    const out = this.bytes.slice(this.at, to);
    this.at = to;
    return out;
  }
}
