/**
 * The write-ahead log: one for each node, shared by all its shards.
 *
 * Of each shard it holds the entries of its Raft group, found by (shard, index), and the group's
 * hard state. Records are encoded in place in the log's buffer (`begin`/`end`) by a leader, and
 * copied there (`append`) by a follower; they are made durable in groups. Two implementations,
 * `WalLogStore` and `MemoryLogStore`, pass `log-store.suite.ts`.
 *
 * A shard's **log** is what follows its base. What the files hold of it besides is **archive**:
 * what the log was before a newer base, what a replica held that is gone, and what `ingestArchive`
 * brought. Archive is read like the log, and is no part of it. Archive that is **released** is of
 * no use here any more, as it is durable elsewhere: its files go.
 */
import type { Index, LogWriter, ShardId, Term } from "#core/base";
import type { Writer } from "#proto";

/** `data`: an encoded `Record`, or nothing; `config`: an encoded `ConfChangeV2`. */
export type EntryKind = "data" | "config";

export interface LogRecord {
  readonly shard: ShardId;
  readonly index: Index;
  readonly term: Term;
  readonly kind: EntryKind;
  /** A view that is valid until the next read. */
  readonly body: Uint8Array;
}

/** A record as Raft has it: its bytes are nobody's to change, and stay. */
export interface LogEntry {
  readonly index: Index;
  readonly term: Term;
  readonly kind: EntryKind;
  readonly data: Uint8Array;
}

/** What `scanMany` gives at a time, in bytes of records: about half a millisecond of a thread. */
export const scanBytes = 64 << 10;

export interface HardState {
  readonly term: Term;
  /** Node that got the vote in this term; 0 = none. */
  readonly vote: number;
  readonly commit: Index;
}

/** What a shard's log begins behind. */
export interface LogBase {
  readonly index: Index;
  readonly term: Term;
}

/** What the log takes of its disk. */
export interface LogUsage {
  /** Of its files, with what is prepared for later. */
  readonly bytes: number;
  /** Of records that are not released, about. */
  readonly liveBytes: number;
  /** `liveBytes` by shard; those without any are left out. */
  readonly shards: ReadonlyMap<ShardId, number>;
  /** What forgetting cost and brought in this life of the log: bytes of records that were written again, and of files that went. */
  readonly movedBytes: number;
  readonly trimmedBytes: number;
}

/** What is known of the shards without reading: it answers at once, for what was appended if not said otherwise. */
export interface LogView {
  /** Shards that the log knows, those of removed replicas included. */
  shards(): ShardId[];
  base(shard: ShardId): LogBase;
  /** Index of the log's first record, whether it is there yet or not. */
  firstIndex(shard: ShardId): Index;
  /** Highest appended index; that of the base where nothing follows. */
  lastIndex(shard: ShardId): Index;
  /** Highest index up to which the log as it is now is durable: a record that another one overwrote does not count. */
  durableIndex(shard: ShardId): Index;
  /** Term of a record of the log, or of its base; undefined where the log has no such record. */
  term(shard: ShardId, index: Index): Term | undefined;
  /** Archive of the shard up to this index is released; 0 = none. */
  released(shard: ShardId): Index;
  /** Takes time with the number of segments and shards, and reads nothing. */
  usage(): LogUsage;
  /** The newest appended one; zeros where there is none. */
  hardState(shard: ShardId): HardState;
  /** The replica is gone from this node, and its hard state kept. */
  isRemoved(shard: ShardId): boolean;
  /** Frames appended in this life of the log: what was appended is durable when `durablePosition` is there. */
  position(): number;
  durablePosition(): number;
}

export interface LogStore extends LogWriter, LogView {
  /**
   * Opens a record. An index that the log has cuts the shard's log there first: the later record
   * wins. It may not be beyond the one behind the last.
   */
  begin(shard: ShardId, index: Index, term: Term, kind?: EntryKind): Writer;
  /** Appends entries that follow each other, with a copy of their bytes. */
  append(shard: ShardId, entries: readonly LogEntry[]): void;
  /** A term never goes back, and has one vote. */
  setHardState(shard: ShardId, state: HardState): void;
  /** The shard's log is empty from here on, and begins behind `index`: what it held is archive. A removed shard comes back so. */
  setBase(shard: ShardId, index: Index, term: Term): void;
  /**
   * The shard's log begins behind `index`, a durable one of its records, and goes on with what it has
   * above; what it held up to there is archive.
   */
  compact(shard: ShardId, index: Index): void;
  /**
   * Records of the shard's archive with index ≤ `through`, which is not above its log's base, are of no
   * use here any more, as they are durable elsewhere; those that become archive later included.
   */
  release(shard: ShardId, through: Index): void;
  /** The replica is gone: its log is archive, and its hard state is kept so that it never votes twice. */
  remove(shard: ShardId): void;
  /**
   * Writes records of a shard, with rising indexes, that were committed in a log elsewhere: `read`
   * and `scan` find them where the shard's log does not hold their index.
   */
  ingestArchive(shard: ShardId, records: readonly LogEntry[]): void;

  /**
   * From now on `takeAppended` has what `begin` and `end` write for the shard: with a copy of its
   * bytes where it is replicated, else without.
   */
  setReplicated(shard: ShardId, isReplicated: boolean): void;
  /** Entries that `end` sealed since the last call, in order. */
  takeAppended(shard: ShardId): LogEntry[];
  /**
   * Appended entries [begin, end), durable or not, as many as `maxBytes` takes and at least one. Throws
   * `CorruptionError` where their bytes are damaged. Recent ones of a replicated shard come from memory.
   */
  entries(shard: ShardId, begin: Index, end: Index, maxBytes: number): LogEntry[];

  /** Space for another decision is assured; false while the disk is full. */
  hasRoom(): boolean;
  /**
   * Asks for a group commit. `urgent`: something waits for it, flush as soon as the one in
   * flight is done. Otherwise what was appended rides with the next flush, within 2 ms.
   */
  kick(urgent: boolean): void;
  /** Called after each group commit, with the log's state already moved on. */
  onDurable: () => void;
  /** Called once when the log can take no more: nothing unacknowledged may be acknowledged. */
  onPoison: (cause: Error) => void;
  /**
   * One durable record, of the log or of the archive. Rejects with `CorruptionError` (which names file
   * and offset) where its bytes are damaged, and with `ReleasedError` where it is archive that is released.
   */
  read(shard: ShardId, index: Index): Promise<LogRecord>;
  /**
   * Durable records of a shard with index in [from, end), in order; released archive, and indexes
   * that neither log nor archive has, are left out. Throws `ReleasedError` where it is
   * overtaken: what it has not come to yet was released, and its file went.
   */
  scan(shard: ShardId, from: Index, end?: Index): AsyncIterable<LogRecord>;
  /** `scan` for those who read much: about 64 KiB of records at a time, valid until the next ones are asked for, and without a promise for each. */
  scanMany(shard: ShardId, from: Index, end?: Index): AsyncIterable<readonly LogRecord[]>;
  /** `scan` without awaits, for replay when the node starts. */
  replay(shard: ShardId, from: Index, end?: Index): Iterable<LogRecord>;
  close(): Promise<void>;
}
