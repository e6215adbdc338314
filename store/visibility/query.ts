/**
 * Reads of the visibility database.
 *
 * Lists are newest first and paged by the place of the last row, so that rows that come in
 * between shift nothing. All values go in as parameters.
 */
import type { Database } from "bun:sqlite";
import { HopError, type KeyRange, keyMax, type RunId } from "#core/base";
import type { ListReply, ListRequest } from "#proto";
import { filterOf } from "./run-filter.ts";
import { type RunRow, rowOf, type StoredRun } from "./schema.ts";

const limitDefault = 100;
/** Schedules and channels are named as their partitions, `sched/…`, `chan/…`, which no run is: no namespace holds a slash. */
const isSchedule = "(run >= 'sched/' AND run < 'sched0')";
const isChannel = "(run >= 'chan/' AND run < 'chan0')";
const isRun = `NOT ${isSchedule} AND NOT ${isChannel}`;

/** A row's place in the order of lists. */
export interface PageStart {
  readonly startedMs: number;
  readonly run: string;
  readonly generation: number;
}

export interface EndedWanted {
  readonly namespace: string;
  readonly types: { readonly only: string } | { readonly except: readonly string[] };
  readonly beforeMs: number;
  readonly ranges: readonly KeyRange[];
  readonly after: RunRow | undefined;
  readonly limit: number;
}

export class RunQuery {
  private readonly database: Database;
  /** Makes what is durable visible before a read. */
  private readonly refresh: () => void;

  constructor(database: Database, refresh: () => void = () => {}) {
    this.database = database;
    this.refresh = refresh;
  }

  /**
   * One page of the runs that match, of those with a key in `ranges` where they are given. Rejects a
   * page token that `pageTokenOf` did not make with BAD_REQUEST.
   */
  list(request: ListRequest, ranges?: readonly KeyRange[]): ListReply {
    this.refresh();
    const { where, values } = conditions(request, ranges);
    const sql = `SELECT * FROM run ${where} ORDER BY started_ms DESC, run, generation LIMIT ?`;
    const limit = request.limit === 0 ? limitDefault : request.limit;
    const stored = this.database.query(sql).all(...values, limit + 1) as StoredRun[];
    const rows = stored.slice(0, limit).map(rowOf);
    const last = rows.at(-1);
    return { run: rows, nextPageToken: stored.length > rows.length && last !== undefined ? pageTokenOf(last) : "" };
  }

  /** All generations of a run, newest first; empty when there is no such run. */
  show(run: RunId): RunRow[] {
    this.refresh();
    return (this.database.query("SELECT * FROM run WHERE run = ? ORDER BY generation DESC").all(run) as StoredRun[]).map(rowOf);
  }

  /**
   * Ended runs of a namespace whose histories are there, that are their instance's newest and ended before a time, those that
   * ended first at first; behind `after` where it is given.
   */
  ended({ namespace, types, beforeMs, ranges, after, limit }: EndedWanted): RunRow[] {
    const named = "only" in types ? [types.only] : types.except;
    const isWanted = "only" in types ? "type = ?" : `type NOT IN (${named.map(() => "?").join(", ")})`;
    const each = ranges.map(() => "key BETWEEN ? AND ?").join(" OR ");
    const sql = `SELECT * FROM run AS r WHERE namespace = ? AND ${isRun} AND closed_ms > 0 AND expired_ms = 0 AND closed_ms < ? AND ${isWanted} AND (${each || "FALSE"})
      AND (closed_ms, run, generation) > (?, ?, ?) AND generation = (SELECT max(generation) FROM run WHERE run = r.run)
      ORDER BY closed_ms, run, generation LIMIT ?`;
    const keys = ranges.flatMap(({ first, last }) => [first, last]);
    const from = [after?.closedMs ?? 0, after?.run ?? "", after?.generation ?? 0];
    return (this.database.query(sql).all(namespace, beforeMs, ...named, ...keys, ...from, limit) as StoredRun[]).map(rowOf);
  }

  /** Whether the history of any run expired. */
  hasExpired(): boolean {
    return this.database.query("SELECT 1 FROM run WHERE expired_ms > 0 LIMIT 1").get() !== null;
  }

  /** SHA-256 over all rows in hex: equal for equal projections. */
  digest(): string {
    this.refresh();
    const hasher = new Bun.CryptoHasher("sha256");
    for (const row of this.database.query("SELECT * FROM run ORDER BY run, generation").iterate()) {
      const { bundle, ...rest } = row as StoredRun;
      hasher.update(`${JSON.stringify(rest)}${Buffer.from(bundle).toString("hex")}\n`);
    }
    return hasher.digest("hex");
  }
}

/** Only the filters that are set, each a constant piece of SQL. */
function conditions(request: ListRequest, ranges: readonly KeyRange[] | undefined): { where: string; values: (string | number)[] } {
  const parts: string[] = [];
  const values: (string | number)[] = [];
  const add = (part: string, ...those: (string | number)[]) => {
    parts.push(part);
    values.push(...those);
  };
  if (request.schedules) add(`${isSchedule} AND closed_ms = 0`);
  else if (request.channels) add(`${isChannel} AND closed_ms = 0`);
  else add(isRun);
  if (request.namespace !== "") add("namespace = ?", request.namespace);
  if (request.status !== 0) add("status = ?", request.status);
  if (request.deadLetters) add("dead_letters > 0");
  if (request.type !== "") add("type = ?", request.type);
  if (request.query !== "") {
    const { sql, values: those } = filterOf(request.query);
    add(sql, ...those);
  }
  if (ranges !== undefined && !isWhole(ranges)) {
    // Without a range nothing matches.
    const each = ranges.map(() => "key BETWEEN ? AND ?").join(" OR ");
    add(`(${each || "FALSE"})`, ...ranges.flatMap(({ first, last }) => [first, last]));
  }
  if (request.pageToken !== "") {
    const { startedMs, run, generation } = readToken(request.pageToken);
    add("(started_ms < ? OR (started_ms = ? AND (run, generation) > (?, ?)))", startedMs, startedMs, run, generation);
  }
  return { where: parts.length === 0 ? "" : `WHERE ${parts.join(" AND ")}`, values };
}

const isWhole = (ranges: readonly KeyRange[]) => ranges.length === 1 && ranges[0]?.first === 0 && ranges[0].last === keyMax;

/** What makes a list go on behind this row. */
export const pageTokenOf = ({ startedMs, run, generation }: PageStart): string =>
  Buffer.from(JSON.stringify([startedMs, run, generation])).toString("base64url");

function readToken(token: string): PageStart {
  try {
    const [startedMs, run, generation] = JSON.parse(Buffer.from(token, "base64url").toString()) as unknown[];
    if (Number.isSafeInteger(startedMs) && typeof run === "string" && Number.isSafeInteger(generation)) {
      return { startedMs: startedMs as number, run, generation: generation as number };
    }
  } catch {
    // Refused below, like every token that was not made here.
  }
  throw new HopError("BAD_REQUEST", "Cannot list runs: page_token is not one that a list returned; ask for the first page without it");
}
