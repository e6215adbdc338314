/**
 * Moves what shards that are led here have committed into object storage: events as sealed segments,
 * and what leads a rebuilt shard on (states, records behind them), under the shard's next manifest.
 *
 * The order is what makes it safe: objects are put and read back, then the manifest is put where
 * there is none of its number, then the shard's log records it, and only what a replica has applied
 * of that record lets it forget its log. Each step that is repeated after a crash finds its result
 * there. An outage of object storage delays all of it and stops nothing else.
 */
import { asIndex, bytesEqual, errorText, type Hasher, HopError, type Index, type KeyRange, type Rejection, type ShardId } from "#core/base";
import type { ShardHeader, ShardSealed } from "#proto";
import {
  batchExtent,
  type CheckpointEntry,
  type LogStore,
  type Manifest,
  type ManifestLog,
  type ObjectStore,
  type ObjectTier,
  type SealWork,
  type SegmentEntry,
  type StoredManifest,
} from "#store";
import { birthIndex } from "../replica/births.ts";
import { type SnapshotStores, takeSnapshot } from "../replica/snapshot.ts";
import { Rounds } from "../rounds.ts";
import type { Note } from "../shard/shard-host.ts";
import type { Timing } from "../timing.ts";
import type { BlobUploads } from "./blob-uploads.ts";
import { type ForgettableParts, forgettable } from "./forgettable.ts";
import type { HotTails } from "./hot-tails.ts";
import { mayNarrow, requireWhole } from "./seal-order.ts";
import type { SealPolicy } from "./seal-policy.ts";
import { ShardUploads } from "./shard-uploads.ts";
import { readUnsealed } from "./unsealed-range.ts";

/** A shard that is led here. */
export interface SealableShard {
  readonly shard: ShardId;
  readonly range: KeyRange;
  /** Of the leadership lease. */
  readonly epoch: number;
  readonly clockMs: number;
  /** Committed, applied and durable here through there. */
  readonly through: Index;
  header(): Readonly<ShardHeader>;
  /** Has the shard record what is sealed. */
  record(sealed: ShardSealed): Rejection | undefined;
}

export interface SealerParts extends Omit<ForgettableParts, "tier"> {
  readonly node: number;
  readonly cluster: string;
  readonly restoreEpoch: number;
  readonly policy: SealPolicy;
  /** Bytes of a shard's records in the log, about. */
  readonly bytesOf: (shard: ShardId) => number;
  readonly tails: HotTails;
  readonly objects: ObjectStore;
  readonly manifests: ManifestLog;
  readonly tier: ObjectTier;
  readonly log: LogStore;
  readonly states: SnapshotStores;
  readonly hasher: Hasher;
  readonly timing: Timing;
  readonly note: Note;
  readonly work: SealWork;
  readonly blobs: BlobUploads;
  /** Shards whose states are to be uploaded with the next seal, which comes soon then. */
  readonly statesWanted: Set<ShardId>;
  readonly shards: () => Iterable<SealableShard>;
  /** Object storage has proven itself: nothing is entrusted to it before. */
  readonly isReady: () => boolean;
}

/** After a round that failed; doubled up to the other one. */
const pauseMsMin = 1000;
const pauseMsMax = 60_000;
/** A checkpoint is uploaded anew when the records behind it have grown to its size, and to this share of a segment's. */
const recordsShareMin = 1 / 16;

interface Waiting {
  /** When the first event that is not sealed was seen. */
  sinceMs: number;
  /** Records up to here hold no event: they alone are no reason to seal. */
  eventlessThrough: number;
  retryAtMs: number;
  pauseMs: number;
}

export class Sealer {
  private readonly parts: SealerParts;
  private readonly uploads: ShardUploads;
  private readonly waiting = new Map<ShardId, Waiting>();
  private readonly rounds: Rounds;
  /** Whether a tail is full is not to wait for an upload. */
  private readonly looks: Rounds;

  constructor(parts: SealerParts) {
    this.parts = parts;
    this.uploads = new ShardUploads(parts);
    const { timing, policy } = parts;
    this.looks = new Rounds({ timing, everyMs: policy.lookMs, round: () => this.lookAtTails() });
    this.rounds = new Rounds({ timing, everyMs: policy.lookMs, round: () => this.round() });
  }

  start(): void {
    this.looks.start();
    this.rounds.start();
  }

  stop(): void {
    this.looks.stop();
    this.rounds.stop();
  }

  /** Seals what is due, one shard after the other. */
  private async round(): Promise<void> {
    if (!this.parts.isReady()) return;
    for (const shard of [...this.parts.shards()].filter((each) => this.isDue(each))) {
      if (this.rounds.isStopped) return;
      await this.sealAndTell(shard);
    }
  }

  private lookAtTails(): void {
    for (const each of this.parts.shards()) this.parts.tails.note(each.shard, this.hasEvents(each) ? this.unsealedBytes(each) : 0);
  }

  private isDue(shard: SealableShard): boolean {
    const { policy, timing } = this.parts;
    const nowMs = timing.monotonicMs();
    const known = this.waiting.get(shard.shard) ?? { sinceMs: nowMs, eventlessThrough: 0, retryAtMs: 0, pauseMs: pauseMsMin };
    this.waiting.set(shard.shard, known);
    if (!this.hasEvents(shard)) {
      known.sinceMs = nowMs;
      return false;
    }
    if (nowMs < known.retryAtMs) return false;
    const header = shard.header();
    // A child's parent keeps its log until the child's states are uploaded.
    if (header.manifest === 0 && header.ancestor.length > 0) return true;
    if (this.parts.statesWanted.has(shard.shard)) return true;
    return nowMs - known.sinceMs >= policy.ageMsMax || this.unsealedBytes(shard) >= policy.bytesMax;
  }

  /** As far as was looked, events are not sealed. */
  private hasEvents(shard: SealableShard): boolean {
    // What holds no event is sealed too where states are wanted.
    const eventlessThrough = this.parts.statesWanted.has(shard.shard) ? 0 : (this.waiting.get(shard.shard)?.eventlessThrough ?? 0);
    return shard.through > Math.max(shard.header().sealedThrough, eventlessThrough);
  }

  /** About: records of one shard are taken to be alike. */
  private unsealedBytes(led: SealableShard): number {
    const { log } = this.parts;
    const { shard } = led;
    const { sealedThrough } = led.header();
    const end = log.lastIndex(shard);
    const kept = end - log.released(shard);
    return kept <= 0 ? 0 : (this.parts.bytesOf(shard) * (end - Math.max(sealedThrough, log.released(shard)))) / kept;
  }

  private async sealAndTell(shard: SealableShard): Promise<void> {
    const { note, timing } = this.parts;
    const waiting = this.waiting.get(shard.shard) as Waiting;
    const startedMs = timing.monotonicMs();
    try {
      const sealed = await this.seal(shard);
      waiting.pauseMs = pauseMsMin;
      waiting.sinceMs = timing.monotonicMs();
      if (sealed === undefined) waiting.eventlessThrough = shard.through;
      else note("info", "sealed", { shard: shard.shard, ...sealed, ms: Math.round(timing.monotonicMs() - startedMs) });
    } catch (error) {
      waiting.retryAtMs = timing.monotonicMs() + waiting.pauseMs;
      waiting.pauseMs = Math.min(waiting.pauseMs * 2, pauseMsMax);
      const reason = errorText(error);
      note("warn", "not sealed, and tried again", { shard: shard.shard, inMs: waiting.retryAtMs - timing.monotonicMs(), reason });
    }
  }

  /** Returns what it sealed; undefined where there was no event to seal. */
  async seal(shard: SealableShard): Promise<{ through: number; events: number; manifest: number } | undefined> {
    const before = await this.current(shard);
    const { policy } = this.parts;
    const { through } = shard;
    const range = { shard: shard.shard, first: asIndex((before?.manifest.through ?? 0) + 1), through };
    if (range.first > through) return undefined;
    const head = await readUnsealed(this.parts, range, policy.bytesMax);
    // A child's states are wanted even where nothing has happened in it.
    const isForStates = (before === undefined && shard.header().ancestor.length > 0) || this.parts.statesWanted.has(shard.shard);
    if (!head.hasEvents && head.last >= through && !isForStates) return undefined;
    // The first segment holds the log from its beginning, which is archive where a snapshot brought it.
    if (head.first > (before === undefined ? birthIndex + 1 : range.first))
      throw new HopError(
        "STORE_UNAVAILABLE",
        `Cannot seal shard ${shard.shard}: this node has its log from record ${head.first} on, want ${range.first}`,
      );
    const checkpoint = this.wantsCheckpoint(shard, before) ? await this.checkpoint(shard, before) : before?.manifest.checkpoint;
    // They may have been saved meanwhile, and are led on from where they end.
    const end = asIndex(Math.max(through, checkpoint?.appliedIndex ?? 0));
    const segments: SegmentEntry[] = [];
    // States are saved when they are: a new checkpoint may end before what is sealed already.
    const records = (before?.manifest.records ?? []).filter(({ last }) => last > (checkpoint?.appliedIndex ?? 0));
    let events = 0;
    for (
      let part = head;
      ;
      part = await readUnsealed(this.parts, { ...range, first: asIndex(part.last + 1), through: end }, policy.bytesMax)
    ) {
      await this.uploads.blobs(part.blobs);
      const sealed = await this.parts.work.segment(part.batches, { shard: shard.shard, firstIndex: part.first, lastIndex: part.last });
      segments.push(await this.uploads.segment(sealed));
      records.push(...(await this.uploads.records(shard.shard, behind(part.batches, checkpoint?.appliedIndex ?? 0))));
      events += sealed.summary.rows;
      if (part.last >= Math.max(checkpoint?.appliedIndex ?? 0, head.last)) break;
    }
    const manifest = this.next(shard, before, { segments, records, checkpoint });
    const published = await this.parts.manifests.publish(manifest);
    if (published.kind === "lost")
      throw new HopError(
        "STORE_UNAVAILABLE",
        `Node ${published.to.manifest.writer.node} sealed shard ${shard.shard} meanwhile, as manifest ${manifest.number}`,
      );
    this.parts.tier.note({ manifest, sha256: published.sha256 });
    this.parts.statesWanted.delete(shard.shard);
    await this.record(shard, { manifest, sha256: published.sha256 });
    return { through: manifest.through, events, manifest: manifest.number };
  }

  /**
   * The newest manifest, which the shard's log tells of when it returns: one that was put by whoever
   * led before, and not recorded, is recorded first.
   */
  private async current(shard: SealableShard): Promise<StoredManifest | undefined> {
    const { objects, restoreEpoch, tier } = this.parts;
    const header = shard.header();
    const stored = await tier.newest(shard.shard);
    const number = stored?.manifest.number ?? 0;
    if (stored !== undefined && stored.manifest.restoreEpoch > restoreEpoch)
      throw new HopError(
        "FOREIGN_CLUSTER",
        `This cluster was rebuilt from ${objects.url} elsewhere (restore epoch ${stored.manifest.restoreEpoch}): it seals nothing there any more`,
      );
    if (
      number < header.manifest ||
      (number === header.manifest && number > 0 && !bytesEqual(stored?.sha256 ?? new Uint8Array(), header.manifestSha256))
    )
      throw new HopError(
        "HASH_MISMATCH",
        `Manifest ${header.manifest} of shard ${shard.shard} at ${objects.url} is gone, or is another one`,
      );
    if (stored === undefined) return undefined;
    if (number > header.manifest) await this.record(shard, stored);
    return stored;
  }

  private async record(shard: SealableShard, { manifest, sha256 }: StoredManifest): Promise<void> {
    const { through, number } = manifest;
    const statesThrough = await forgettable(this.parts, { manifest, before: shard.header().statesThrough });
    const refused = shard.record({ through, manifest: number, sha256, statesThrough });
    if (refused !== undefined) throw HopError.from(refused);
  }

  /** Where the keys have changed too: what the shard's neighbours may forget depends on it. */
  private wantsCheckpoint(shard: SealableShard, before: StoredManifest | undefined): boolean {
    if (this.parts.statesWanted.has(shard.shard)) return true;
    if (before?.manifest.checkpoint === undefined || shard.header().changedIndex > before.manifest.checkpoint.appliedIndex) return true;
    const sum = (objects: readonly { readonly bytes: number }[]) => objects.reduce((total, { bytes }) => total + bytes, 0);
    const { checkpoint, records } = before.manifest;
    return sum(records) >= Math.max(sum(checkpoint.parts), this.parts.policy.bytesMax * recordsShareMin);
  }

  private async checkpoint({ shard, range: keys }: SealableShard, before: StoredManifest | undefined): Promise<CheckpointEntry> {
    const known = before?.manifest.checkpoint;
    if (known !== undefined && !(await mayNarrow(this.parts, known, { shard, range: keys }))) return known;
    const { index, range, chunks } = takeSnapshot(this.parts.states, shard, { withArchive: false });
    requireWhole(shard, range, keys);
    return { appliedIndex: index, range, parts: await this.uploads.checkpoint(shard, index, chunks) };
  }

  private next(
    shard: SealableShard,
    before: StoredManifest | undefined,
    { segments, records, checkpoint }: Pick<Manifest, "segments" | "records" | "checkpoint">,
  ): Manifest {
    const { cluster, restoreEpoch, node } = this.parts;
    const all = [...(before?.manifest.segments ?? []), ...segments];
    return {
      cluster,
      restoreEpoch,
      shard: shard.shard,
      number: (before?.manifest.number ?? 0) + 1,
      previous: before?.sha256,
      writer: { node, epoch: shard.epoch },
      range: shard.range,
      ancestors: shard.header().ancestor as ShardId[],
      through: (all.at(-1) as SegmentEntry).summary.lastIndex,
      clockMs: shard.clockMs,
      segments: all,
      checkpoint,
      records,
    };
  }
}

/** Of the batches, those with records behind `index`: one that it divides is among them, whole. */
const behind = (batches: readonly Uint8Array[], index: number) => batches.filter((batch) => batchExtent(batch).last > index);
