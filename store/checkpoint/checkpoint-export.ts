/**
 * The states of a range and their shard's place in the log, as of one moment: what a new replica
 * is given.
 *
 * Reads inside one transaction of a connection of its own, a batch at a time, going on by
 * (key, name): memory holds one batch, and the shard saves on meanwhile.
 */
import type { Database } from "bun:sqlite";
import type { KeyRange, ShardId } from "#core/base";
import type { CorruptionError } from "../corruption-error.ts";
import { type CheckpointMeta, metaOf, rowOf, type ShardRow, type StoredMeta, type StoredRow } from "./checkpoint-row.ts";

const rowsMax = 256;

export interface ExportOf {
  readonly shard: ShardId;
  readonly range: KeyRange;
  readonly fault: (what: string) => CorruptionError;
}

export class CheckpointExport {
  /** Undefined when nothing of the shard was saved yet. */
  readonly meta: CheckpointMeta | undefined;
  private readonly database: Database;
  private readonly of: ExportOf;
  private isClosed = false;

  constructor(database: Database, of: ExportOf) {
    this.database = database;
    this.of = of;
    try {
      // The first read takes the view that all others have.
      database.run("BEGIN");
      const stored = database.query("SELECT * FROM meta WHERE shard = ?").get(of.shard) as StoredMeta | null;
      this.meta = stored === null ? undefined : metaOf(stored);
      if (stored !== null && this.meta === undefined) throw of.fault(`a place of shard ${of.shard} with another checksum`);
    } catch (error) {
      this.close();
      throw error;
    }
  }

  /** The states in key order, in batches of at most `bytesMax` bytes of state, or of one. Throws `CorruptionError`. */
  *batches(bytesMax: number): Generator<ShardRow[]> {
    let batch: ShardRow[] = [];
    let bytes = 0;
    for (const row of this.rows()) {
      if (batch.length > 0 && (bytes + row.state.length > bytesMax || batch.length === rowsMax)) {
        yield batch;
        batch = [];
        bytes = 0;
      }
      batch.push(row);
      bytes += row.state.length;
    }
    if (batch.length > 0) yield batch;
  }

  close(): void {
    if (this.isClosed) return;
    this.isClosed = true;
    this.database.close();
  }

  private *rows(): Generator<ShardRow> {
    const { first, last } = this.of.range;
    const sql = "SELECT * FROM partition WHERE (key, name) > (?, ?) AND key >= ? AND key <= ? ORDER BY key, name LIMIT ?";
    // Large states make a page large: few are read at once.
    const pageRows = 16;
    for (let after: readonly [number, string] = [first, ""]; ; ) {
      const page = this.database.query(sql).all(...after, first, last, pageRows) as StoredRow[];
      for (const stored of page) {
        const row = rowOf(stored);
        if (row === undefined) throw this.of.fault(`a state of ${stored.name} with another checksum`);
        yield row;
      }
      const end = page.at(-1);
      if (end === undefined || page.length < pageRows) return;
      after = [end.key, end.name];
    }
  }
}
