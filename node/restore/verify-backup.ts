/**
 * Checks what object storage has of a cluster, and changes nothing: every manifest and the chain that
 * they are, every object that the newest ones name, every event's hash, and that the parts of each
 * history follow each other from segment to segment.
 *
 * It goes on behind what is damaged, so that one look tells all of it.
 */
import { bytesEqual, errorText, fromHex, type Hasher, HopError, type ShardId, toHex } from "#core/base";
import { uploadedPlacement } from "#core/placement";
import { EventKind, encodePlacementStates, toBytes } from "#proto";
import {
  auditSealed,
  blobKey,
  eventKind,
  inMemory,
  type Manifest,
  ManifestLog,
  manifestKey,
  type ObjectStore,
  openObjectStore,
  packedRecords,
  placementKey,
  SealedReader,
  type SegmentEntry,
  type StoredManifest,
  type StoredObject,
} from "#store";
import { hasher } from "../hasher.ts";
import { unpackChunks } from "../seal/chunk-objects.ts";
import { noteOfEvent } from "../seal/event-blobs.ts";
import { newestPlacement, unpackPlacement, uploadsOf } from "../seal/placement-upload.ts";
import { clusterWanted } from "./restoring.ts";

export interface BackupParts {
  readonly objects: ObjectStore;
  readonly cluster: string;
  readonly hasher: Hasher;
  /** How far it is. */
  readonly tell: (text: string, done: number, total: number) => void;
  /** Each fault as it is found. */
  readonly fault: (fault: BackupFault) => void;
}

export interface BackupFault {
  /** The object that is damaged or missing. */
  readonly key: string;
  readonly what: string;
}

export interface BackupFigures {
  readonly shards: number;
  readonly manifests: number;
  readonly segments: number;
  readonly events: number;
  readonly histories: number;
  /** Histories of which retention took events away, or may. */
  readonly expired: number;
  readonly blobs: number;
  readonly bytes: number;
  readonly faults: number;
}

/** Where a history ends as far as it was read. */
interface End {
  readonly seq: number;
  readonly hash: Uint8Array;
  readonly key: string;
}

/** Of a history, in the order of events: a piece of one segment. */
interface Part {
  readonly firstSeq: number;
  readonly endSeq: number;
  readonly prevHash: Uint8Array;
  readonly lastHash: Uint8Array;
  readonly key: string;
}

/** `cluster` empty: the only one that is there. Rejects with `HopError` BAD_REQUEST too, for what is not there. */
export async function verifyBackupAt(
  { url, cluster }: { readonly url: string; readonly cluster: string },
  told: Pick<BackupParts, "tell" | "fault">,
): Promise<BackupFigures & { readonly cluster: string }> {
  const objects = openObjectStore(url);
  try {
    const named = await clusterWanted(objects, cluster, "check the backup");
    return { cluster: named, ...(await verifyBackup({ objects, cluster: named, hasher, ...told })) };
  } finally {
    await objects.close();
  }
}

/** Looks at all of it. Rejects with `HopError` STORE_UNAVAILABLE where object storage can't be asked. */
export async function verifyBackup(parts: BackupParts): Promise<BackupFigures> {
  const verify = new Verify(parts);
  await verify.run();
  return verify.figures;
}

class Verify {
  private readonly parts: BackupParts;
  private readonly manifests: ManifestLog;
  private readonly counts = { shards: 0, manifests: 0, segments: 0, events: 0, histories: 0, blobs: 0, bytes: 0, faults: 0, expired: 0 };
  private readonly histories = new Map<string, Part[]>();
  /** By partition, seq of the last event that says that those before it expired. */
  private readonly expired = new Map<string, number>();
  private readonly blobs = new Set<string>();

  constructor(parts: BackupParts) {
    this.parts = parts;
    this.manifests = new ManifestLog(parts.objects, parts.cluster, parts.hasher);
  }

  get figures(): BackupFigures {
    return this.counts;
  }

  async run(): Promise<void> {
    await this.placement();
    const shards = await this.manifests.shards();
    this.counts.shards = shards.length;
    for (const [i, shard] of shards.entries()) {
      this.parts.tell("Checking shards", i, shards.length);
      const newest = await this.chain(shard);
      if (newest !== undefined) await this.objectsOf(newest.manifest);
    }
    this.chains();
    await this.blobsNamed();
  }

  private async placement(): Promise<void> {
    const { objects, cluster, hasher } = this.parts;
    for (const number of await uploadsOf(objects, cluster)) {
      const key = placementKey(cluster, number);
      await this.guarded(key, async () => {
        const bytes = await objects.get(key);
        // An old one may be deleted meanwhile.
        if (bytes === undefined) return;
        this.counts.bytes += bytes.length;
        unpackPlacement(bytes, key, hasher);
      });
    }
    await this.guarded(`${cluster}/placement`, async () => {
      const newest = await newestPlacement(objects, cluster, hasher);
      if (newest?.states === undefined)
        return this.fault(`${cluster}/placement`, "no placement was uploaded: a cluster can't be rebuilt without");
      for (const sha256 of uploadedPlacement(toBytes(encodePlacementStates, newest.states)).bundles) this.blobs.add(toHex(sha256));
    });
  }

  /** Every manifest of a shard that is there, from the oldest one; returns the newest. */
  private async chain(shard: ShardId): Promise<StoredManifest | undefined> {
    const { cluster, objects } = this.parts;
    const numbers = await this.numbersOf(shard);
    let before: StoredManifest | undefined;
    let newest: StoredManifest | undefined;
    for (let number = numbers[0] ?? 1; ; number++) {
      const key = manifestKey(cluster, shard, number);
      let stored: StoredManifest | undefined;
      const isSound = await this.guarded(key, async () => {
        stored = await this.manifests.read(shard, number);
      });
      if (isSound && stored === undefined) {
        if (number > (numbers.at(-1) ?? 0)) return newest;
        this.fault(key, `${objects.url} does not have it, and has manifest ${numbers.at(-1)} of the shard`);
      }
      this.counts.manifests++;
      if (before !== undefined && stored !== undefined && !bytesEqual(stored.manifest.previous ?? new Uint8Array(), before.sha256))
        this.fault(
          key,
          `it does not follow manifest ${number - 1}: it names one with hash ${toHex(stored.manifest.previous ?? new Uint8Array())}`,
        );
      before = stored;
      newest = stored ?? newest;
    }
  }

  private async numbersOf(shard: ShardId): Promise<number[]> {
    const numbers: number[] = [];
    const prefix = manifestKey(this.parts.cluster, shard, 0).replace(/0{12}\.json$/, "");
    for await (const { key } of this.parts.objects.list(prefix)) numbers.push(Number(/(\d{12})\.json$/.exec(key)?.[1] ?? 0));
    return numbers.sort((a, b) => a - b);
  }

  private async objectsOf({ segments, checkpoint, records }: Manifest): Promise<void> {
    for (const entry of segments) await this.segment(entry);
    for (const part of checkpoint?.parts ?? []) await this.chunks(part, () => {});
    for (const entry of records)
      await this.chunks(entry, (chunk) => {
        let last = 0;
        for (const { index } of packedRecords(chunk)) last = index;
        if (last > entry.last) this.fault(entry.key, `it has record ${last}, and its manifest says that it ends at ${entry.last}`);
      });
  }

  private async segment(entry: SegmentEntry): Promise<void> {
    const { segment: segmentKey, index: indexKey, summary } = entry;
    const { segmentSha256, indexSha256 } = summary;
    const segment = await this.whole({ key: segmentKey, bytes: summary.segmentBytes, sha256: segmentSha256 });
    const index = await this.whole({ key: indexKey, bytes: summary.indexBytes, sha256: indexSha256 });
    this.counts.segments++;
    if (segment === undefined || index === undefined) return;
    await this.guarded(segmentKey, async () => {
      const names = { segment: segmentKey, index: indexKey };
      await auditSealed({ segment, index, summary } as Parameters<typeof auditSealed>[0], names);
      await this.rows(new SealedReader(summary, inMemory({ segment, index } as Parameters<typeof inMemory>[0], names)), segmentKey);
    });
  }

  private async rows(reader: SealedReader, key: string): Promise<void> {
    let at: { partition: string; part: Part } | undefined;
    const prevHashes = new Map<string, Uint8Array>();
    for await (const { partition, firstSeq, prevHash } of reader.partitions())
      prevHashes.set(`${partition}\n${firstSeq}`, prevHash.slice());
    const end = (): void => {
      if (at === undefined) return;
      const known = this.histories.get(at.partition) ?? [];
      known.push(at.part);
      this.histories.set(at.partition, known);
    };
    for await (const group of reader.rows())
      for (const { partition, seq, hash, event } of group) {
        this.counts.events++;
        noteOfEvent(event, this.blobs);
        if (eventKind(event) === EventKind.historyExpired) this.expired.set(partition, Math.max(seq, this.expired.get(partition) ?? 0));
        const prevHash = prevHashes.get(`${partition}\n${seq}`);
        if (at?.partition === partition && at.part.endSeq === seq && prevHash === undefined) {
          at.part = { ...at.part, endSeq: seq + 1, lastHash: hash.slice() };
          continue;
        }
        end();
        at = { partition, part: { firstSeq: seq, endSeq: seq + 1, prevHash: prevHash ?? new Uint8Array(), lastHash: hash.slice(), key } };
      }
    end();
  }

  /** Histories over all segments: from event 0 on, each part behind the one before; what expired may be gone. */
  private chains(): void {
    this.counts.histories = this.histories.size;
    this.counts.expired = this.expired.size;
    for (const [partition, parts] of this.histories) {
      const end = this.expired.get(partition) ?? 0;
      let before: End | undefined;
      for (const { firstSeq, endSeq, prevHash, lastHash, key } of parts.sort((a, b) => a.firstSeq - b.firstSeq)) {
        const want = before?.seq ?? 0;
        const isGone = firstSeq > want && firstSeq <= end;
        if (isGone) {
          before = { seq: endSeq, hash: lastHash, key };
          continue;
        }
        if (firstSeq !== want) this.fault(key, `${partition} goes on at event ${firstSeq} there, want ${want}`);
        else if (before !== undefined && !bytesEqual(prevHash, before.hash))
          this.fault(key, `event ${firstSeq} of ${partition} does not follow event ${firstSeq - 1} in ${before.key}`);
        before = { seq: endSeq, hash: lastHash, key };
      }
    }
  }

  private async blobsNamed(): Promise<void> {
    const { objects, cluster, tell } = this.parts;
    for (const name of this.blobs) {
      const sha256 = fromHex(name) as Uint8Array;
      tell("Checking blobs", this.counts.blobs++, this.blobs.size);
      const key = blobKey(cluster, sha256);
      await this.guarded(key, async () => {
        const size = await objects.download(key, () => {}, { sha256 });
        if (size === undefined) this.fault(key, `${objects.url} does not have it, and an event or a deployment names blob ${name}`);
        else this.counts.bytes += size;
      });
    }
  }

  private async chunks(object: StoredObject, take: (chunk: Uint8Array) => void): Promise<void> {
    const bytes = await this.whole(object);
    if (bytes === undefined) return;
    await this.guarded(object.key, async () => {
      for (const chunk of unpackChunks(bytes, object.key)) take(chunk);
    });
  }

  /** All bytes of an object that a manifest names, or undefined where it is not as it says. */
  private async whole({ key, bytes: size, sha256 }: StoredObject): Promise<Uint8Array | undefined> {
    const { objects } = this.parts;
    let found: Uint8Array | undefined;
    await this.guarded(key, async () => {
      const bytes = await objects.get(key, { sha256 });
      if (bytes === undefined) return this.fault(key, `${objects.url} does not have it, and a manifest names it`);
      this.counts.bytes += bytes.length;
      if (bytes.length !== size) return this.fault(key, `it has ${bytes.length} bytes, and its manifest says ${size}`);
      found = bytes;
    });
    return found;
  }

  /** What is wrong with the object is told; that object storage can't be asked ends it. */
  private async guarded(key: string, run: () => Promise<void>): Promise<boolean> {
    try {
      await run();
      return true;
    } catch (error) {
      if (error instanceof HopError && error.reason === "STORE_UNAVAILABLE") throw error;
      this.fault(key, errorText(error));
      return false;
    }
  }

  private fault(key: string, what: string): void {
    this.counts.faults++;
    this.parts.fault({ key, what });
  }
}
