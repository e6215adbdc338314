/**
 * The write-ahead log: one for each node, shared by all its shards.
 *
 * Records are encoded in place in the log's buffer (`LogWriter`), made durable in groups, and
 * found again by (shard, index). Two implementations, `WalLogStore` and `MemoryLogStore`, pass
 * `log-store.suite.ts`.
 */
import type { Index, LogWriter, ShardId, Term } from "#core/base";

export interface LogRecord {
  readonly shard: ShardId;
  readonly index: Index;
  readonly term: Term;
  /** Encoded `Record`; a view that is valid until the next read. */
  readonly body: Uint8Array;
}

export interface LogStore extends LogWriter {
  /** Space for another decision is assured; false while the disk is full. */
  hasRoom(): boolean;
  /**
   * Asks for a group commit. `urgent`: something waits for it, flush as soon as the one in
   * flight is done. Otherwise what was appended rides with the next flush, within 2 ms.
   */
  kick(urgent: boolean): void;
  /** Highest durable index of a shard. */
  durableIndex(shard: ShardId): Index;
  /** Highest appended index of a shard. */
  lastIndex(shard: ShardId): Index;
  /** Called after each group commit, with the log's state already moved on. */
  onDurable: () => void;
  /** Called once when the log can take no more: nothing unacknowledged may be acknowledged. */
  onPoison: (cause: Error) => void;
  /** One durable record. Rejects with `CorruptionError` (which names file and offset) where its bytes are damaged. */
  read(shard: ShardId, index: Index): Promise<LogRecord>;
  /** Durable records of a shard with index in [from, …), in order. */
  scan(shard: ShardId, from: Index): AsyncIterable<LogRecord>;
  close(): Promise<void>;
}
