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

/** Packs `records` in order. Nothing of a batch is touched once it is given out. */
export async function* packRecords(records: AsyncIterable<RecordToSeal> | Iterable<RecordToSeal>): AsyncGenerator<Uint8Array<ArrayBuffer>> {
  let writer = new Writer(batchBytes);
  for await (const record of records) {
    if (writer.at > 0 && writer.at + record.body.length + headBytesMax > batchBytes) {
      yield batchOf(writer);
      writer = new Writer(batchBytes);
    }
    writer.varint(record.index);
    writer.varint(record.term);
    writer.varint(record.kind === "data" ? 0 : 1);
    writer.varint(record.body.length);
    writer.raw(record.body);
  }
  if (writer.at > 0) yield batchOf(writer);
}

const batchOf = (writer: Writer) => writer.bytes.subarray(0, writer.at) as Uint8Array<ArrayBuffer>;

/** A record in a batch: its body is the batch's [at, end). */
export interface PackedRecord {
  readonly index: Index;
  readonly term: Term;
  readonly kind: EntryKind;
  readonly at: number;
  readonly end: number;
}

export function* packedRecords(batch: Uint8Array): Generator<PackedRecord> {
  const reader = new Reader(batch);
  while (reader.at < batch.length) {
    const index = asIndex(reader.varint());
    const term = asTerm(reader.varint());
    const kind = reader.varint() === 0 ? "data" : "config";
    const end = reader.extent(batch.length);
    yield { index, term, kind, at: reader.at, end };
    reader.at = end;
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
  for (const { index } of packedRecords(batch)) {
    if (first === 0) first = index;
    last = index;
  }
  return { first: asIndex(first), last: asIndex(last) };
}
