/** Tables of the checkpoint database, and what a row of them is. */
import { crc32 } from "node:zlib";
import { asShardId, type Key, type Partition, type ShardId } from "#core/base";

export interface StateRow {
  readonly partition: Partition;
  readonly key: Key;
  readonly state: Uint8Array;
  /** When the partition needs attention, in milliseconds since 1970; Infinity = never by itself. */
  readonly dueMs: number;
  /** Log index that the state is the fold of. */
  readonly index: number;
}

/** A row as another node gets it. */
export interface ShardRow extends StateRow {
  /** Who saved it, and whose log `index` is of. */
  readonly shard: ShardId;
}

export interface CheckpointMeta {
  readonly shard: ShardId;
  /** Every state of the shard is saved as of this index or later: replay starts behind it. */
  readonly appliedIndex: number;
  /** Term of that record; 0 = not said. */
  readonly term?: number;
  /** The shard's clock was not past this. */
  readonly clockMs: number;
  /** Encoded membership as of `appliedIndex`. */
  readonly conf: Uint8Array;
  /** Encoded header of the shard, and the log index that it is the fold of; left out = `appliedIndex`. */
  readonly header: Uint8Array;
  readonly headerIndex?: number;
}

export const checkpointVersion = 2;

const rowColumns = `
  name TEXT NOT NULL, key INTEGER NOT NULL, shard INTEGER NOT NULL, state BLOB NOT NULL, due_ms REAL, last_index INTEGER NOT NULL,
  checksum INTEGER NOT NULL`;

/** `incoming`: rows of snapshots that are not whole yet, by the shard that they are for. */
export const checkpointSchema = `
  CREATE TABLE partition (${rowColumns}, PRIMARY KEY (name)) STRICT;
  CREATE INDEX partition_key ON partition (key, name);
  CREATE INDEX partition_due ON partition (due_ms, name, key) WHERE due_ms IS NOT NULL;
  CREATE TABLE incoming (target INTEGER NOT NULL, ${rowColumns}, PRIMARY KEY (target, name)) STRICT;
  CREATE TABLE meta (
    shard INTEGER PRIMARY KEY, applied_index INTEGER NOT NULL, term INTEGER NOT NULL, clock_ms REAL NOT NULL, conf BLOB NOT NULL,
    header BLOB NOT NULL, header_index INTEGER NOT NULL, checksum INTEGER NOT NULL
  ) STRICT;
`;

export interface StoredRow {
  name: string;
  key: number;
  shard: number;
  state: Uint8Array;
  due_ms: number | null;
  last_index: number;
  checksum: number;
}

export interface StoredMeta {
  shard: number;
  applied_index: number;
  term: number;
  clock_ms: number;
  conf: Uint8Array;
  header: Uint8Array;
  header_index: number;
  checksum: number;
}

type Value = string | number | null | Uint8Array;

/** The values of a row's columns in order. */
export function valuesOfRow({ partition, key, state, dueMs, index }: StateRow, shard: ShardId): Value[] {
  const due = Number.isFinite(dueMs) ? dueMs : null;
  const checksum = rowChecksum({ name: partition, key, shard, state, due_ms: due, last_index: index });
  return [partition, key, shard, state, due, index, checksum];
}

export function valuesOfMeta(meta: CheckpointMeta): Value[] {
  const { shard, appliedIndex, term = 0, clockMs, conf, header, headerIndex = appliedIndex } = meta;
  const stored = { shard, applied_index: appliedIndex, term, clock_ms: clockMs, conf, header, header_index: headerIndex };
  return [...Object.values(stored), metaChecksum(stored)];
}

/** Undefined where the row is not as it was saved. */
export function rowOf(stored: StoredRow): ShardRow | undefined {
  if (rowChecksum(stored) !== stored.checksum) return undefined;
  const { name, key, shard, state, due_ms: due, last_index: index } = stored;
  return { partition: name as Partition, key, shard: asShardId(shard), state, dueMs: due ?? Number.POSITIVE_INFINITY, index };
}

/** Undefined where the row is not as it was saved. */
export function metaOf(stored: StoredMeta): CheckpointMeta | undefined {
  if (metaChecksum(stored) !== stored.checksum) return undefined;
  const { shard, applied_index: appliedIndex, term, clock_ms: clockMs, conf, header, header_index: headerIndex } = stored;
  return { shard: asShardId(shard), appliedIndex, term, clockMs, conf, header, headerIndex };
}

function rowChecksum({ name, key, shard, state, due_ms: due, last_index: index }: Omit<StoredRow, "checksum">): number {
  return crc32(state, crc32(`${name} ${key} ${shard} ${due} ${index}`));
}

function metaChecksum({ shard, applied_index, term, clock_ms, conf, header, header_index }: Omit<StoredMeta, "checksum">): number {
  return crc32(header, crc32(conf, crc32(`${shard} ${applied_index} ${term} ${clock_ms} ${header_index} ${conf.length}`)));
}
