/**
 * Folds the logs of a node's shards into one row for each generation of each run.
 *
 * Invariant: the rows are the fold of each shard's records up to its applied index, which is
 * stored in the same transaction. So the rows can be built again from the log at any time, and
 * are then the same. Off the commit path: rows come some milliseconds after the events.
 *
 * A run's events may lie in several shards' logs, one after the other: a child's records come
 * behind its parent's split, and those of a shard that absorbed another behind all of the other's.
 * Rows stay where they are then: whose they are follows from their keys.
 */
import type { Database } from "bun:sqlite";
import { asShardId, assert, firstDataShard, type Index, type KeyRange, type RunId, type ShardId } from "#core/base";
import { decodeEvent, decodeShardChange, type Event, EventKind, fromBytes, Reader, type ShardAbsorbed, type ShardChange } from "#proto";
import { type DerivedOptions, openDerived } from "../derived-database.ts";
import { eventKind } from "../event-head.ts";
import type { LogRecord } from "../log/log-store.ts";
import { RunRebuild } from "./run-rebuild.ts";
import { beginsRow, type Columns, changedBy, changeRow, changesRow, expiredRows, rowName, startedRow } from "./run-row.ts";
import { type StoredRun, visibilityFormat } from "./schema.ts";

export interface ProjectorOptions extends DerivedOptions {
  /** Highest durable index of a shard: rows from beyond it are of a log that was longer. */
  readonly durableIndex: (shard: ShardId) => Index;
  /** The shard's replica is gone from this node: its applied index says nothing about its log. */
  readonly isRemoved: (shard: ShardId) => boolean;
}

interface Change {
  readonly index: number;
  readonly event: Event;
}

const eventTag = 10;
const changeTag = 58;
/** What a split's child has behind it when it begins. */
const birthIndex = 1;
const commitMs = 20;
const changesMax = 512;
/** Records without a change that pass before the applied index is stored anyway: bounds what a restart reads again. */
const recordsMax = 8192;
const batchRows = 256;

export class Projector {
  readonly database: Database;
  private readonly put: (changes: readonly Change[], moved: ReadonlySet<ShardId>) => void;
  private readonly drop: (shard: ShardId, range: KeyRange) => void;
  private changes: Change[] = [];
  private readonly applied = new Map<ShardId, number>();
  /** In the table of applied indexes by their negative numbers. */
  private readonly unfinished = new Set<ShardId>();
  /** Shards that the batch under way moves on. */
  private readonly moved = new Set<ShardId>();
  /** Runs that the batch under way starts: most of them end in it, and are then written once. */
  private readonly begun = new Map<RunId, StoredRun>();
  private uncommitted = 0;
  private timer: ReturnType<typeof setTimeout> | undefined;
  private readonly warn: (message: string) => void;

  static open(options: ProjectorOptions): Projector {
    const problem = (database: Database) => beyond(database, options);
    return new Projector(openDerived(options, { ...visibilityFormat, problem }), options.warn);
  }

  private constructor(database: Database, warn: (message: string) => void) {
    this.database = database;
    this.warn = warn;
    for (const [shard, index] of database.query("SELECT shard, applied_index FROM applied").values()) {
      if ((shard as number) < 0) this.unfinished.add(asShardId(-(shard as number)));
      else this.applied.set(shard as ShardId, index as number);
    }
    const mark = database.query("INSERT OR REPLACE INTO applied VALUES (?, ?)");
    this.drop = database.transaction((shard: ShardId, { first, last }: KeyRange) => {
      database.run("DELETE FROM applied WHERE shard = ?", [shard]);
      database.run("DELETE FROM run WHERE key >= ? AND key <= ?", [first, last]);
    });
    this.put = database.transaction((changes: readonly Change[], moved: ReadonlySet<ShardId>) => {
      // A batch that failed half-way is tried again from its beginning.
      this.begun.clear();
      for (const change of changes) this.change(change);
      for (const row of this.begun.values()) this.insert(row);
      for (const shard of moved) mark.run(shard, this.appliedIndex(shard));
    });
  }

  /** Index of the last record taken; what comes behind it in the log is to be applied next. */
  appliedIndex(shard: ShardId): number {
    return this.applied.get(shard) ?? 0;
  }

  /** Whether it has taken records of the shard, or what stands for them. */
  follows(shard: ShardId): boolean {
    return this.applied.has(shard);
  }

  /** Shards whose records came, or may come. */
  shards(): ShardId[] {
    return [...this.applied.keys()];
  }

  /** Whether the shard's records may come: a child's may when its parent's split was applied, or `begin` said so. */
  isBegun(shard: ShardId): boolean {
    return shard <= firstDataShard || this.applied.has(shard);
  }

  /** The shard's rows are there as of `index`: its records from behind it come next. */
  begin(shard: ShardId, index: Index): void {
    this.move(shard, index);
    this.commit();
    this.finish(shard);
  }

  /** Its rows are being made anew, or that was broken off: those that are there are not all. */
  isUnfinished(shard: ShardId): boolean {
    return this.unfinished.has(shard);
  }

  /** What has to be applied before the record: the shard that it absorbs, through an index. */
  waitsFor(record: LogRecord): { readonly shard: ShardId; readonly index: number } | undefined {
    const absorbed = absorbedIn(record);
    if (absorbed === undefined) return undefined;
    const shard = asShardId(absorbed.shard);
    return this.appliedIndex(shard) >= absorbed.through ? undefined : { shard, index: absorbed.through };
  }

  /** Takes a committed record, the shard's next. A record that was taken before changes nothing. */
  apply(record: LogRecord): void {
    if (record.index <= this.appliedIndex(record.shard)) return;
    assert(this.isBegun(record.shard), `shard ${record.shard} begins in the index of runs before its record ${record.index} comes`);
    this.move(record.shard, record.index);
    if (record.kind === "data") this.collect(record);
    if (this.changes.length >= changesMax || this.uncommitted >= recordsMax) this.commit();
    else if (this.changes.length > 0) this.timer ??= setTimeout(() => this.tryCommit(), commitMs);
  }

  /** The shard is not on this node any more: the rows of its range go, and it may begin anew. */
  forget(shard: ShardId, range: KeyRange): void {
    this.commit();
    this.applied.delete(shard);
    this.drop(shard, range);
    this.finish(shard);
  }

  private finish(shard: ShardId): void {
    if (this.unfinished.delete(shard)) this.database.query("DELETE FROM applied WHERE shard = ?").run(markOf(shard));
  }

  /** Deletes the rows that are in none of the ranges: what a crash left behind of shards that are gone. */
  retain(ranges: readonly KeyRange[]): void {
    this.commit();
    const kept = [...ranges].sort((a, b) => a.first - b.first);
    const drop = this.database.query("DELETE FROM run WHERE key >= ? AND key < ?");
    this.database.transaction(() => {
      let from = 0;
      for (const { first, last } of kept) {
        drop.run(from, first);
        from = Math.max(from, last + 1);
      }
      drop.run(from, Number.MAX_SAFE_INTEGER);
    })();
  }

  /** The rows of a range in batches, as they are when each is read; `appliedIndex` is to be asked before. */
  *rowsIn({ first, last }: KeyRange): Generator<StoredRun[]> {
    this.commit();
    const sql = "SELECT * FROM run WHERE (key, run, generation) > (?, ?, ?) AND key <= ? ORDER BY key, run, generation LIMIT ?";
    for (let after: [number, string, number] = [first, "", 0]; ; ) {
      const batch = this.database.query(sql).all(...after, last, batchRows) as StoredRun[];
      if (batch.length > 0) yield batch;
      const end = batch.at(-1);
      if (end === undefined || batch.length < batchRows) return;
      after = [end.key, end.run, end.generation];
    }
  }

  /**
   * The rows of the shard's range are to be made anew, out of what the returned one is given. They, and the shard's
   * index, are gone until `begin`; a crash before leaves it `isUnfinished`.
   */
  rebuild(shard: ShardId, range: KeyRange): RunRebuild {
    this.forget(shard, range);
    this.unfinished.add(shard);
    this.database.query("INSERT OR REPLACE INTO applied VALUES (?, 0)").run(markOf(shard));
    return new RunRebuild(this.database, range);
  }

  /** Takes rows that another node has: their shard is to `begin` at the index that they are as of, or at an earlier one. */
  takeRows(rows: readonly StoredRun[]): void {
    this.commit();
    this.database.transaction(() => {
      for (const row of rows) this.insert(row);
    })();
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
    this.put(this.changes, this.moved);
    this.changes = [];
    this.moved.clear();
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
      if (tag === changeTag) this.follow(decodeShardChange(reader, reader.extent(record.body.length)), record);
      if (tag === changeTag) continue;
      if (tag !== eventTag) {
        reader.skip(tag, record.body.length);
        continue;
      }
      const bytes = reader.view(record.body.length);
      const kind = eventKind(bytes);
      if (!changesRow(kind)) continue;
      // A copy: the record's bytes are the log's.
      const event = fromBytes(decodeEvent, bytes.slice());
      if (rowName(event.partition) !== undefined) this.changes.push({ index: record.index, event });
    }
  }

  private move(shard: ShardId, index: number): void {
    this.applied.set(shard, index);
    this.moved.add(shard);
    this.uncommitted++;
  }

  private follow(change: ShardChange, record: LogRecord): void {
    if (change.kind === "split") {
      const child = asShardId(change.value.child);
      // A child that was taken as a whole has begun already.
      if (!this.applied.has(child)) this.move(child, birthIndex);
    }
    if (change.kind !== "absorbed") return;
    const { shard, through } = change.value;
    const applied = this.appliedIndex(asShardId(shard));
    assert(
      applied >= through,
      `record ${record.index} of shard ${record.shard} comes when shard ${shard} is applied through ${through}, not ${applied}`,
    );
  }

  private change({ index, event }: Change): void {
    const run = rowName(event.partition);
    if (run === undefined) return;
    if (beginsRow(event.kind)) return this.start(run, event, index);
    if (event.kind === EventKind.historyExpired) return this.expire(run, event, index);
    const { generation, ...changed } = changedBy(event);
    const set: Columns = { ...changed, last_index: index };
    const begun = this.begun.get(run);
    const isOfBegun = begun !== undefined && (generation === undefined || generation === begun.generation);
    if (!isOfBegun) this.update(run, set, generation);
    else changeRow(begun, set);
  }

  private start(run: RunId, event: Event, index: number): void {
    const before = this.begun.get(run);
    if (before !== undefined) this.insert(before);
    this.begun.set(run, startedRow(run, event, index));
  }

  /** The newest generation may be in the batch still. */
  private expire(run: RunId, event: Event, index: number): void {
    this.begun.delete(run);
    for (const row of expiredRows(run, event, index)) this.insert(row);
    // The event names the newest ones only, where they are many.
    this.database.query("UPDATE run SET expired_ms = ? WHERE run = ? AND expired_ms = 0").run(event.timeMs, run);
  }

  private insert(row: StoredRun): void {
    this.database
      .query("INSERT OR REPLACE INTO run VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)")
      .run(
        row.key,
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
        row.expired_ms,
        row.searchable,
        row.dead_letters,
      );
  }

  /** Changes the newest generation, of which a run's events are unless they name another. */
  private update(run: RunId, columns: Columns, generation: number | undefined): void {
    if (columns.searchable !== undefined) return this.merge(run, columns);
    const set = Object.keys(columns).map((name) => `${name} = ?`);
    const newest = "(SELECT max(generation) FROM run WHERE run = ?)";
    this.database
      .query(`UPDATE run SET ${set.join(", ")} WHERE run = ? AND generation = ${generation === undefined ? newest : "?"}`)
      .run(...Object.values(columns), run, generation ?? run);
  }

  private merge(run: RunId, columns: Columns): void {
    const row = this.database.query("SELECT * FROM run WHERE run = ? ORDER BY generation DESC LIMIT 1").get(run) as StoredRun | null;
    if (row === null) return;
    changeRow(row, columns);
    this.insert(row);
  }
}

/** Steps over all but the one field that says it. */
function absorbedIn({ kind, body }: LogRecord): ShardAbsorbed | undefined {
  if (kind !== "data") return undefined;
  const reader = new Reader(body);
  while (reader.at < body.length) {
    const tag = reader.varint();
    if (tag !== changeTag) {
      reader.skip(tag, body.length);
      continue;
    }
    const change = decodeShardChange(reader, reader.extent(body.length));
    return change.kind === "absorbed" ? change.value : undefined;
  }
  return undefined;
}

function beyond(database: Database, { durableIndex, isRemoved }: ProjectorOptions): string | undefined {
  for (const [shard, applied] of database.query("SELECT shard, applied_index FROM applied").values() as [ShardId, number][]) {
    const durable = durableIndex(shard);
    if (applied > durable && !isRemoved(shard)) return `it is at index ${applied} of shard ${shard}, and the log ends at ${durable}`;
  }
  return undefined;
}

/** Stands for a shard whose rows are not all there, where its applied index would be. */
const markOf = (shard: number) => -shard;
