/** The columns of one row group that histories are read from, out of bytes whose hash is right. */
import { bytesEqual, type Partition, toHex } from "#core/base";
import { CodecError } from "#proto";
import { eventSeq, isOfPartition } from "../../event-head.ts";
import { putSuffix, suffixBytes } from "./event-fields.ts";
import type { RowTable } from "./row-table.ts";
import type { BodyPlace, RowGroupPlace } from "./segment-directory.ts";

const hashBytes = 32;

/** What the event of a row must be. */
export interface EventWanted {
  readonly partition: Partition;
  readonly seq: number;
  readonly prevHash: Uint8Array;
}

export class HistoryPart {
  private readonly group: RowGroupPlace;
  private readonly bytes: Uint8Array;
  private readonly events: Uint8Array;
  /** Where in `events` each row's bytes begin and end. */
  private readonly starts: Uint32Array;
  private readonly ends: Uint32Array;
  private indexes: Float64Array | undefined;
  private terms: Float64Array | undefined;

  /** `bytes` are those of `group.history`. Throws `CodecError` where they are not what the directory says. */
  constructor(group: RowGroupPlace, bytes: Uint8Array) {
    this.group = group;
    this.bytes = bytes;
    this.events = this.plain(group.event, group.eventBytes);
    this.starts = new Uint32Array(group.rows);
    this.ends = new Uint32Array(group.rows);
    if (group.hash.bytes !== group.rows * hashBytes)
      throw new CodecError(`Cannot read hashes: ${group.hash.bytes} bytes for ${group.rows} rows`);
    this.findEvents();
  }

  /** The first row of the segment whose event, hash, record or term is not that of the table's row which `order` has there. */
  differingRow(table: RowTable, order: Uint32Array): number | undefined {
    const { group, bytes, events, starts, ends } = this;
    const [indexes, terms] = [this.numbers(group.logIndex), this.numbers(group.term)];
    for (let i = 0; i < group.rows; i++) {
      const row = order[group.firstRow + i] as number;
      const isSame =
        table.isEvent(row, events, starts[i] as number, ends[i] as number) &&
        table.isHash(row, bytes, group.hash.at + i * hashBytes) &&
        indexes[i] === table.index(row) &&
        terms[i] === table.term(row);
      if (!isSame) return group.firstRow + i;
    }
    return undefined;
  }

  /** The hashes of all rows, one behind the other. */
  hashes(): Uint8Array {
    const { at, bytes } = this.group.hash;
    return this.bytes.subarray(at, at + bytes);
  }

  /** A copy of the hash of the `i`th row's event. */
  hash(i: number): Uint8Array {
    const at = this.group.hash.at + i * hashBytes;
    return this.bytes.slice(at, at + hashBytes);
  }

  /** Canonical bytes of the `i`th row's event, with `prev_hash`. Throws `CodecError` where it is another than wanted, or hashes to something else. */
  event(i: number, { partition, seq, prevHash }: EventWanted): Uint8Array {
    const [start, end] = [this.starts[i] as number, this.ends[i] as number];
    const event = new Uint8Array(end - start + suffixBytes);
    event.set(this.events.subarray(start, end));
    putSuffix(event, end - start, prevHash);
    const got = Bun.SHA256.hash(event) as Uint8Array;
    const want = this.hash(i);
    if (!bytesEqual(got, want))
      throw new CodecError(`Cannot read event ${seq} of ${partition}: its hash is ${toHex(got)}, want ${toHex(want)}`);
    if (eventSeq(event) !== seq || !isOfPartition(event, new TextEncoder().encode(partition)))
      throw new CodecError(`Cannot read event ${seq} of ${partition}: row ${this.group.firstRow + i} holds another one`);
    return event;
  }

  index(i: number): number {
    this.indexes ??= this.numbers(this.group.logIndex);
    return this.indexes[i] as number;
  }

  term(i: number): number {
    this.terms ??= this.numbers(this.group.term);
    return this.terms[i] as number;
  }

  private findEvents(): void {
    const { events } = this;
    const view = new DataView(events.buffer, events.byteOffset, events.length);
    let at = 0;
    for (let i = 0; i < this.group.rows; i++) {
      if (at + 4 > events.length) throw new CodecError(`Cannot read events: row ${i} begins at ${at} of ${events.length} bytes`);
      const start = at + 4;
      at = start + view.getUint32(at, true);
      if (at > events.length) throw new CodecError(`Cannot read events: row ${i} ends at ${at} of ${events.length} bytes`);
      this.starts[i] = start;
      this.ends[i] = at;
    }
  }

  private numbers(place: BodyPlace): Float64Array {
    const { rows } = this.group;
    const plain = this.plain(place, rows * 8);
    const view = new DataView(plain.buffer, plain.byteOffset, plain.length);
    return Float64Array.from({ length: rows }, (_, i) => view.getUint32(i * 8, true) + view.getUint32(i * 8 + 4, true) * 0x100000000);
  }

  private plain({ at, bytes }: BodyPlace, want: number): Uint8Array {
    const plain = decompressed(this.bytes.subarray(at, at + bytes));
    if (plain.length !== want) throw new CodecError(`Cannot read a column: it has ${plain.length} bytes, want ${want}`);
    return plain;
  }
}

function decompressed(bytes: Uint8Array): Uint8Array {
  try {
    return Bun.zstdDecompressSync(bytes as Uint8Array<ArrayBuffer>);
  } catch (cause) {
    throw new CodecError(`Cannot decompress a column: ${String(cause)}`);
  }
}
