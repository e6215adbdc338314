/**
 * Records packed one behind the other into buffers of about a megabyte: what goes to the thread that
 * seals, and what rows are views of.
 *
 * A record is index, term, kind (0 = data, 1 = config), length and body, all numbers varints.
 */
import { asIndex, asTerm, type Index, type Term } from "#core/base";
import { Reader, Writer } from "#proto";
import type { EntryKind, LogRecord } from "../../log/log-store.ts";

const batchBytes = 1 << 20;
const headBytesMax = 40;

export type RecordToSeal = Pick<LogRecord, "index" | "term" | "kind" | "body">;

type Batch = Uint8Array<ArrayBuffer>;

/** Packs records in order. Nothing of a batch is touched once it is given out. */
export class RecordPacker {
  private writer = new Writer(batchBytes);

  /** Takes in a copy of the record. Returns the batch that is full, where the record begins another one. */
  add({ index, term, kind, body }: RecordToSeal): Batch | undefined {
    const isFull = this.writer.at > 0 && this.writer.at + body.length + headBytesMax > batchBytes;
    const full = isFull ? this.rest() : undefined;
    const { writer } = this;
    writer.varint(index);
    writer.varint(term);
    writer.varint(kind === "data" ? 0 : 1);
    writer.varint(body.length);
    writer.raw(body);
    return full;
  }

  /** What is not in a batch yet; undefined where that is nothing. */
  rest(): Batch | undefined {
    const { writer } = this;
    if (writer.at === 0) return undefined;
    this.writer = new Writer(batchBytes);
    return batchOf(writer);
  }
}

export async function* packRecords(records: AsyncIterable<RecordToSeal> | Iterable<RecordToSeal>): AsyncGenerator<Batch> {
  const packer = new RecordPacker();
  for await (const record of records) {
    const full = packer.add(record);
    if (full !== undefined) yield full;
  }
  const rest = packer.rest();
  if (rest !== undefined) yield rest;
}

const batchOf = (writer: Writer) => writer.bytes.subarray(0, writer.at) as Batch;

/** A record in a batch: its body is the batch's [at, end). */
export interface PackedRecord {
  readonly index: Index;
  readonly term: Term;
  readonly kind: EntryKind;
  readonly at: number;
  readonly end: number;
}

/** Steps from record to record of a batch, and is each in turn: for those who look at many. */
export class RecordCursor implements PackedRecord {
  index = asIndex(0);
  term = asTerm(0);
  kind: EntryKind = "data";
  at = 0;
  end = 0;
  private readonly reader: Reader;

  constructor(batch: Uint8Array) {
    this.reader = new Reader(batch);
  }

  /** False behind the last record. */
  next(): boolean {
    const { reader } = this;
    reader.at = this.end;
    if (reader.at >= reader.bytes.length) return false;
    this.index = asIndex(reader.varint());
    this.term = asTerm(reader.varint());
    this.kind = reader.varint() === 0 ? "data" : "config";
    this.end = reader.extent(reader.bytes.length);
    this.at = reader.at;
    return true;
  }
}

export function* packedRecords(batch: Uint8Array): Generator<PackedRecord> {
  const cursor = new RecordCursor(batch);
  while (cursor.next()) {
    const { index, term, kind, at, end } = cursor;
    yield { index, term, kind, at, end };
  }
}

/** The records of batches, as they were packed: bodies are views of the batches. */
export function* unpackRecords(batches: Iterable<Uint8Array>): Generator<RecordToSeal> {
  for (const batch of batches)
    for (const { index, term, kind, at, end } of packedRecords(batch)) yield { index, term, kind, body: batch.subarray(at, end) };
}

/** Indexes of the first and the last record of a batch, which is not empty. */
export function batchExtent(batch: Uint8Array): { readonly first: Index; readonly last: Index } {
  let [first, last] = [0, 0];
  for (const cursor = new RecordCursor(batch); cursor.next(); last = cursor.index) if (first === 0) first = cursor.index;
  return { first: asIndex(first), last: asIndex(last) };
}
