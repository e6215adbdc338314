/**
 * Folds the log into one row for each generation of each run.
 *
 * Invariant: the rows are the fold of the shard's records up to its applied index, which is
 * stored in the same transaction. So the rows can be built again from the log at any time, and
 * are then the same. Off the commit path: rows come some milliseconds after the events.
 */
import type { Database } from "bun:sqlite";
import { type Index, instanceOf, namespaceOf, type Partition, type RunId, runOf, type ShardId } from "#core/base";
import {
  decodeCancelRequested,
  decodeEvent,
  decodeRunBlocked,
  decodeRunCancelled,
  decodeRunFailed,
  decodeRunResumed,
  decodeRunStarted,
  decodeRunTerminated,
  type Event,
  EventKind,
  fromBytes,
  Reader,
  RunStatus,
} from "#proto";
import { type DerivedOptions, openDerived } from "../derived-database.ts";
import { eventKind } from "../event-head.ts";
import type { LogRecord } from "../log/log-store.ts";
import { type StoredRun, visibilityFormat } from "./schema.ts";

export interface ProjectorOptions extends DerivedOptions {
  /** Highest durable index of a shard: rows from beyond it are of a log that was longer. */
  readonly durableIndex: (shard: ShardId) => Index;
}

interface Change {
  readonly index: number;
  readonly event: Event;
}

type Columns = Partial<StoredRun>;

const eventTag = 10;
const commitMs = 20;
const changesMax = 512;
/** Records without a change that pass before the applied index is stored anyway: bounds what a restart reads again. */
const recordsMax = 8192;
const noteCharsMax = 300;

export class Projector {
  readonly database: Database;
  private readonly put: (changes: readonly Change[], applied: ReadonlyMap<ShardId, number>) => void;
  private changes: Change[] = [];
  private readonly applied = new Map<ShardId, number>();
  /** Runs that the batch under way starts: most of them end in it, and are then written once. */
  private readonly begun = new Map<RunId, StoredRun>();
  private uncommitted = 0;
  private timer: ReturnType<typeof setTimeout> | undefined;
  private readonly warn: (message: string) => void;

  static open(options: ProjectorOptions): Projector {
    const problem = (database: Database) => beyond(database, options.durableIndex);
    return new Projector(openDerived(options, { ...visibilityFormat, problem }), options.warn);
  }

  private constructor(database: Database, warn: (message: string) => void) {
    this.database = database;
    this.warn = warn;
    for (const [shard, index] of database.query("SELECT shard, applied_index FROM applied").values()) {
      this.applied.set(shard as ShardId, index as number);
    }
    const mark = database.query("INSERT OR REPLACE INTO applied VALUES (?, ?)");
    this.put = database.transaction((changes: readonly Change[], applied: ReadonlyMap<ShardId, number>) => {
      // A batch that failed half-way is tried again from its beginning.
      this.begun.clear();
      for (const change of changes) this.change(change);
      for (const row of this.begun.values()) this.insert(row);
      for (const [shard, index] of applied) mark.run(shard, index);
    });
  }

  /** Index of the last record taken; what comes behind it in the log is to be applied next. */
  appliedIndex(shard: ShardId): number {
    return this.applied.get(shard) ?? 0;
  }

  /** Takes a durable record, the shard's next. A record that was taken before changes nothing. */
  apply(record: LogRecord): void {
    if (record.index <= this.appliedIndex(record.shard)) return;
    this.applied.set(record.shard, record.index);
    this.uncommitted++;
    this.collect(record);
    if (this.changes.length >= changesMax || this.uncommitted >= recordsMax) this.commit();
    else if (this.changes.length > 0) this.timer ??= setTimeout(() => this.tryCommit(), commitMs);
  }

  /** Takes records of the log that were written while nothing projected, or all of them. */
  catchUp(records: Iterable<LogRecord>): void {
    for (const record of records) this.apply(record);
    this.commit();
  }

  /** Stores what was taken: rows and applied index together. Throws as SQLite does; nothing is lost then. */
  commit(): void {
    clearTimeout(this.timer);
    this.timer = undefined;
    if (this.uncommitted === 0) return;
    this.put(this.changes, this.applied);
    this.changes = [];
    this.uncommitted = 0;
  }

  close(): void {
    this.tryCommit();
    clearTimeout(this.timer);
    this.database.close();
  }

  private tryCommit(): void {
    try {
      this.commit();
    } catch (error) {
      this.warn(`The index of runs could not be brought up to date, and is tried again: ${(error as Error).message}`);
      this.timer ??= setTimeout(() => this.tryCommit(), commitMs * 50);
    }
  }

  /** Steps over all events but the few that change a row. */
  private collect(record: LogRecord): void {
    const reader = new Reader(record.body);
    while (reader.at < record.body.length) {
      const tag = reader.varint();
      if (tag !== eventTag) {
        reader.skip(tag, record.body.length);
        continue;
      }
      const bytes = reader.view(record.body.length);
      const kind = eventKind(bytes);
      if (kind < EventKind.runStarted || kind > EventKind.cancelRequested) continue;
      // A copy: the record's bytes are the log's.
      const event = fromBytes(decodeEvent, bytes.slice());
      if (event.partition.startsWith("run/")) this.changes.push({ index: record.index, event });
    }
  }

  private change({ index, event }: Change): void {
    const run = runOf(event.partition as Partition);
    if (event.kind === EventKind.runStarted) return this.start(run, event, index);
    const set: Columns = { ...changedBy(event), last_index: index };
    const begun = this.begun.get(run);
    if (begun === undefined) this.update(run, set);
    else Object.assign(begun, set);
  }

  private start(run: RunId, event: Event, index: number): void {
    const before = this.begun.get(run);
    if (before !== undefined) this.insert(before);
    const { generation, type, bundle } = fromBytes(decodeRunStarted, event.payload);
    this.begun.set(run, {
      run,
      generation,
      namespace: namespaceOf(run),
      instance: instanceOf(run),
      type,
      status: RunStatus.running,
      started_ms: event.timeMs,
      closed_ms: 0,
      bundle,
      note: "",
      cancel_requested: 0,
      last_index: index,
    });
  }

  private insert(row: StoredRun): void {
    this.database
      .query("INSERT OR REPLACE INTO run VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)")
      .run(
        row.run,
        row.generation,
        row.namespace,
        row.instance,
        row.type,
        row.status,
        row.started_ms,
        row.closed_ms,
        row.bundle,
        row.note,
        row.cancel_requested,
        row.last_index,
      );
  }

  /** Changes the newest generation: events of a run are of its newest one. */
  private update(run: RunId, columns: Columns): void {
    const set = Object.keys(columns).map((name) => `${name} = ?`);
    this.database
      .query(`UPDATE run SET ${set.join(", ")} WHERE run = ? AND generation = (SELECT max(generation) FROM run WHERE run = ?)`)
      .run(...Object.values(columns), run, run);
  }
}

/** What an event other than a start changes. */
function changedBy(event: Event): Columns {
  switch (event.kind) {
    case EventKind.cancelRequested:
      return { cancel_requested: 1, note: cut(fromBytes(decodeCancelRequested, event.payload).reason) };
    case EventKind.runBlocked:
      return { status: RunStatus.blocked, note: cut(fromBytes(decodeRunBlocked, event.payload).message) };
    case EventKind.runResumed:
      return { status: RunStatus.running, note: "", bundle: fromBytes(decodeRunResumed, event.payload).bundle };
    default: {
      const { status, note } = endOf(event);
      return { status, note: cut(note), closed_ms: event.timeMs };
    }
  }
}

function endOf(event: Event): { status: number; note: string } {
  switch (event.kind) {
    case EventKind.runCompleted:
      return { status: RunStatus.completed, note: "" };
    case EventKind.runFailed:
      return { status: RunStatus.failed, note: failureText(event.payload) };
    case EventKind.runCancelled:
      return { status: RunStatus.cancelled, note: fromBytes(decodeRunCancelled, event.payload).reason };
    case EventKind.runTerminated:
      return { status: RunStatus.terminated, note: fromBytes(decodeRunTerminated, event.payload).reason };
    default:
      return { status: RunStatus.timedOut, note: "" };
  }
}

function failureText(payload: Uint8Array): string {
  const { failure } = fromBytes(decodeRunFailed, payload);
  return failure === undefined ? "" : `${failure.type}: ${failure.message}`;
}

/** A note is one line of a table; the whole text is in the history. */
const cut = (text: string) => text.slice(0, noteCharsMax).toWellFormed();

function beyond(database: Database, durableIndex: (shard: ShardId) => Index): string | undefined {
  for (const [shard, applied] of database.query("SELECT shard, applied_index FROM applied").values() as [ShardId, number][]) {
    const durable = durableIndex(shard);
    if (applied > durable) return `it is at index ${applied} of shard ${shard}, and the log ends at ${durable}`;
  }
  return undefined;
}
