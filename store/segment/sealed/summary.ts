/**
 * What a manifest says of one sealed segment, which is two objects: `segment`, a Parquet file with a
 * row for each event, and `index`, which says where in it a history lies.
 *
 * Every byte that a reader believes is covered by a hash in here, or by one in the index's directory,
 * whose hash is in here (docs/adr/0017).
 */
import type { Index, Key, Partition, Seq, ShardId, Term } from "#core/base";

/** Raised when a reader of this version could not read what is written. */
export const sealedFormat = 1;

/** A record of a shard's log. */
export interface Place {
  readonly shard: ShardId;
  readonly index: Index;
}

/** Records from `first` on, up to the next one of these, are of `term`. */
export interface TermStart {
  readonly first: Index;
  readonly term: Term;
}

export interface SegmentSummary {
  readonly format: number;
  readonly shard: ShardId;
  /** Records of the shard's log, inclusive; those without events have no row. */
  readonly firstIndex: Index;
  readonly lastIndex: Index;
  readonly terms: readonly TermStart[];
  /** Events. */
  readonly rows: number;
  readonly segmentBytes: number;
  readonly segmentSha256: Uint8Array;
  readonly indexBytes: number;
  readonly indexSha256: Uint8Array;
  /** Where in the index its directory is, which reaches to the end. */
  readonly directoryAt: number;
  readonly directorySha256: Uint8Array;
  /** SHA-256 of all events' hashes in row order: the same for the same rows, however they are encoded. */
  readonly digest: Uint8Array;
  /** Undefined where there is no row. */
  readonly extent: SegmentExtent | undefined;
}

/** Least and greatest of what the rows have, both inclusive. */
export interface SegmentExtent {
  /** In the order of their UTF-8 bytes. */
  readonly firstPartition: Partition;
  readonly lastPartition: Partition;
  readonly firstKey: Key;
  readonly lastKey: Key;
  readonly firstTimeMs: number;
  readonly lastTimeMs: number;
}

/** Events of one partition that follow each other in one segment. A partition that was with another shard meanwhile has several. */
export interface Piece {
  readonly partition: Partition;
  /** Events [firstSeq, endSeq). */
  readonly firstSeq: Seq;
  readonly endSeq: Seq;
  readonly firstRow: number;
  /** Hash of the event before; zeros before the first one of all. */
  readonly prevHash: Uint8Array;
  /** Record that holds the event before; undefined before the first one of all. */
  readonly previous: Place | undefined;
}

export interface SealedSegment {
  readonly segment: Uint8Array;
  readonly index: Uint8Array;
  readonly summary: SegmentSummary;
}
