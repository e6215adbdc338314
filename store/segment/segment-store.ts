/**
 * Where a partition's history is read from.
 *
 * Today that is the write-ahead log's own files, followed backwards from the partition's last
 * record (`Record.previous`), also into the logs of other shards (`Record.previous_shard`). Sealed segments take the older part later, behind this interface.
 */
import type { Index, Partition, Seq, ShardId } from "#core/base";
import type { LogEntry } from "../log/log-store.ts";

export interface HistoryRange {
  /** Whose log `lastIndex` is of: not always the shard that has the partition now. */
  readonly shard: ShardId;
  readonly partition: Partition;
  /** Events [firstSeq, endSeq). */
  readonly firstSeq: Seq;
  readonly endSeq: Seq;
  /** Log index of the record that holds event endSeq − 1. */
  readonly lastIndex: Index;
}

/** Records of one shard with index in [from, end). */
export interface ArchiveRange {
  readonly shard: ShardId;
  readonly from: Index;
  readonly end: Index;
}

export interface SegmentStore {
  /** Canonical event bytes in order, each chunk of about a megabyte or less; the bytes are the caller's. */
  history(range: HistoryRange): AsyncIterable<Uint8Array[]>;
  /** Raw records in index order, as far as this node has them, in chunks of about `chunkBytes` or less; the bytes are the caller's. */
  archive(range: ArchiveRange, chunkBytes: number): AsyncIterable<LogEntry[]>;
}
