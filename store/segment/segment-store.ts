/**
 * Where a partition's history is read from.
 *
 * Today that is the write-ahead log's own files, followed backwards from the partition's last
 * record (`Record.previous`). Sealed segments take the older part later, behind this interface.
 */
import type { Index, Partition, Seq, ShardId } from "#core/base";

export interface HistoryRange {
  readonly shard: ShardId;
  readonly partition: Partition;
  /** Events [firstSeq, endSeq). */
  readonly firstSeq: Seq;
  readonly endSeq: Seq;
  /** Log index of the record that holds event endSeq − 1. */
  readonly lastIndex: Index;
}

export interface SegmentStore {
  /** Canonical event bytes in order, each chunk of about a megabyte or less; the bytes are the caller's. */
  history(range: HistoryRange): AsyncIterable<Uint8Array[]>;
}
