/** Turns rows of the table into a row group: its columns' bytes, and where in them our reader finds what it needs. */

import { bytesChunk, type ColumnChunk, flagChunk, hashChunk, numberChunk, PlainBytes, TextDictionary, textChunk } from "./column-chunk.ts";
import { EventFields } from "./event-fields.ts";
import { type ColumnName, columns } from "./parquet-columns.ts";
import type { RowTable } from "./row-table.ts";

export const rowGroupRows = 2048;
/** A row group that has this many bytes of events takes no more: whoever wants one history reads all of it. */
const rowGroupBytes = 512 << 10;

export interface RowGroup {
  readonly rows: number;
  /** In the order of `columns`. */
  readonly chunks: readonly ColumnChunk[];
}

/** Cuts `order` into row groups. */
export function* rowGroups(table: RowTable, order: Uint32Array): Generator<RowGroup> {
  let from = 0;
  let bytes = 0;
  for (let i = 0; i < order.length; i++) {
    const row = order[i] as number;
    bytes += table.end(row) - table.start(row);
    if (i + 1 - from < rowGroupRows && bytes < rowGroupBytes && i + 1 < order.length) continue;
    yield rowGroupOf(table, order.subarray(from, i + 1), bytes);
    from = i + 1;
    bytes = 0;
  }
}

/** `bytes` are those of all its events. */
function rowGroupOf(table: RowTable, rows: Uint32Array, bytes: number): RowGroup {
  const number = () => new Float64Array(rows.length);
  const text = () => new TextDictionary();
  const plain = () => new PlainBytes(bytes + 4 * rows.length);
  const [partition, issuer, subject, payload, event] = [text(), text(), text(), plain(), plain()];
  const [seq, timeMs, logical, kind, schemaId, verified, causeSeq, logIndex, term] = [
    number(),
    number(),
    number(),
    number(),
    number(),
    number(),
    number(),
    number(),
    number(),
  ];
  const hash = new Uint32Array(rows.length * 8);
  const fields = new EventFields();
  for (let i = 0; i < rows.length; i++) {
    const row = rows[i] as number;
    const { bytes: batch, reader } = table.batch(row);
    const [at, end] = [table.start(row), table.end(row)];
    fields.read(reader, at, end);
    partition.add(batch, fields.partitionAt, fields.partitionEnd);
    issuer.add(batch, fields.issuerAt, fields.issuerEnd);
    subject.add(batch, fields.subjectAt, fields.subjectEnd);
    payload.add(batch, fields.payloadAt, fields.payloadEnd);
    event.add(batch, at, end);
    seq[i] = fields.seq;
    timeMs[i] = fields.timeMs;
    logical[i] = fields.logical;
    kind[i] = fields.kind;
    schemaId[i] = fields.schemaId;
    verified[i] = fields.verified ? 1 : 0;
    causeSeq[i] = fields.causeSeq;
    logIndex[i] = table.index(row);
    term[i] = table.term(row);
    table.copyHash(row, hash, i * 8);
  }
  const chunks: Readonly<Record<ColumnName, ColumnChunk>> = {
    partition: textChunk(partition),
    seq: numberChunk(seq),
    time_ms: numberChunk(timeMs),
    logical: numberChunk(logical),
    kind: numberChunk(kind),
    schema_id: numberChunk(schemaId),
    identity_issuer: textChunk(issuer),
    identity_subject: textChunk(subject),
    identity_verified: flagChunk(verified),
    identity_cause_seq: numberChunk(causeSeq),
    payload: bytesChunk(payload),
    log_index: numberChunk(logIndex),
    term: numberChunk(term),
    hash: hashChunk(new Uint8Array(hash.buffer)),
    event: bytesChunk(event),
  };
  return { rows: rows.length, chunks: columns.map(({ name }) => chunks[name]) };
}
