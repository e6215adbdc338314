/**
 * States of partitions, saved off the commit path: what memory need not hold, and where replay
 * starts after a restart.
 *
 * Callers save only what is durable in the log; then whatever a crash leaves here is a state the
 * log leads to. Each row carries a checksum: a flipped bit is never taken for a state.
 */
import type { Database } from "bun:sqlite";
import { crc32 } from "node:zlib";
import { asIndex, type Index, type Partition, type ShardId, type StateReader } from "#core/base";
import { CorruptionError } from "../corruption-error.ts";
import { type DerivedFormat, type DerivedOptions, openDerived, suspect } from "../derived-database.ts";

export interface StateRow {
  readonly partition: Partition;
  readonly state: Uint8Array;
  /** When the partition needs attention, in milliseconds since 1970; Infinity = never by itself. */
  readonly dueMs: number;
  /** Log index that the state is the fold of. */
  readonly index: number;
}

export interface CheckpointMeta {
  readonly shard: ShardId;
  /** Every state of the shard is saved as of this index or later: replay starts behind it. */
  readonly appliedIndex: number;
  /** The shard's clock was not past this. */
  readonly clockMs: number;
}

export interface CheckpointOptions extends DerivedOptions {
  /** Highest durable index of a shard: a checkpoint from beyond it is of a log that was longer. */
  readonly durableIndex: (shard: ShardId) => Index;
}

const schema = `
  CREATE TABLE partition (name TEXT PRIMARY KEY, state BLOB NOT NULL, due_ms REAL, last_index INTEGER NOT NULL, checksum INTEGER NOT NULL) STRICT;
  CREATE INDEX partition_due ON partition (due_ms) WHERE due_ms IS NOT NULL;
  CREATE TABLE meta (shard INTEGER PRIMARY KEY, applied_index INTEGER NOT NULL, clock_ms REAL NOT NULL) STRICT;
`;

interface SavedRow {
  state: Uint8Array;
  due_ms: number | null;
  last_index: number;
  checksum: number;
}

export class CheckpointStore implements StateReader {
  private readonly path: string;
  private readonly database: Database;
  private readonly saveAll: (rows: readonly StateRow[], meta: CheckpointMeta) => void;

  static open(options: CheckpointOptions): CheckpointStore {
    const format: DerivedFormat = { what: "checkpoint", version: 1, schema, problem: (database) => beyond(database, options.durableIndex) };
    return new CheckpointStore(options.path, openDerived(options, format));
  }

  private constructor(path: string, database: Database) {
    this.path = path;
    this.database = database;
    const put = database.query("INSERT OR REPLACE INTO partition VALUES (?, ?, ?, ?, ?)");
    const mark = database.query("INSERT OR REPLACE INTO meta VALUES (?, ?, ?)");
    this.saveAll = database.transaction((rows: readonly StateRow[], meta: CheckpointMeta) => {
      for (const { partition, state, dueMs, index } of rows) {
        const due = Number.isFinite(dueMs) ? dueMs : null;
        put.run(partition, state, due, index, checksumOf(partition, state, due, index));
      }
      mark.run(meta.shard, meta.appliedIndex, meta.clockMs);
    });
  }

  /** Throws `CorruptionError` where the row is damaged; the file is then set aside at the next opening. */
  load(partition: Partition): Uint8Array | undefined {
    const row = this.trusting(() =>
      this.database.query("SELECT state, due_ms, last_index, checksum FROM partition WHERE name = ?").get(partition),
    ) as SavedRow | null;
    if (row === null) return undefined;
    const got = checksumOf(partition, row.state, row.due_ms, row.last_index);
    if (got === row.checksum) return row.state;
    throw this.damaged(`checksum ${got} of ${partition}`, `${row.checksum}`);
  }

  dueBefore(beforeMs: number, limit: number): Partition[] {
    const sql = "SELECT name FROM partition WHERE due_ms < ? ORDER BY due_ms, name LIMIT ?";
    return this.trusting(() => this.database.query(sql).values(beforeMs, limit)).map(([name]) => name as Partition);
  }

  /** Saves states and the shard's place in the log together, or neither. */
  save(rows: readonly StateRow[], meta: CheckpointMeta): void {
    this.trusting(() => this.saveAll(rows, meta));
  }

  meta(shard: ShardId): CheckpointMeta | undefined {
    const row = this.trusting(() => this.database.query("SELECT applied_index, clock_ms FROM meta WHERE shard = ?").get(shard));
    if (row === null) return undefined;
    const { applied_index: appliedIndex, clock_ms: clockMs } = row as { applied_index: number; clock_ms: number };
    return { shard, appliedIndex, clockMs };
  }

  count(): number {
    const row = this.trusting(() => this.database.query("SELECT count(*) AS count FROM partition").get());
    return (row as { count: number }).count;
  }

  close(): void {
    this.database.close();
  }

  /** Runs a statement; a file that SQLite finds damaged is not used again. */
  private trusting<T>(run: () => T): T {
    try {
      return run();
    } catch (error) {
      const code = String((error as { code?: unknown }).code);
      if (!code.startsWith("SQLITE_CORRUPT") && code !== "SQLITE_NOTADB") throw error;
      throw this.damaged((error as Error).message, "a whole database");
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

function checksumOf(partition: string, state: Uint8Array, due: number | null, index: number): number {
  return crc32(state, crc32(`${partition} ${due} ${index}`));
}

function beyond(database: Database, durableIndex: (shard: ShardId) => Index): string | undefined {
  for (const [shard, applied] of database.query("SELECT shard, applied_index FROM meta").values() as [ShardId, number][]) {
    const durable = durableIndex(shard);
    if (asIndex(applied) > durable) return `it is at index ${applied} of shard ${shard}, and the log ends at ${durable}`;
  }
  return undefined;
}
