/**
 * Histories out of sealed segments in object storage, found by the record that holds their last
 * event: manifest → segment → a block of its index → a part of its rows.
 *
 * Manifests and the directories of the segments read last are kept; nothing else is.
 */
import { asSeq, HopError, type ShardId } from "#core/base";
import type { ObjectStore } from "../objects/object-store.ts";
import type { SealedHistory, SealedReader, SealedRow } from "../segment/sealed/sealed-reader.ts";
import type { Place } from "../segment/sealed/summary.ts";
import type { SealedTier, SealedWanted } from "../segment/segment-store.ts";
import type { SegmentEntry } from "./manifest.ts";
import type { ManifestLog, StoredManifest } from "./manifest-log.ts";
import { MissingObjectError, segmentReader } from "./named-object.ts";

/** Segments whose directories stay in memory: about 100 KB for a segment of 64 MB. */
const readersMax = 64;
const manifestsMax = 256;

export class ObjectTier implements SealedTier {
  private readonly objects: ObjectStore;
  private readonly manifests: ManifestLog;
  private readonly known = new Map<ShardId, StoredManifest>();
  private readonly asking = new Map<ShardId, Promise<StoredManifest | undefined>>();
  private readonly readers = new Map<string, SealedReader>();

  constructor(objects: ObjectStore, manifests: ManifestLog) {
    this.objects = objects;
    this.manifests = manifests;
  }

  async history({ partition, place, firstSeq, endSeq }: SealedWanted): Promise<SealedHistory | undefined> {
    const entry = await this.segmentWith(place);
    if (entry === undefined) return undefined;
    const found = await this.historyIn(entry, { partition, place, firstSeq, endSeq });
    if (found !== undefined) return found;
    throw new HopError(
      "HASH_MISMATCH",
      `Cannot read event ${endSeq - 1} of ${partition}: record ${place.index} of shard ${place.shard} is sealed in ${entry.segment}, which does not have it`,
    );
  }

  /** What is merged meanwhile is read from the segment that took its place: a newer manifest names that. */
  private async historyIn(entry: SegmentEntry, wanted: SealedWanted): Promise<SealedHistory | undefined> {
    const { partition, place, firstSeq, endSeq } = wanted;
    const replacement = async (error: unknown): Promise<SegmentEntry> => {
      if (!(error instanceof MissingObjectError)) throw error;
      const stored = await this.sealed(place.shard);
      const other = stored === undefined ? undefined : segmentOf(stored, place.index);
      if (other === undefined || other.segment === entry.segment) throw error;
      return other;
    };
    let found: SealedHistory | undefined;
    try {
      found = await this.reader(entry).history(partition, { firstSeq, endSeq });
    } catch (error) {
      return this.historyIn(await replacement(error), wanted);
    }
    if (found === undefined) return undefined;
    const { firstSeq: begin, previous } = found;
    const goOn = async (next: number, error: unknown) => this.historyIn(await replacement(error), { ...wanted, firstSeq: asSeq(next) });
    return { firstSeq: begin, endSeq: found.endSeq, previous, events: () => goingOn(begin, () => found.events(), goOn) };
  }

  /** A manifest that this node wrote or read: nothing older is asked for from now on. */
  note(stored: StoredManifest): void {
    const { shard, number } = stored.manifest;
    const known = this.known.get(shard);
    if (known !== undefined && known.manifest.number >= number) return;
    this.known.delete(shard);
    this.known.set(shard, stored);
    if (this.known.size > manifestsMax) this.known.delete(this.known.keys().next().value as ShardId);
  }

  /** What is sealed of the shard; undefined where nothing certainly is. One question a shard at a time. */
  sealed(shard: ShardId): Promise<StoredManifest | undefined> {
    const asked = this.asking.get(shard);
    if (asked !== undefined) return asked;
    const asking = this.newest(shard).finally(() => this.asking.delete(shard));
    this.asking.set(shard, asking);
    return asking;
  }

  /**
   * The newest manifest, as of after the call: asked from the one that is known on, so nothing is
   * listed, and never answered by a question that is under way, which may be of before a manifest
   * that the caller's log tells of, or of before a fence.
   */
  async newest(shard: ShardId): Promise<StoredManifest | undefined> {
    const stored = await this.manifests.newest(shard, this.known.get(shard));
    if (stored !== undefined) this.note(stored);
    return stored;
  }

  /** All events of a segment, a row group at a time. */
  rows(entry: SegmentEntry): AsyncGenerator<SealedRow[]> {
    return this.reader(entry).rows();
  }

  /** Records of the shard through there are sealed, as far as is known here; 0 = nothing is known. */
  sealedThrough(shard: ShardId): number {
    return this.known.get(shard)?.manifest.through ?? 0;
  }

  private async segmentWith({ shard, index }: Place): Promise<SegmentEntry | undefined> {
    let stored = this.known.get(shard);
    if (stored === undefined || stored.manifest.through < index) stored = await this.sealed(shard);
    return stored === undefined ? undefined : segmentOf(stored, index);
  }

  reader(entry: SegmentEntry): SealedReader {
    const { segment } = entry;
    const known = this.readers.get(segment);
    this.readers.delete(segment);
    const reader = known ?? segmentReader(this.objects, entry);
    this.readers.set(segment, reader);
    if (this.readers.size > readersMax) this.readers.delete(this.readers.keys().next().value as string);
    return reader;
  }
}

/** The events, and where their object goes away in between, the rest from where `goOn` finds them. */
async function* goingOn(
  firstSeq: number,
  events: () => AsyncGenerator<Uint8Array[]>,
  goOn: (next: number, error: unknown) => Promise<SealedHistory | undefined>,
): AsyncGenerator<Uint8Array[]> {
  let next = firstSeq;
  try {
    for await (const chunk of events()) {
      next += chunk.length;
      yield chunk;
    }
    return;
  } catch (error) {
    const rest = await goOn(next, error);
    if (rest === undefined) throw error;
    yield* rest.events();
  }
}

/** Segments are in order and have no gaps. */
function segmentOf({ manifest: { segments } }: StoredManifest, index: number): SegmentEntry | undefined {
  let [low, high] = [0, segments.length];
  while (low < high) {
    const middle = (low + high) >> 1;
    if ((segments[middle] as SegmentEntry).summary.lastIndex < index) low = middle + 1;
    else high = middle;
  }
  const found = segments[low];
  return found !== undefined && found.summary.firstIndex <= index ? found : undefined;
}
