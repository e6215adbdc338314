/** Bytes at rest: the log, what is derived from it, and blobs. */
export { auditBlobs, type StoredBlob } from "./cas/blob-audit.ts";
export { BlobStore, type KeptBlob, type OpenBlob } from "./cas/cas.ts";
export { IncomingBlob } from "./cas/incoming-blob.ts";
export type { CheckpointExport } from "./checkpoint/checkpoint-export.ts";
export type { CheckpointMeta, ShardRow, StateRow } from "./checkpoint/checkpoint-row.ts";
export type { CheckpointOptions } from "./checkpoint/checkpoint-store.ts";
export { CheckpointStore } from "./checkpoint/checkpoint-store.ts";
export type { Damage } from "./corruption-error.ts";
export { CorruptionError } from "./corruption-error.ts";
export type { DerivedOptions } from "./derived-database.ts";
export { eventKind, eventPartition, eventSeq } from "./event-head.ts";
export { FolderLock } from "./lock.ts";
export { auditLog, type LogDamage, type PlacedRecord } from "./log/log-audit.ts";
export type { LogDisk } from "./log/log-disk.ts";
export { realDisk } from "./log/log-disk.ts";
export type { EntryKind, HardState, LogBase, LogEntry, LogRecord, LogStore, LogUsage, LogView } from "./log/log-store.ts";
export { MemoryDisk } from "./log/memory-disk.ts";
export type { LogSchedule } from "./log/memory-log-store.ts";
export { MemoryLogStore } from "./log/memory-log-store.ts";
export type { TornTail } from "./log/recovery.ts";
export { ReleasedError } from "./log/released-error.ts";
export type { WalOptions } from "./log/wal-log-store.ts";
export { WalLogStore } from "./log/wal-log-store.ts";
export {
  type CheckpointEntry,
  decodeManifest,
  type Manifest,
  type RecordsEntry,
  type SegmentEntry,
  type StoredObject,
} from "./manifest/manifest.ts";
export { ManifestLog, type Publication, type StoredManifest } from "./manifest/manifest-log.ts";
export { MissingObjectError, namedObject, segmentReader } from "./manifest/named-object.ts";
export {
  blobKey,
  checkpointKey,
  claimBeatKey,
  claimEpoch,
  claimKey,
  claimPrefix,
  claimVerdictKey,
  manifestKey,
  manifestNumber,
  manifestPrefix,
  type PlacementNumber,
  placementKey,
  placementNumber,
  placementPrefix,
  rangeEnd,
  recordsKey,
  segmentIndexKey,
  segmentKey,
  shardPrefixes,
} from "./manifest/object-names.ts";
export { ObjectTier } from "./manifest/object-tier.ts";
export { BackedObjectStore, type ObjectStoreOptions } from "./objects/backed-object-store.ts";
export {
  MemoryBucket,
  type MemoryObjectOptions,
  MemoryObjectStore,
  type ObjectSchedule,
} from "./objects/memory-object-store.ts";
export { checkObjectStore } from "./objects/object-check.ts";
export { ObjectRefusal, type Problem } from "./objects/object-error.ts";
export { drawRates, type FaultRates, type ObjectFault, type ObjectFaults, type ObjectVerb, randomFaults } from "./objects/object-fault.ts";
export type {
  ByteRange,
  DownloadOptions,
  GetOptions,
  ListedObject,
  ListOptions,
  ObjectHead,
  ObjectStore,
  PutOptions,
  PutOutcome,
} from "./objects/object-store.ts";
export { openObjectStore } from "./objects/open-object-store.ts";
export type { ObjectTiming, RetryPolicy } from "./objects/retry.ts";
export { S3Backend, type S3Options } from "./objects/s3-backend.ts";
export { EventFields } from "./segment/sealed/event-fields.ts";
export { isExpired, type Removal, recordsOfSegments, type SegmentToMerge } from "./segment/sealed/merged-records.ts";
export {
  batchExtent,
  type PackedRecord,
  packedRecords,
  packRecords,
  RecordPacker,
  type RecordToSeal,
  unpackRecords,
} from "./segment/sealed/record-batch.ts";
export { RecordEvents } from "./segment/sealed/record-events.ts";
export type { SealOptions } from "./segment/sealed/seal.ts";
export { SealThread } from "./segment/sealed/seal-thread.ts";
export { type PackedObject, packObject, type SealWork, sealInPlace, sealSegment } from "./segment/sealed/seal-work.ts";
export { type HistoryWanted, type SealedHistory, SealedReader, type SealedRow } from "./segment/sealed/sealed-reader.ts";
export {
  type Piece,
  type Place,
  type SealedSegment,
  type SegmentExtent,
  type SegmentSummary,
  sealedFormat,
  type TermStart,
} from "./segment/sealed/summary.ts";
export type { SealedObject, SealedObjects } from "./segment/sealed/verified-objects.ts";
export { auditSealed, checkSealed, inMemory, type SealedNames } from "./segment/sealed/verify.ts";
export type { HistoryRange, SealedTier, SealedWanted, SegmentStore } from "./segment/segment-store.ts";
export { TieredSegmentStore } from "./segment/tiered-segment-store.ts";
export type { ProjectorOptions } from "./visibility/projector.ts";
export { Projector } from "./visibility/projector.ts";
export { type EndedWanted, pageTokenOf, RunQuery } from "./visibility/query.ts";
export { filterOf } from "./visibility/run-filter.ts";
export type { PlacedEvent, RunRebuild } from "./visibility/run-rebuild.ts";
export type { RunRow, StoredRun } from "./visibility/schema.ts";
