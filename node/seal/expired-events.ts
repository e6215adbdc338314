/**
 * Which events of a shard's objects expired and may be removed: those below the event that gave their
 * history up, once that event is sealed itself. So whoever has only the objects finds it where the rest was.
 *
 * Read from saved states, which may be older than the log: then less is known, and found later.
 */
import { asSeq, asShardId, type Partition, type Seq, type ShardId } from "#core/base";
import { decodeRecord, decodeRunState, fromBytes } from "#proto";
import {
  type CheckpointStore,
  eventPartition,
  eventSeq,
  isExpired,
  type Manifest,
  type ManifestLog,
  type ObjectStore,
  type ObjectTier,
  packedRecords,
  type RecordsEntry,
  type SegmentEntry,
} from "#store";
import { breath, type Timing } from "../timing.ts";
import { unpackChunks } from "./chunk-objects.ts";

export interface ExpiredEventsParts {
  readonly objects: ObjectStore;
  readonly manifests: Pick<ManifestLog, "newest">;
  readonly tier: Pick<ObjectTier, "reader">;
  readonly checkpoint: Pick<CheckpointStore, "load">;
  readonly timing: Timing;
}

export interface Expired {
  /** Of the object's events. */
  readonly events: number;
  /** By partition, the events below that expired. */
  readonly ends: ReadonlyMap<Partition, number>;
}

/** Pieces that are looked at before others run. */
const piecesAtOnce = 256;

export class ExpiredEvents {
  private readonly parts: ExpiredEventsParts;
  private readonly manifest: Manifest;
  private readonly sealed = new Map<ShardId, number>();
  private looked = 0;

  /** As of one manifest. */
  constructor(parts: ExpiredEventsParts, manifest: Manifest) {
    this.parts = parts;
    this.manifest = manifest;
    this.sealed.set(manifest.shard, manifest.through);
  }

  async inSegment(entry: SegmentEntry): Promise<Expired> {
    const ends = new Map<Partition, number>();
    const whole = new Map<Partition, number>();
    let events = 0;
    for await (const { partition, firstSeq, endSeq } of this.parts.tier.reader(entry).partitions()) {
      const end = whole.get(partition) ?? (await this.endOf(partition));
      whole.set(partition, end);
      // A piece of one event below the end may be what says so of earlier ones: it stays.
      const expired = Math.min(end, endSeq) - firstSeq;
      if (expired <= 0 || (expired === 1 && endSeq - firstSeq === 1 && (await this.isMark(entry, partition, firstSeq)))) continue;
      events += expired;
      ends.set(partition, end);
    }
    return { events, ends };
  }

  async inRecords(entry: RecordsEntry): Promise<number> {
    const bytes = await this.parts.objects.get(entry.key, { sha256: entry.sha256 });
    let events = 0;
    for (const chunk of bytes === undefined ? [] : unpackChunks(bytes, entry.key))
      for (const { kind, at, end } of packedRecords(chunk)) {
        if (kind !== "data" || at === end) continue;
        for (const event of fromBytes(decodeRecord, chunk.subarray(at, end)).event)
          if (isExpired({ seq: eventSeq(event), event }, await this.endOf(eventPartition(event)))) events++;
      }
    return events;
  }

  private async isMark(entry: SegmentEntry, partition: Partition, seq: Seq): Promise<boolean> {
    const endSeq = asSeq(seq + 1);
    const found = await this.parts.tier.reader(entry).history(partition, { endSeq });
    for await (const events of found?.events() ?? []) for (const event of events) if (!isExpired({ seq, event }, endSeq)) return true;
    return false;
  }

  /** 0 where nothing of it expired, or nothing may be removed yet. */
  private async endOf(partition: Partition): Promise<number> {
    if (++this.looked % piecesAtOnce === 0) await breath(this.parts.timing);
    const saved = this.parts.checkpoint.load(partition);
    if (saved === undefined) return 0;
    const { expiredEnd, lastIndex, lastShard, size } = fromBytes(decodeRunState, saved.state);
    if (expiredEnd === 0) return 0;
    const shard = lastShard === 0 ? saved.shard : asShardId(lastShard);
    // Of a history that went on in another log it is not known where its expiry lies.
    if (expiredEnd < size - 1 && (shard !== this.manifest.shard || this.manifest.ancestors.length > 0)) return 0;
    return lastIndex <= (await this.sealedThrough(shard)) ? expiredEnd : 0;
  }

  private async sealedThrough(shard: ShardId): Promise<number> {
    const known = this.sealed.get(shard);
    if (known !== undefined) return known;
    const through = (await this.parts.manifests.newest(shard))?.manifest.through ?? 0;
    this.sealed.set(shard, through);
    return through;
  }
}
