/** A cluster's objects without a cluster: sealed segments of made-up runs under a manifest, for tests of who reads them. */
import { asIndex, asShardId, type ShardId, wholeRange } from "#core/base";
import {
  type Manifest,
  ManifestLog,
  type ObjectStore,
  openObjectStore,
  type RecordToSeal,
  type SegmentEntry,
  sealSegment,
  segmentIndexKey,
  segmentKey,
} from "#store";
import { bunHasher } from "../hashers.ts";

export const cluster = "hop_0123456789abcdef";

/** Seals `records` of one shard, so many in each segment, and puts them to where `url` says. */
export async function fillBucket(
  url: string,
  records: readonly RecordToSeal[],
  recordsEach: number,
  shard = asShardId(1),
): Promise<Manifest> {
  const objects = openObjectStore(url);
  const segments: SegmentEntry[] = [];
  for (let at = 0; at < records.length; at += recordsEach) segments.push(await put(objects, records.slice(at, at + recordsEach), shard));
  const manifest: Manifest = {
    cluster,
    restoreEpoch: 1,
    shard,
    number: 1,
    previous: undefined,
    writer: { node: 1, epoch: 1 },
    range: wholeRange,
    ancestors: [],
    through: asIndex(segments.at(-1)?.summary.lastIndex ?? 0),
    clockMs: Math.max(...segments.map(({ summary }) => summary.extent?.lastTimeMs ?? 0)),
    segments,
    checkpoint: undefined,
    records: [],
  };
  await new ManifestLog(objects, cluster, bunHasher).publish(manifest);
  await objects.close();
  return manifest;
}

async function put(objects: ObjectStore, records: readonly RecordToSeal[], shard: ShardId): Promise<SegmentEntry> {
  const [first, last] = [(records[0] as RecordToSeal).index, (records.at(-1) as RecordToSeal).index];
  const sealed = await sealSegment(records, { shard, firstIndex: asIndex(first), lastIndex: asIndex(last) });
  const { summary } = sealed;
  const segment = segmentKey(cluster, { shard, first: summary.firstIndex, last: summary.lastIndex, sha256: summary.segmentSha256 });
  const index = segmentIndexKey(cluster, { shard, first: summary.firstIndex, last: summary.lastIndex, sha256: summary.indexSha256 });
  await objects.put(segment, sealed.segment, { ifAbsent: true, sha256: summary.segmentSha256 });
  await objects.put(index, sealed.index, { ifAbsent: true, sha256: summary.indexSha256 });
  return { segment, index, summary };
}
