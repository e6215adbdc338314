/**
 * Where a partition's history is read from.
 *
 * It is followed backwards from the partition's last record (`Record.previous`), also into the logs
 * of other shards (`Record.previous_shard`), wherever each record lies: in this node's log, or in a
 * sealed segment.
 */
import type { Index, Partition, Seq, ShardId } from "#core/base";
import type { SealedHistory } from "./sealed/sealed-reader.ts";
import type { Place } from "./sealed/summary.ts";

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

export interface SegmentStore {
  /** Canonical event bytes in order, each chunk of about a megabyte or less; the bytes are the caller's. */
  history(range: HistoryRange): AsyncIterable<Uint8Array[]>;
}

/** Events [firstSeq, endSeq) of a partition, of which the last one is in the record at `place`. */
export interface SealedWanted {
  readonly partition: Partition;
  readonly place: Place;
  readonly firstSeq: Seq;
  readonly endSeq: Seq;
}

/** Segments that outlive the log. */
export interface SealedTier {
  /**
   * The wanted events, as far back as one segment has them; undefined where their record is certainly
   * not sealed. Rejects with `HopError` STORE_UNAVAILABLE where that can't be known now.
   */
  history(wanted: SealedWanted): Promise<SealedHistory | undefined>;
}
