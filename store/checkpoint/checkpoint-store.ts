/**
 * States of partitions, saved off the commit path: what memory need not hold, and where replay
 * starts after a restart.
 *
 * One table for all shards of a node: whose a row is follows from its key, so that a split or a
 * merge moves nothing. Callers save only what is committed and durable in the log; then whatever a
 * crash leaves here is a state the log leads to. Each row carries a checksum: a flipped bit is
 * never taken for a state.
 */
import { Database } from "bun:sqlite";
import { open } from "node:fs/promises";
import { dirname } from "node:path";
import type { Index, Key, KeyRange, Partition, SavedState, ShardId, StateReader } from "#core/base";
import { decodeShardHeader, fromBytes } from "#proto";
import { isMissing, syncPath } from "../cas/blob-file.ts";
import { CorruptionError } from "../corruption-error.ts";
import { type DerivedFormat, type DerivedOptions, openDerived, sqliteFault, suspect } from "../derived-database.ts";
import { CheckpointExport } from "./checkpoint-export.ts";
import {
  type CheckpointMeta,
  checkpointSchema,
  checkpointVersion,
  metaOf,
  rowOf,
  type ShardRow,
  type StateRow,
  type StoredMeta,
  type StoredRow,
  valuesOfMeta,
  valuesOfRow,
} from "./checkpoint-row.ts";

export interface CheckpointOptions extends DerivedOptions {
  /** Highest durable index of a shard: a checkpoint from beyond it is of a log that was longer. */
  readonly durableIndex: (shard: ShardId) => Index;
  /** The shard's replica is gone from this node: its rows may be another shard's now. */
  readonly isRemoved: (shard: ShardId) => boolean;
}

const format: DerivedFormat = { what: "checkpoint", version: checkpointVersion, schema: checkpointSchema, problem: () => undefined };

export class CheckpointStore {
  private readonly path: string;
  /** The names of its files outlive a loss of power. */
  private isNamed = false;
  private readonly database: Database;
  private readonly saveAll: (rows: readonly StateRow[], meta: CheckpointMeta, born: readonly CheckpointMeta[]) => void;
  private readonly takeIn: (shard: ShardId, rows: readonly ShardRow[]) => void;
  private readonly replace: (range: KeyRange, meta: CheckpointMeta) => void;

  static open(options: CheckpointOptions): CheckpointStore {
    const store = new CheckpointStore(options.path, openDerived(options, format));
    store.dropBeyond(options);
    return store;
  }

  private constructor(path: string, database: Database) {
    this.path = path;
    this.database = database;
    const put = database.query("INSERT OR REPLACE INTO partition VALUES (?, ?, ?, ?, ?, ?, ?)");
    const mark = database.query("INSERT OR REPLACE INTO meta VALUES (?, ?, ?, ?, ?, ?, ?, ?)");
    this.saveAll = database.transaction((rows: readonly StateRow[], meta: CheckpointMeta, born: readonly CheckpointMeta[]) => {
      for (const row of rows) put.run(...valuesOfRow(row, meta.shard));
      for (const each of [meta, ...born]) mark.run(...valuesOfMeta(each));
    });
    const stage = database.query("INSERT OR REPLACE INTO incoming VALUES (?, ?, ?, ?, ?, ?, ?, ?)");
    this.takeIn = database.transaction((target: ShardId, rows: readonly ShardRow[]) => {
      for (const row of rows) stage.run(target, ...valuesOfRow(row, row.shard));
    });
    this.replace = database.transaction((range: KeyRange, meta: CheckpointMeta) => {
      this.deleteRange(range);
      database.run(
        "INSERT OR REPLACE INTO partition SELECT name, key, shard, state, due_ms, last_index, checksum FROM incoming WHERE target = ?",
        [meta.shard],
      );
      this.dropImport(meta.shard);
      mark.run(...valuesOfMeta(meta));
    });
  }

  /** What a shard's machine reads. Throws `HopError` STORE_UNAVAILABLE while it can't be read. */
  reader(): StateReader {
    return {
      load: (partition) => this.load(partition),
      dueBefore: (beforeMs, limit, within) => this.dueBefore(beforeMs, limit, within),
    };
  }

  /** Throws `CorruptionError` where the row is damaged; the file is then set aside at the next opening. */
  load(partition: Partition): SavedState | undefined {
    const stored = this.trusting(() => this.database.query("SELECT * FROM partition WHERE name = ?").get(partition)) as StoredRow | null;
    if (stored === null) return undefined;
    const row = rowOf(stored);
    if (row === undefined) throw this.damaged(`a state of ${partition} with another checksum`, `${stored.checksum}`);
    return { state: row.state, shard: row.shard };
  }

  /** Partitions with a key in `range` that need attention before `beforeMs`, earliest first. */
  dueBefore(beforeMs: number, limit: number, { first, last }: KeyRange): Partition[] {
    const sql = "SELECT name FROM partition WHERE due_ms < ? AND key >= ? AND key <= ? ORDER BY due_ms, name LIMIT ?";
    return this.trusting(() => this.database.query(sql).values(beforeMs, first, last, limit)).map(([name]) => name as Partition);
  }

  /** Saves states, the shard's place in the log, and where shards begin that it gave birth to: all together, or nothing. */
  save(rows: readonly StateRow[], meta: CheckpointMeta, born: readonly CheckpointMeta[] = []): void {
    this.trusting(() => this.saveAll(rows, meta, born));
  }

  /**
   * Calls `done` when what was saved before outlives a loss of power, or with false where that can't be had now. The
   * node's thread goes on meanwhile: the journal is written through, and not folded into the database.
   */
  syncAside(done: (isSynced: boolean) => void): void {
    this.syncJournal().then(
      () => done(true),
      () => done(false),
    );
  }

  private async syncJournal(): Promise<void> {
    if (this.path === ":memory:") return;
    try {
      const journal = await open(`${this.path}-wal`, "r");
      try {
        await journal.datasync();
      } finally {
        await journal.close();
      }
    } catch (error) {
      // What is in the database itself is durable before the journal goes.
      if (!isMissing(error)) throw error;
    }
    if (this.isNamed) return;
    await syncPath(dirname(this.path));
    this.isNamed = true;
  }

  /** What was saved outlives a loss of power. Folds the journal into the database, which takes tens of milliseconds where there is much in it. */
  sync(): void {
    this.trusting(() => this.database.run("PRAGMA wal_checkpoint(FULL)"));
  }

  /** Throws `CorruptionError` like `load`. */
  meta(shard: ShardId): CheckpointMeta | undefined {
    const stored = this.trusting(() => this.database.query("SELECT * FROM meta WHERE shard = ?").get(shard)) as StoredMeta | null;
    if (stored === null) return undefined;
    const meta = metaOf(stored);
    if (meta === undefined) throw this.damaged(`a place of shard ${shard} with another checksum`, `${stored.checksum}`);
    return meta;
  }

  /** The shard has no place in the log any more; the states stay, for whoever owns their keys. */
  removeMeta(shard: ShardId): void {
    this.trusting(() => this.database.run("DELETE FROM meta WHERE shard = ?", [shard]));
  }

  /** Deletes the states with a key in the range. */
  deleteRange({ first, last }: KeyRange): void {
    this.trusting(() => this.database.run("DELETE FROM partition WHERE key >= ? AND key <= ?", [first, last]));
  }

  /**
   * The shard's place and the states of its range as of now, whatever is saved meanwhile. The caller
   * closes it: until then the file can't shrink.
   */
  exportRange(shard: ShardId, range: KeyRange): CheckpointExport {
    const fault = (what: string) => this.damaged(what, "what was saved");
    // A connection of its own has a view of its own; one in memory can have no second one.
    if (this.path === ":memory:") return new CheckpointExport(Database.deserialize(this.database.serialize()), { shard, range, fault });
    return new CheckpointExport(new Database(this.path, { readonly: true, strict: true }), { shard, range, fault });
  }

  /** Puts states of a snapshot for `shard` aside until it is whole. Each keeps the shard that saved it. */
  importRows(shard: ShardId, rows: readonly ShardRow[]): void {
    this.trusting(() => this.takeIn(shard, rows));
  }

  /** The snapshot is whole: its states take the place of all that the range has, and `meta` says where its shard goes on. */
  finishImport(range: KeyRange, meta: CheckpointMeta): void {
    this.trusting(() => this.replace(range, meta));
  }

  /** Forgets what was put aside for the shard. */
  dropImport(shard: ShardId): void {
    this.trusting(() => this.database.run("DELETE FROM incoming WHERE target = ?", [shard]));
  }

  /** States of the range, and their bytes. Walks all of them: some microseconds for each. */
  sizeOf({ first, last }: KeyRange): { readonly partitions: number; readonly bytes: number } {
    const sql = "SELECT count(*), coalesce(sum(length(state)), 0) FROM partition WHERE key >= ? AND key <= ?";
    const [[partitions, bytes]] = this.trusting(() => this.database.query(sql).values(first, last)) as [[number, number]];
    return { partitions, bytes };
  }

  /** Key of the state with `before` others of the range in front of it; undefined where there are not so many. Walks past those. */
  keyAt({ first, last }: KeyRange, before: number): Key | undefined {
    const sql = "SELECT key FROM partition WHERE key >= ? AND key <= ? ORDER BY key LIMIT 1 OFFSET ?";
    return (this.trusting(() => this.database.query(sql).values(first, last, before)) as [Key][])[0]?.[0];
  }

  count(): number {
    const row = this.trusting(() => this.database.query("SELECT count(*) AS count FROM partition").get());
    return (row as { count: number }).count;
  }

  close(): void {
    this.database.close();
  }

  /** Drops the place of each shard that is beyond its log, and the states of its keys. */
  private dropBeyond({ durableIndex, isRemoved, warn }: CheckpointOptions): void {
    const places = this.trusting(() => this.database.query("SELECT shard, applied_index FROM meta").values()) as [ShardId, number][];
    for (const [shard, applied] of places) {
      const durable = durableIndex(shard);
      if (applied <= durable) continue;
      // By its keys: a row that another shard saved before a split or a merge is as much of a lost future as its own.
      const header = this.meta(shard)?.header;
      this.removeMeta(shard);
      if (header === undefined || isRemoved(shard)) continue;
      this.deleteRange(fromBytes(decodeShardHeader, header));
      warn(`The checkpoint of shard ${shard} was dropped: it is at index ${applied}, and the log ends at ${durable}`);
    }
  }

  /** Runs a statement; a file that SQLite finds damaged is not used again, and one that can't be reached now is asked again later. */
  private trusting<T>(run: () => T): T {
    try {
      return run();
    } catch (error) {
      const fault = sqliteFault(this.path, error);
      if (fault === "damaged") throw this.damaged((error as Error).message, "a whole database");
      throw fault === "other" ? error : fault;
    }
  }

  private damaged(got: string, want: string): CorruptionError {
    suspect(this.path);
    return new CorruptionError(
      "read the checkpoint",
      { file: this.path, offset: 0, got, want },
      "start the node again: it builds the checkpoint anew from the log",
    );
  }
}
