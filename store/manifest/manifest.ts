/**
 * What object storage holds of one shard's log, as of one number.
 *
 * Manifests of a shard are numbered from 1, each names the hash of the one before, and none is
 * ever changed: the newest one is the truth, and whoever puts number n first has it. The text is
 * canonical: one that is accepted is the one way to write its values, so a changed byte is found
 * even by who has no hash of it.
 */
import { asIndex, asShardId, asTerm, fromHex, HopError, type Index, type KeyRange, type Partition, type ShardId, toHex } from "#core/base";
import type { SegmentExtent, SegmentSummary } from "../segment/sealed/summary.ts";

export const manifestFormat = 1;

/** An object and the hash of all of it. */
export interface StoredObject {
  readonly key: string;
  readonly bytes: number;
  readonly sha256: Uint8Array;
}

export interface SegmentEntry {
  /** Of the Parquet file. */
  readonly segment: string;
  /** Of its index. */
  readonly index: string;
  readonly summary: SegmentSummary;
}

/** States of the shard, from which its records behind `appliedIndex` lead on. */
export interface CheckpointEntry {
  readonly appliedIndex: Index;
  /** Keys of the shard as of then: it may have been split or have taken in another one since. */
  readonly range: KeyRange;
  /** In order. */
  readonly parts: readonly StoredObject[];
}

/** Records [first, last] as they are in the log. */
export interface RecordsEntry extends StoredObject {
  readonly first: Index;
  readonly last: Index;
}

export interface Manifest {
  readonly cluster: string;
  /** Raised each time the cluster is rebuilt from object storage: one that lives on elsewhere has a lower one. */
  readonly restoreEpoch: number;
  readonly shard: ShardId;
  readonly number: number;
  /** Hash of the manifest before; undefined for the first one. */
  readonly previous: Uint8Array | undefined;
  /** Who wrote it: the node, and the epoch of its leadership lease. */
  readonly writer: { readonly node: number; readonly epoch: number };
  readonly range: KeyRange;
  /** Shards whose logs the histories of this one's partitions may lead into. */
  readonly ancestors: readonly ShardId[];
  /** Every record through here is in `segments`. */
  readonly through: Index;
  /** Highest time of an event in the log through there, in milliseconds. */
  readonly clockMs: number;
  /** In the order of their indexes, without gaps: the first begins at 1 or where the shard was born. */
  readonly segments: readonly SegmentEntry[];
  readonly checkpoint: CheckpointEntry | undefined;
  /** What leads from the checkpoint to `through`, in order, without gaps; it may begin before the checkpoint's end. */
  readonly records: readonly RecordsEntry[];
}

const hash = (bytes: Uint8Array) => toHex(bytes);

function objectOut({ key, bytes, sha256 }: StoredObject) {
  return { key, bytes, sha256: hash(sha256) };
}

function checkpointOut({ appliedIndex, range, parts }: CheckpointEntry) {
  return { appliedIndex, range: [range.first, range.last], parts: parts.map(objectOut) };
}

function segmentOut({ segment, index, summary }: SegmentEntry) {
  const { extent } = summary;
  return {
    segment,
    index,
    format: summary.format,
    firstIndex: summary.firstIndex,
    lastIndex: summary.lastIndex,
    terms: summary.terms.map(({ first, term }) => [first, term]),
    rows: summary.rows,
    segmentBytes: summary.segmentBytes,
    segmentSha256: hash(summary.segmentSha256),
    indexBytes: summary.indexBytes,
    indexSha256: hash(summary.indexSha256),
    directoryAt: summary.directoryAt,
    directorySha256: hash(summary.directorySha256),
    digest: hash(summary.digest),
    extent:
      extent === undefined
        ? null
        : {
            partitions: [extent.firstPartition, extent.lastPartition],
            keys: [extent.firstKey, extent.lastKey],
            timesMs: [extent.firstTimeMs, extent.lastTimeMs],
          },
  };
}

/** The one text of a manifest. */
export function encodeManifest(manifest: Manifest): string {
  const { checkpoint } = manifest;
  const value = {
    format: manifestFormat,
    cluster: manifest.cluster,
    restoreEpoch: manifest.restoreEpoch,
    shard: manifest.shard,
    number: manifest.number,
    previous: manifest.previous === undefined ? null : hash(manifest.previous),
    writer: { node: manifest.writer.node, epoch: manifest.writer.epoch },
    range: [manifest.range.first, manifest.range.last],
    ancestors: manifest.ancestors,
    through: manifest.through,
    clockMs: manifest.clockMs,
    checkpoint: checkpoint === undefined ? null : checkpointOut(checkpoint),
    records: manifest.records.map((each) => ({ ...objectOut(each), first: each.first, last: each.last })),
    segments: manifest.segments.map(segmentOut),
  };
  return `${JSON.stringify(value, undefined, 1)}\n`;
}

class Malformed extends Error {}

type Json = Readonly<Record<string, unknown>>;

function count(value: unknown, name: string): number {
  if (typeof value !== "number" || !Number.isSafeInteger(value) || value < 0) throw new Malformed(`${name} is no count`);
  return value;
}

function text(value: unknown, name: string): string {
  if (typeof value !== "string") throw new Malformed(`${name} is no text`);
  return value;
}

function hashIn(value: unknown, name: string): Uint8Array {
  const bytes = typeof value === "string" ? fromHex(value) : undefined;
  if (bytes?.length !== 32) throw new Malformed(`${name} is no SHA-256 in hex`);
  return bytes;
}

function fields(value: unknown, name: string): Json {
  if (typeof value !== "object" || value === null || Array.isArray(value)) throw new Malformed(`${name} is no object`);
  return value as Json;
}

function list(value: unknown, name: string): readonly unknown[] {
  if (!Array.isArray(value)) throw new Malformed(`${name} is no list`);
  return value;
}

function pair<T>(value: unknown, name: string, read: (value: unknown, name: string) => T): [T, T] {
  const both = list(value, name);
  if (both.length !== 2) throw new Malformed(`${name} is no pair`);
  return [read(both[0], name), read(both[1], name)];
}

function objectIn(value: Json, name: string): StoredObject {
  return {
    key: text(value.key, `${name}.key`),
    bytes: count(value.bytes, `${name}.bytes`),
    sha256: hashIn(value.sha256, `${name}.sha256`),
  };
}

function extentIn(value: unknown): SegmentExtent | undefined {
  if (value === null) return undefined;
  const extent = fields(value, "extent");
  const [firstPartition, lastPartition] = pair(extent.partitions, "extent.partitions", text) as [Partition, Partition];
  const [firstKey, lastKey] = pair(extent.keys, "extent.keys", count);
  const [firstTimeMs, lastTimeMs] = pair(extent.timesMs, "extent.timesMs", count);
  return { firstPartition, lastPartition, firstKey, lastKey, firstTimeMs, lastTimeMs };
}

function segmentIn(value: unknown, shard: ShardId): SegmentEntry {
  const entry = fields(value, "segment");
  const summary: SegmentSummary = {
    format: count(entry.format, "format"),
    shard,
    firstIndex: asIndex(count(entry.firstIndex, "firstIndex")),
    lastIndex: asIndex(count(entry.lastIndex, "lastIndex")),
    terms: list(entry.terms, "terms").map((each) => {
      const [first, term] = pair(each, "terms", count);
      return { first: asIndex(first), term: asTerm(term) };
    }),
    rows: count(entry.rows, "rows"),
    segmentBytes: count(entry.segmentBytes, "segmentBytes"),
    segmentSha256: hashIn(entry.segmentSha256, "segmentSha256"),
    indexBytes: count(entry.indexBytes, "indexBytes"),
    indexSha256: hashIn(entry.indexSha256, "indexSha256"),
    directoryAt: count(entry.directoryAt, "directoryAt"),
    directorySha256: hashIn(entry.directorySha256, "directorySha256"),
    digest: hashIn(entry.digest, "digest"),
    extent: extentIn(entry.extent),
  };
  return { segment: text(entry.segment, "segment"), index: text(entry.index, "index"), summary };
}

function checkpointIn(value: unknown): CheckpointEntry | undefined {
  if (value === null) return undefined;
  const { appliedIndex, range, parts } = fields(value, "checkpoint");
  const [first, last] = pair(range, "checkpoint.range", count);
  return {
    appliedIndex: asIndex(count(appliedIndex, "checkpoint.appliedIndex")),
    range: { first, last },
    parts: list(parts, "checkpoint.parts").map((each) => objectIn(fields(each, "checkpoint.parts"), "checkpoint.parts")),
  };
}

function manifestIn(value: Json): Manifest {
  const format = count(value.format, "format");
  if (format > manifestFormat) throw new Malformed(`its format is ${format}, and this version reads ${manifestFormat}: use a newer one`);
  const shard = asShardId(count(value.shard, "shard"));
  const writer = fields(value.writer, "writer");
  const [first, last] = pair(value.range, "range", count);
  return {
    cluster: text(value.cluster, "cluster"),
    restoreEpoch: count(value.restoreEpoch, "restoreEpoch"),
    shard,
    number: count(value.number, "number"),
    previous: value.previous === null ? undefined : hashIn(value.previous, "previous"),
    writer: { node: count(writer.node, "writer.node"), epoch: count(writer.epoch, "writer.epoch") },
    range: { first, last },
    ancestors: list(value.ancestors, "ancestors").map((each) => asShardId(count(each, "ancestors"))),
    through: asIndex(count(value.through, "through")),
    clockMs: count(value.clockMs, "clockMs"),
    checkpoint: checkpointIn(value.checkpoint),
    records: list(value.records, "records").map((each) => {
      const entry = fields(each, "records");
      return {
        ...objectIn(entry, "records"),
        first: asIndex(count(entry.first, "records.first")),
        last: asIndex(count(entry.last, "records.last")),
      };
    }),
    segments: list(value.segments, "segments").map((each) => segmentIn(each, shard)),
  };
}

/** What does not fit together in a manifest, or undefined. */
function contradiction({ segments, records, through, checkpoint, number, previous }: Manifest): string | undefined {
  if (number === 0 || (number === 1) !== (previous === undefined)) return "its number does not fit to what was before it";
  for (const [i, { summary }] of segments.entries()) {
    const before = segments[i - 1]?.summary;
    if (before !== undefined && summary.firstIndex !== before.lastIndex + 1)
      return `a segment begins at ${summary.firstIndex}, behind one that ends at ${before.lastIndex}`;
    if (summary.lastIndex < summary.firstIndex) return `a segment ends at ${summary.lastIndex}, before its first record`;
  }
  const sealed = segments.at(-1)?.summary.lastIndex ?? 0;
  if (sealed !== through) return `its segments end at ${sealed}, and it is through ${through}`;
  const behind = (checkpoint?.appliedIndex ?? 0) + 1;
  let next = Math.min(records[0]?.first ?? behind, behind);
  for (const { first, last } of records) {
    if (first !== next || last < first) return `its records go on at ${first}, want ${next}`;
    next = last + 1;
  }
  if (checkpoint !== undefined && next !== through + 1) return `its records lead to ${next - 1}, and it is through ${through}`;
  return undefined;
}

/** Throws `HopError` HASH_MISMATCH where the text is not a manifest, or not in its one form. `name` is for the message. */
export function decodeManifest(encoded: string, name: string): Manifest {
  const broken = (what: string) => new HopError("HASH_MISMATCH", `Cannot read the manifest ${name}: ${what}`);
  let value: unknown;
  try {
    value = JSON.parse(encoded);
  } catch {
    throw broken("it is not JSON");
  }
  let manifest: Manifest;
  try {
    manifest = manifestIn(fields(value, "it"));
  } catch (error) {
    if (error instanceof Malformed) throw broken(error.message);
    throw error;
  }
  if (encodeManifest(manifest) !== encoded) throw broken("it is not in the form in which manifests are written");
  const problem = contradiction(manifest);
  if (problem !== undefined) throw broken(problem);
  return manifest;
}
