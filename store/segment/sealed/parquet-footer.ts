/**
 * The end of a Parquet file: schema, where each column of each row group is, and what the file is.
 *
 * Source: apache/parquet-format parquet.thrift (FileMetaData), whose field numbers these are.
 */
import type { ColumnChunk } from "./column-chunk.ts";
import { type ColumnSpec, columns, physicalTypes } from "./parquet-columns.ts";
import type { RowGroup } from "./row-group.ts";
import { ThriftWriter } from "./thrift-writer.ts";

const version = 2;
/** The format's name and version, in the form that readers take apart. */
const createdBy = "hopskip-sealed-segment version 1.0.0 (build 1)";
const required = 0;
const utf8 = 0;

/** A row group and where it begins. */
export interface PlacedRowGroup {
  readonly at: number;
  readonly group: FooterRowGroup;
}

/** What the footer keeps of a row group: not its bytes. */
export type FooterRowGroup = Pick<RowGroup, "rows"> & { readonly chunks: readonly Omit<ColumnChunk, "parts">[] };

export interface FooterFacts {
  readonly rows: number;
  readonly groups: readonly PlacedRowGroup[];
  readonly metadata: Readonly<Record<string, string>>;
}

/** The footer with its length and the closing magic. */
export function parquetFooter({ rows, groups, metadata }: FooterFacts): Uint8Array {
  const thrift = new ThriftWriter();
  thrift.i32(1, version);
  thrift.list(2, "struct", [undefined, ...columns], (column) => putSchema(thrift, column));
  thrift.i64(3, rows);
  thrift.list(
    4,
    "struct",
    groups.map((placed, ordinal) => ({ ...placed, ordinal })),
    (group) => putRowGroup(thrift, group),
  );
  thrift.list(5, "struct", Object.entries(metadata), ([key, value]) => {
    thrift.text(1, key);
    thrift.text(2, value);
  });
  thrift.text(6, createdBy);
  // Least and greatest values are in the order of the column's type.
  thrift.list(7, "struct", columns, () => thrift.struct(1, () => undefined));
  const body = thrift.finish();
  const out = new Uint8Array(body.length + 8);
  out.set(body);
  new DataView(out.buffer).setUint32(body.length, body.length, true);
  out.set(magic, body.length + 4);
  return out;
}

export const magic = new TextEncoder().encode("PAR1");

function putSchema(thrift: ThriftWriter, column: ColumnSpec | undefined): void {
  if (column === undefined) {
    thrift.text(4, "event");
    thrift.i32(5, columns.length);
    return;
  }
  thrift.i32(1, physicalTypes[column.kind]);
  if (column.kind === "hash") thrift.i32(2, 32);
  thrift.i32(3, required);
  thrift.text(4, column.name);
  if (column.kind === "text") thrift.i32(6, utf8);
  thrift.i32(9, column.id);
  if (column.kind === "text") thrift.struct(10, () => thrift.struct(1, () => undefined));
}

function putRowGroup(thrift: ThriftWriter, { at, group, ordinal }: PlacedRowGroup & { ordinal: number }): void {
  let next = at;
  const placed = group.chunks.map((chunk, i) => {
    const begins = next;
    next += chunk.bytes;
    return { chunk, begins, column: columns[i] as ColumnSpec, rows: group.rows };
  });
  thrift.list(1, "struct", placed, (each) => putColumn(thrift, each));
  thrift.i64(
    2,
    group.chunks.reduce((sum, chunk) => sum + chunk.plainBytes, 0),
  );
  thrift.i64(3, group.rows);
  thrift.list(4, "struct", ["partition", "seq"], (name) => {
    thrift.i32(
      1,
      columns.findIndex((column) => column.name === name),
    );
    thrift.bool(2, false);
    thrift.bool(3, false);
  });
  thrift.i64(5, at);
  thrift.i64(6, next - at);
  // An i16 in the schema: readers that need it have no more.
  if (ordinal <= 0x7fff) thrift.i16(7, ordinal);
}

interface PlacedChunk {
  readonly chunk: Omit<ColumnChunk, "parts">;
  readonly begins: number;
  readonly column: ColumnSpec;
  readonly rows: number;
}

function putColumn(thrift: ThriftWriter, { chunk, begins, column, rows }: PlacedChunk): void {
  thrift.i64(2, begins);
  thrift.struct(3, () => {
    thrift.i32(1, physicalTypes[column.kind]);
    thrift.list(2, "i32", chunk.encodings, (encoding) => thrift.integer(encoding));
    thrift.list(3, "binary", [column.name], (name) => thrift.bytes(new TextEncoder().encode(name)));
    thrift.i32(4, chunk.codec);
    thrift.i64(5, rows);
    thrift.i64(6, chunk.plainBytes);
    thrift.i64(7, chunk.bytes);
    thrift.i64(9, begins + chunk.valuesAt);
    if (chunk.hasDictionary) thrift.i64(11, begins);
    const { range } = chunk;
    if (range === undefined) return;
    thrift.struct(12, () => {
      thrift.i64(3, 0);
      thrift.binary(5, range.max);
      thrift.binary(6, range.min);
    });
  });
}
