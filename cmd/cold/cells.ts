/** Values of a result as texts: for a table or CSV, and as JSON. */
import type { DuckDBType, DuckDBValue, DuckDBValueConverter, Json } from "@duckdb/node-api";
import { timeText } from "../event-text.ts";
import type { DuckDB } from "./duckdb.ts";

export interface Cell {
  /** Empty for NULL. */
  readonly text: string;
  /** A text of JSON. */
  readonly json: string;
}

const nothing: Cell = { text: "", json: "null" };

/** How a column's values become cells. Numbers that JSON readers would round are texts, as are bytes, in hex. */
export function cellsOf(duckdb: DuckDB, type: DuckDBType): (value: DuckDBValue) => Cell {
  const convert = converterOf(duckdb);
  // Written by whoever sealed it: its digits are not to be rounded.
  const isJson = type.typeId === duckdb.DuckDBTypeId.VARCHAR && type.alias === "JSON";
  return (value) => {
    if (value === null) return nothing;
    if (isJson) return { text: String(value), json: oneLine(String(value)) };
    const converted = convert(value, type, convert);
    const json = JSON.stringify(converted);
    return { text: typeof converted === "string" ? converted : json, json };
  };
}

/** Line breaks in JSON stand between its tokens. What only DuckDB takes for JSON, such as NaN, is shown as a text. */
function oneLine(json: string): string {
  try {
    JSON.parse(json);
    return json.replace(/[\n\r\t]/g, " ");
  } catch {
    return JSON.stringify(json);
  }
}

function converterOf(duckdb: DuckDB): DuckDBValueConverter<Json> {
  const { DuckDBTypeId, DuckDBTimestampValue, DuckDBBlobValue, JsonDuckDBValueConverter } = duckdb;
  return (value, type, converter) => {
    if (typeof value === "bigint") return Number.isSafeInteger(Number(value)) ? Number(value) : String(value);
    if (value instanceof DuckDBBlobValue) return Buffer.from(value.bytes).toString("hex");
    if (type.typeId === DuckDBTypeId.TIMESTAMP && value instanceof DuckDBTimestampValue && value.micros % 1000n === 0n && value.isFinite)
      return timeText(Number(value.micros / 1000n));
    return JsonDuckDBValueConverter(value, type, converter);
  };
}
