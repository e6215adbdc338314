/**
 * The checkpoint database of a simulated machine: the tables of `CheckpointStore` in memory, with
 * what SQLite may do to them.
 *
 * A process that dies loses nothing. When the power goes, the last transactions since the last
 * `sync` are gone, never half of one and never one from the middle.
 */
import {
  HopError,
  inRange,
  type Key,
  type KeyRange,
  type Partition,
  type Prng,
  type SavedState,
  type ShardId,
  type StateReader,
} from "#core/base";
import { decodeHeader } from "#core/shard";
import type { CheckpointMeta, CheckpointStore, LogView, ShardRow } from "#store";

type StateRow = Omit<ShardRow, "shard">;

interface Tables {
  readonly rows: Map<Partition, ShardRow>;
  readonly metas: Map<ShardId, CheckpointMeta>;
  readonly incoming: Map<ShardId, Map<Partition, ShardRow>>;
}

const noTables = (): Tables => ({ rows: new Map(), metas: new Map(), incoming: new Map() });

const copyOf = ({ rows, metas, incoming }: Tables): Tables => ({
  rows: new Map(rows),
  metas: new Map(metas),
  incoming: new Map([...incoming].map(([shard, staged]) => [shard, new Map(staged)])),
});

/** What outlives a crash. */
export class CheckpointDisk {
  tables = noTables();
  private kept = noTables();
  private unsynced: ((tables: Tables) => void)[] = [];
  /** Whether the next save fails. */
  failsNow: () => boolean = () => false;
  /** Whether states can't be read now. */
  isUnreadableNow: () => boolean = () => false;
  /** How long it takes to make changes durable. */
  flush: (done: () => void) => void = (done) => done();
  /** Raised with each life: what an earlier one still does changes nothing. */
  life = 0;

  change(transaction: (tables: Tables) => void): void {
    transaction(this.tables);
    this.unsynced.push(transaction);
    if (this.unsynced.length > 400) this.sync();
  }

  sync(): void {
    for (const transaction of this.unsynced) transaction(this.kept);
    this.unsynced = [];
  }

  /** Does the same a little later, with what was changed by now. */
  syncLater(done: () => void): void {
    const last = this.unsynced.at(-1);
    this.flush(() => {
      const count = last === undefined ? 0 : this.unsynced.indexOf(last) + 1;
      for (const transaction of this.unsynced.splice(0, count)) transaction(this.kept);
      done();
    });
  }

  /** The power goes. Returns how many transactions are lost. */
  losePower(prng: Prng): number {
    const count = prng.below(this.unsynced.length + 1);
    const lost = this.unsynced.length - count;
    for (const transaction of this.unsynced.slice(0, count)) transaction(this.kept);
    this.unsynced = [];
    if (lost > 0) this.tables = copyOf(this.kept);
    return lost;
  }

  /** The database was found damaged and set aside. */
  wipe(): void {
    this.tables = noTables();
    this.kept = noTables();
    this.unsynced = [];
  }
}

class MemoryCheckpoints {
  private readonly disk: CheckpointDisk;
  private readonly life: number;

  constructor(disk: CheckpointDisk, log: Pick<LogView, "durableIndex" | "isRemoved">) {
    this.disk = disk;
    this.life = ++disk.life;
    for (const [shard, { appliedIndex, header }] of [...this.tables.metas]) {
      if (appliedIndex <= log.durableIndex(shard)) continue;
      this.removeMeta(shard);
      if (!log.isRemoved(shard)) this.deleteRange(decodeHeader(header));
    }
  }

  private get tables(): Tables {
    return this.disk.tables;
  }

  private change(transaction: (tables: Tables) => void): void {
    if (this.life === this.disk.life) this.disk.change(transaction);
  }

  reader(): StateReader {
    return {
      load: (partition) => this.reading(() => this.load(partition)),
      dueBefore: (beforeMs, limit, within) => this.reading(() => this.dueBefore(beforeMs, limit, within)),
    };
  }

  private reading<T>(read: () => T): T {
    if (this.disk.isUnreadableNow()) throw new HopError("STORE_UNAVAILABLE", "Cannot use the checkpoint now: disk I/O error");
    return read();
  }

  load(partition: Partition): SavedState | undefined {
    const row = this.tables.rows.get(partition);
    return row === undefined ? undefined : { state: row.state, shard: row.shard };
  }

  dueBefore(beforeMs: number, limit: number, range: KeyRange): Partition[] {
    const due: ShardRow[] = [];
    for (const row of this.tables.rows.values()) if (row.dueMs < beforeMs && inRange(range, row.key)) due.push(row);
    due.sort((a, b) => a.dueMs - b.dueMs || (a.partition < b.partition ? -1 : 1));
    return due.slice(0, limit).map((row) => row.partition);
  }

  save(states: readonly StateRow[], meta: CheckpointMeta, born: readonly CheckpointMeta[] = []): void {
    if (this.disk.failsNow()) throw new Error("database or disk is full");
    const saved = states.map((row) => ({ ...row, shard: meta.shard }));
    this.change(({ rows, metas }) => {
      for (const row of saved) rows.set(row.partition, row);
      for (const each of [meta, ...born]) metas.set(each.shard, each);
    });
  }

  sync(): void {
    this.disk.sync();
  }

  syncAside(done: (isSynced: boolean) => void): void {
    this.disk.syncLater(() => {
      if (this.life === this.disk.life) done(true);
    });
  }

  meta(shard: ShardId): CheckpointMeta | undefined {
    return this.tables.metas.get(shard);
  }

  removeMeta(shard: ShardId): void {
    this.change(({ metas }) => void metas.delete(shard));
  }

  deleteRange(range: KeyRange): void {
    this.change((tables) => dropRange(tables, range));
  }

  exportRange(shard: ShardId, range: KeyRange) {
    const rows = [...this.tables.rows.values()].filter((row) => inRange(range, row.key)).sort(byKey);
    return { meta: this.meta(shard), batches: (bytesMax: number) => batches(rows, bytesMax), close: () => {} };
  }

  importRows(shard: ShardId, rows: readonly ShardRow[]): void {
    this.change(({ incoming }) => {
      const staged = incoming.get(shard) ?? new Map<Partition, ShardRow>();
      incoming.set(shard, staged);
      for (const row of rows) staged.set(row.partition, { ...row, state: row.state.slice() });
    });
  }

  finishImport(range: KeyRange, meta: CheckpointMeta): void {
    this.change((tables) => {
      dropRange(tables, range);
      for (const row of tables.incoming.get(meta.shard)?.values() ?? []) tables.rows.set(row.partition, row);
      tables.incoming.delete(meta.shard);
      tables.metas.set(meta.shard, meta);
    });
  }

  dropImport(shard: ShardId): void {
    this.change(({ incoming }) => void incoming.delete(shard));
  }

  sizeOf(range: KeyRange): { readonly partitions: number; readonly bytes: number } {
    const rows = [...this.tables.rows.values()].filter((row) => inRange(range, row.key));
    return { partitions: rows.length, bytes: rows.reduce((sum, row) => sum + row.state.length, 0) };
  }

  keyAt(range: KeyRange, before: number): Key | undefined {
    return [...this.tables.rows.values()].filter((row) => inRange(range, row.key)).sort(byKey)[before]?.key;
  }

  count(): number {
    return this.tables.rows.size;
  }

  close(): void {}
}

/** The store of one life of a node. */
export function openCheckpoints(disk: CheckpointDisk, log: Pick<LogView, "durableIndex" | "isRemoved">): CheckpointStore {
  return new MemoryCheckpoints(disk, log) as unknown as CheckpointStore;
}

const byKey = (a: ShardRow, b: ShardRow) => a.key - b.key || (a.partition < b.partition ? -1 : 1);

function dropRange({ rows }: Tables, range: KeyRange): void {
  for (const row of rows.values()) if (inRange(range, row.key)) rows.delete(row.partition);
}

function* batches(rows: readonly ShardRow[], bytesMax: number): Generator<ShardRow[]> {
  let batch: ShardRow[] = [];
  let bytes = 0;
  for (const row of rows) {
    if (batch.length > 0 && (bytes + row.state.length > bytesMax || batch.length === 256)) {
      yield batch;
      batch = [];
      bytes = 0;
    }
    batch.push(row);
    bytes += row.state.length;
  }
  if (batch.length > 0) yield batch;
}
