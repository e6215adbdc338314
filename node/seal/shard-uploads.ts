/**
 * Puts what is to outlive the cluster into object storage, and believes that it is there only when
 * it has been read back: the log is forgotten on the strength of it.
 */
import { asIndex, type Index, type ShardId } from "#core/base";
import type { SealedSegment, SealWork } from "#store";
import {
  batchExtent,
  checkpointKey,
  type ObjectStore,
  type RecordsEntry,
  recordsKey,
  type SegmentEntry,
  type StoredObject,
  segmentIndexKey,
  segmentKey,
} from "#store";
import { breath, type Timing } from "../timing.ts";
import type { BlobUploads } from "./blob-uploads.ts";
import { plainObjects } from "./chunk-objects.ts";
import { storeObject } from "./object-put.ts";

export interface ShardUploadsParts {
  readonly cluster: string;
  readonly objects: ObjectStore;
  readonly work: SealWork;
  readonly timing: Timing;
  readonly blobs: BlobUploads;
}

export class ShardUploads {
  private readonly parts: ShardUploadsParts;

  constructor(parts: ShardUploadsParts) {
    this.parts = parts;
  }

  async segment({ segment, index, summary }: SealedSegment): Promise<SegmentEntry> {
    const { cluster } = this.parts;
    const { shard, firstIndex: first, lastIndex: last } = summary;
    const keys = {
      segment: segmentKey(cluster, { shard, first, last, sha256: summary.segmentSha256 }),
      index: segmentIndexKey(cluster, { shard, first, last, sha256: summary.indexSha256 }),
    };
    await this.store(keys.segment, segment, summary.segmentSha256);
    await this.store(keys.index, index, summary.indexSha256);
    return { ...keys, summary };
  }

  /** Objects that hold the chunks of a shard's states as of `appliedIndex`. */
  async checkpoint(shard: ShardId, appliedIndex: Index, chunks: Iterable<Uint8Array>): Promise<StoredObject[]> {
    const stored: StoredObject[] = [];
    for await (const plain of plainObjects(this.paced(chunks))) {
      const { bytes, sha256 } = await this.parts.work.pack(plain);
      // Parts of one checkpoint are told apart by their number, where the index of a range would be.
      const range = { shard, first: asIndex(stored.length), last: appliedIndex, sha256 };
      const key = checkpointKey(this.parts.cluster, range);
      await this.store(key, bytes, sha256);
      stored.push({ key, bytes: bytes.length, sha256 });
    }
    return stored;
  }

  /** Records of a shard's log that follow each other, as it has them. */
  async records(shard: ShardId, batches: readonly Uint8Array[]): Promise<RecordsEntry[]> {
    const stored: RecordsEntry[] = [];
    for (const batch of batches) {
      const { first, last } = batchExtent(batch);
      for await (const plain of plainObjects([batch])) {
        const { bytes, sha256 } = await this.parts.work.pack(plain);
        const key = recordsKey(this.parts.cluster, { shard, first, last, sha256 });
        await this.store(key, bytes, sha256);
        stored.push({ key, bytes: bytes.length, sha256, first, last });
      }
    }
    return stored;
  }

  /** Each of the blobs is in object storage when it resolves. */
  blobs(wanted: Iterable<string>): Promise<void> {
    return this.parts.blobs.ensure(wanted);
  }

  private store(key: string, bytes: Uint8Array, sha256: Uint8Array): Promise<void> {
    return storeObject(this.parts.objects, { key, bytes, sha256 });
  }

  /** Each chunk is read from the saved states at once, and there may be many. */
  private async *paced(chunks: Iterable<Uint8Array>): AsyncGenerator<Uint8Array> {
    for (const chunk of chunks) {
      yield chunk;
      await breath(this.parts.timing);
    }
  }
}
