/** Seals a shard's log into a bucket in memory, as a node does it: objects, then the manifest. */
import { asIndex, type Index, type ShardId, wholeRange } from "#core/base";
import {
  type LogStore,
  type Manifest,
  MemoryBucket,
  MemoryObjectStore,
  type ObjectFaults,
  type SealedSegment,
  type SegmentEntry,
  type StoredManifest,
  sealInPlace,
  segmentIndexKey,
  segmentKey,
} from "#store";
import { openColdStore } from "../../node/seal/sealing.ts";
import { readUnsealed } from "../../node/seal/unsealed-range.ts";
import { realTiming } from "../../node/timing.ts";
import { bunHasher } from "../hashers.ts";

export const cluster = "hop_0123456789abcdef";

export class SealedShard {
  readonly bucket: MemoryBucket;
  /** Strikes what is asked through `cold`. */
  faults: ObjectFaults = () => undefined;
  readonly cold;

  constructor(bucket = new MemoryBucket()) {
    this.bucket = bucket;
    // Waits are over soon.
    const schedule = {
      after(ms: number, run: () => void) {
        const timer = setTimeout(run, ms / 400);
        return () => clearTimeout(timer);
      },
      fraction: () => 0.5,
      nowMs: () => 1_000_000,
      latencyMs: () => 0,
    };
    const objects = new MemoryObjectStore(this.bucket, { schedule, faults: (call) => this.faults(call) });
    this.cold = openColdStore(objects, cluster, bunHasher);
  }

  /** Seals what is not yet, through `through`, in segments of about `bytesMax` bytes of records. */
  async seal(log: LogStore, shard: ShardId, through: Index, bytesMax = 4000): Promise<StoredManifest> {
    const { manifests, tier } = this.cold;
    const before = await manifests.newest(shard);
    const segments = [...(before?.manifest.segments ?? [])];
    for (let first = asIndex((before?.manifest.through ?? 0) + 1); first <= through; ) {
      const part = await readUnsealed({ log, timing: realTiming }, { shard, first, through }, bytesMax);
      const sealed = await sealInPlace.segment(part.batches, { shard, firstIndex: part.first, lastIndex: part.last });
      segments.push(await this.put(sealed));
      first = asIndex(part.last + 1);
    }
    const manifest: Manifest = {
      cluster,
      restoreEpoch: 1,
      shard,
      number: (before?.manifest.number ?? 0) + 1,
      previous: before?.sha256,
      writer: { node: 1, epoch: 1 },
      range: wholeRange,
      ancestors: [],
      through,
      clockMs: 0,
      segments,
      checkpoint: undefined,
      records: [],
    };
    const published = await manifests.publish(manifest);
    if (published.kind === "lost") throw new Error(`manifest ${manifest.number} of shard ${shard} was there`);
    const stored = { manifest, sha256: published.sha256 };
    tier.note(stored);
    return stored;
  }

  async put({ segment, index, summary }: SealedSegment): Promise<SegmentEntry> {
    const { shard, firstIndex: first, lastIndex: last, segmentSha256, indexSha256 } = summary;
    const keys = {
      segment: segmentKey(cluster, { shard, first, last, sha256: segmentSha256 }),
      index: segmentIndexKey(cluster, { shard, first, last, sha256: indexSha256 }),
    };
    await this.cold.objects.put(keys.segment, segment, { ifAbsent: true, sha256: segmentSha256 });
    await this.cold.objects.put(keys.index, index, { ifAbsent: true, sha256: indexSha256 });
    return { ...keys, summary };
  }
}
