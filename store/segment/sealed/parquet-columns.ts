/**
 * The columns of a sealed segment. All are required: what an event leaves out has its default, as in
 * the event itself. Numbers and names are for ever; a new column goes behind the last of its part.
 *
 * `copy` columns hold parts of the event for those who ask with SQL. `history` columns are what our
 * own reader needs; they follow each other in a row group, so that one range read gets them.
 */
export type ColumnKind = "number" | "flag" | "text" | "bytes" | "hash";

export interface ColumnSpec {
  readonly name: string;
  readonly id: number;
  readonly kind: ColumnKind;
  readonly part: "copy" | "history";
}

export const columns = [
  { name: "partition", id: 1, kind: "text", part: "copy" },
  { name: "seq", id: 2, kind: "number", part: "copy" },
  { name: "time_ms", id: 3, kind: "number", part: "copy" },
  { name: "logical", id: 4, kind: "number", part: "copy" },
  { name: "kind", id: 5, kind: "number", part: "copy" },
  { name: "schema_id", id: 6, kind: "number", part: "copy" },
  { name: "identity_issuer", id: 7, kind: "text", part: "copy" },
  { name: "identity_subject", id: 8, kind: "text", part: "copy" },
  { name: "identity_verified", id: 9, kind: "flag", part: "copy" },
  { name: "identity_cause_seq", id: 10, kind: "number", part: "copy" },
  { name: "payload", id: 11, kind: "bytes", part: "copy" },
  { name: "log_index", id: 12, kind: "number", part: "history" },
  { name: "term", id: 13, kind: "number", part: "history" },
  { name: "hash", id: 14, kind: "hash", part: "history" },
  { name: "event", id: 15, kind: "bytes", part: "history" },
] as const satisfies readonly ColumnSpec[];

export type ColumnName = (typeof columns)[number]["name"];

/** Physical types, by kind. Source: apache/parquet-format parquet.thrift, as are all numbers here and in its neighbours. */
export const physicalTypes: Readonly<Record<ColumnKind, number>> = { flag: 0, number: 2, text: 6, bytes: 6, hash: 7 };
