/**
 * Makes rows of runs out of events that come in any order: out of sealed segments, which are sorted by
 * partition, and out of the logs of several shards.
 *
 * What each event says is kept aside in a temporary table until all of them are there, by run
 * and seq; so an event that comes twice counts once.
 */
import type { Database } from "bun:sqlite";
import { fromHex, HopError, type KeyRange, type Partition, type RunId, toHex } from "#core/base";
import { decodeEvent, decodeRecord, type Event, EventKind, fromBytes } from "#proto";
import { eventKind, eventSeq } from "../event-head.ts";
import type { LogRecord } from "../log/log-store.ts";
import { beginsRow, type Columns, changedBy, changeRow, changesRow, expiredRows, keyOf, rowName, startedRow } from "./run-row.ts";
import type { StoredRun } from "./schema.ts";

/** An event and the index of the record that holds it. */
export interface PlacedEvent {
  readonly partition: Partition;
  readonly seq: number;
  readonly index: number;
  /** Canonical bytes. */
  readonly event: Uint8Array;
}

interface Told {
  readonly run: RunId;
  readonly seq: number;
  /** A start makes a row, an expiry those of all runs before it; anything else changes the row before. */
  readonly what: "start" | "change" | "expired";
  /** JSON. */
  readonly says: string;
}

const batchRows = 512;

export class RunRebuild {
  private readonly database: Database;
  private readonly range: KeyRange;
  private readonly store: (told: readonly Told[]) => void;
  private lastRun: RunId | undefined;
  private isLastIn = false;

  constructor(database: Database, range: KeyRange) {
    this.database = database;
    this.range = range;
    database.run(
      "CREATE TEMP TABLE IF NOT EXISTS told (run TEXT NOT NULL, seq INTEGER NOT NULL, what TEXT NOT NULL, says TEXT NOT NULL, PRIMARY KEY (run, seq)) WITHOUT ROWID",
    );
    database.run("DELETE FROM told");
    const put = database.query("INSERT OR REPLACE INTO told VALUES (?, ?, ?, ?)");
    this.store = database.transaction((told: readonly Told[]) => {
      for (const { run, seq, what, says } of told) put.run(run, seq, what, says);
    });
  }

  /** Takes what changes a row in the range, and steps over all else. */
  add(events: Iterable<PlacedEvent>): void {
    const told: Told[] = [];
    for (const { partition, seq, index, event: bytes } of events) {
      const run = rowName(partition);
      if (run === undefined || !changesRow(eventKind(bytes)) || !this.isIn(run)) continue;
      const event = fromBytes(decodeEvent, bytes);
      told.push({ run, seq, ...saidBy(run, event, index) });
    }
    if (told.length > 0) this.store(told);
  }

  /** Takes the events of a record of a log. */
  addRecord({ index, kind, body }: LogRecord): void {
    if (kind !== "data" || body.length === 0) return;
    const { event } = fromBytes(decodeRecord, body);
    this.add(
      event
        .filter((bytes) => changesRow(eventKind(bytes)))
        .map((bytes) => ({ partition: fromBytes(decodeEvent, bytes).partition as Partition, seq: eventSeq(bytes), index, event: bytes })),
    );
  }

  /** The rows, in batches. Throws `HopError` STORE_UNAVAILABLE where a run's first event never came, and it did not expire. */
  *rows(): Generator<StoredRun[]> {
    let done: StoredRun[] = [];
    let open: StoredRun | undefined;
    // Ended ones of the run that is being read of which later events may tell.
    let owing: StoredRun[] = [];
    let startless: Told | undefined;
    for (const told of this.told()) {
      const { run, what, says } = told;
      if (startless !== undefined && startless.run !== run) throw lacksStart(startless);
      if (owing.length > 0 && owing[0]?.run !== run) {
        done.push(...owing);
        owing = [];
      }
      if (what === "expired") {
        // What came before it may be gone in part: this says all that is left.
        if (open !== undefined && open.run !== run) done.push(open);
        owing = [];
        [open, startless] = [undefined, undefined];
        done.push(...rowsHeard(says));
      } else if (what === "start") {
        if (open !== undefined) (open.run === run && open.dead_letters > 0 ? owing : done).push(open);
        open = heard(says) as StoredRun;
      } else if (open?.run === run) {
        const { generation, ...columns } = heard(says);
        const changed = generation === undefined ? open : [open, ...owing].find((row) => row.generation === generation);
        if (changed !== undefined) changeRow(changed, columns);
      } else startless ??= told;
      if (done.length < batchRows) continue;
      yield done;
      done = [];
    }
    if (startless !== undefined) throw lacksStart(startless);
    if (open !== undefined) done.push(open);
    done.push(...owing);
    if (done.length > 0) yield done;
  }

  close(): void {
    this.database.run("DROP TABLE IF EXISTS told");
  }

  private *told(): Generator<Told> {
    const query = this.database.query(
      `SELECT run, seq, what, says FROM told WHERE (run, seq) > (?, ?) ORDER BY run, seq LIMIT ${batchRows}`,
    );
    for (let after: [string, number] = ["", 0]; ; ) {
      const batch = query.all(...after) as Told[];
      yield* batch;
      const end = batch.at(-1);
      if (end === undefined) return;
      after = [end.run, end.seq];
    }
  }

  /** Events of one run mostly follow each other. */
  private isIn(run: RunId): boolean {
    if (run !== this.lastRun) {
      const key = keyOf(run);
      this.isLastIn = key >= this.range.first && key <= this.range.last;
      this.lastRun = run;
    }
    return this.isLastIn;
  }
}

function saidBy(run: RunId, event: Event, index: number): Pick<Told, "what" | "says"> {
  if (beginsRow(event.kind)) return { what: "start", says: said(startedRow(run, event, index)) };
  if (event.kind === EventKind.historyExpired)
    return { what: "expired", says: JSON.stringify(expiredRows(run, event, index).map((row) => said(row))) };
  return { what: "change", says: said({ ...changedBy(event), last_index: index }) };
}

const rowsHeard = (says: string) => (JSON.parse(says) as string[]).map((row) => heard(row) as StoredRun);

function lacksStart({ run, seq }: Told): HopError {
  return new HopError("STORE_UNAVAILABLE", `Cannot list runs: event ${seq} of run ${run} is there, and its start is not`);
}

const said = ({ bundle, ...columns }: Columns): string =>
  JSON.stringify(bundle === undefined ? columns : { ...columns, bundle: toHex(bundle) });

function heard(text: string): Columns {
  const { bundle, ...columns } = JSON.parse(text) as Columns & { readonly bundle?: unknown };
  return typeof bundle === "string" ? { ...columns, bundle: fromHex(bundle) ?? new Uint8Array(0) } : columns;
}
