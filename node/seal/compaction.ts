/**
 * Merges a shard's small sealed segments into larger ones, neighbours only: histories are found by the
 * index of a record, so nothing else that leads to them changes.
 *
 * What is merged is, byte for byte, what the log would have been sealed to in one piece. The order
 * makes it safe, as it does for sealing: the new objects are put and read back, then the manifest is
 * put where there is none of its number, then the shard's log records it. The old objects stay for
 * as long as somebody may read by an older manifest (compaction-garbage.ts).
 */
import { bytesEqual, errorText, HopError, InvariantError, type Partition, type ShardId } from "#core/base";
import {
  type Manifest,
  type ManifestLog,
  type ObjectTier,
  packRecords,
  recordsOfSegments,
  type SealedSegment,
  type SealWork,
  type SegmentEntry,
  type StoredManifest,
} from "#store";
import type { SnapshotStores } from "../replica/snapshot.ts";
import { Rounds } from "../rounds.ts";
import type { Note } from "../shard/shard-host.ts";
import type { Timing } from "../timing.ts";
import type { Garbage } from "./compaction-garbage.ts";
import { type CompactionPolicy, neighboursToMerge } from "./compaction-plan.ts";
import { ExpiredEvents } from "./expired-events.ts";
import { RemovalPlan } from "./removal-plan.ts";
import type { SealableShard } from "./sealer.ts";
import { ShardUploads, type ShardUploadsParts } from "./shard-uploads.ts";

export interface CompactorParts extends ShardUploadsParts {
  readonly node: number;
  readonly restoreEpoch: number;
  readonly policy: CompactionPolicy;
  /** Between two looks. */
  readonly lookMs: number;
  readonly garbage: Garbage;
  readonly manifests: ManifestLog;
  readonly tier: ObjectTier;
  readonly states: Pick<SnapshotStores, "checkpoint">;
  /** Whether any history is known to have expired. */
  readonly hasExpired: () => boolean;
  /** Shards whose states are to be uploaded anew. */
  readonly statesWanted: Set<ShardId>;
  readonly timing: Timing;
  readonly note: Note;
  readonly isReady: () => boolean;
  readonly shards: () => Iterable<SealableShard>;
  readonly work: SealWork;
}

/** What became of some segments. */
export interface Compaction {
  readonly segments: number;
  readonly bytesBefore: number;
  readonly bytes: number;
  readonly manifest: number;
}

interface Replacement {
  readonly before: StoredManifest;
  readonly range: readonly [from: number, end: number];
  /** For the node's log. */
  readonly what: string;
}

/** A segment is written again for an eighth of it at once, for less when the grace is over. */
const dueShare = 8;
/** Objects of one shard that are written again in one round. */
const removalsMax = 16;

export class Compactor {
  private readonly parts: CompactorParts;
  private readonly uploads: ShardUploads;
  private readonly removal: RemovalPlan;
  private readonly rounds: Rounds;
  /** One piece of work at a time: garbage is looked for when nothing is being made. */
  private busy: Promise<unknown> | undefined;

  constructor(parts: CompactorParts) {
    this.parts = parts;
    this.uploads = new ShardUploads(parts);
    this.removal = new RemovalPlan({ timing: parts.timing, graceMs: parts.garbage.graceMs });
    const { timing, lookMs, isReady } = parts;
    this.rounds = new Rounds({
      timing,
      everyMs: lookMs,
      round: () => (this.busy === undefined && isReady() ? this.look() : undefined),
    });
  }

  start(): void {
    this.rounds.start();
  }

  stop(): void {
    this.rounds.stop();
  }

  /** One look at every shard. What fails is told, and tried again with the next one. */
  look(): Promise<void> {
    return this.alone(() => this.round());
  }

  /** Merges what is worth it by the policy, once. Undefined where nothing is. */
  compact(shard: SealableShard, policy: CompactionPolicy = this.parts.policy): Promise<Compaction | undefined> {
    return this.alone(() => this.merge(shard, policy));
  }

  private async alone<T>(run: () => Promise<T>): Promise<T> {
    while (this.busy !== undefined) await this.busy;
    const running = run();
    this.busy = running.then(
      () => {},
      () => {},
    );
    try {
      return await running;
    } finally {
      this.busy = undefined;
    }
  }

  private async round(): Promise<void> {
    const { shards, garbage, note, policy } = this.parts;
    const led = [...shards()];
    garbage.lookAfter(led.map(({ shard }) => shard));
    this.removal.lookAfter(led.map(({ shard }) => shard));
    for (const shard of led) {
      if (this.rounds.isStopped) return;
      try {
        await this.merge(shard, policy);
        if (this.parts.hasExpired()) await this.removals(shard);
        await garbage.collect(shard);
      } catch (error) {
        note("warn", "not compacted, and tried again", { shard: shard.shard, reason: errorText(error) });
      }
    }
  }

  /** Histories of the shard expired, by events in its log through `index`. */
  expired(shard: ShardId, index: number): void {
    this.removal.note(shard, index);
  }

  private async removals(shard: SealableShard): Promise<void> {
    const { sealedThrough } = shard.header();
    const savedThrough = this.parts.states.checkpoint.meta(shard.shard)?.appliedIndex ?? 0;
    this.removal.begin(shard.shard, shard.through, { sealedThrough, savedThrough });
    for (let i = 0; i < removalsMax && !this.rounds.isStopped; i++) if (!(await this.removeExpired(shard))) return;
  }

  private async merge(shard: SealableShard, policy: CompactionPolicy): Promise<Compaction | undefined> {
    const before = await this.recorded(shard);
    const found = before === undefined ? undefined : neighboursToMerge(before.manifest.segments, policy);
    if (before === undefined || found === undefined) return undefined;
    return this.replace(shard, { before, range: found, what: "compacted" });
  }

  /** Puts one segment, without what expired, in the place of those in the range [from, end) of a manifest. */
  private async replace(shard: SealableShard, { before, range, what }: Replacement): Promise<Compaction | undefined> {
    const startedMs = this.parts.timing.monotonicMs();
    const [from, end] = range;
    const old = before.manifest.segments.slice(from, end);
    const entry = await this.uploads.segment(await this.merged(before.manifest, old));
    const manifest = this.next(shard, before, { segments: before.manifest.segments.toSpliced(from, end - from, entry) });
    if (!(await this.publish(shard, manifest, startedMs))) return undefined;
    const sum = (entries: readonly SegmentEntry[], of: (summary: SegmentEntry["summary"]) => number) =>
      entries.reduce((total, { summary }) => total + of(summary), 0);
    const bytesBefore = sum(old, ({ segmentBytes }) => segmentBytes);
    const expired = sum(old, ({ rows }) => rows) - entry.summary.rows;
    const done = { segments: old.length, bytesBefore, bytes: entry.summary.segmentBytes, manifest: manifest.number };
    const ms = Math.round(this.parts.timing.monotonicMs() - startedMs);
    this.parts.note("info", what, { shard: shard.shard, ...done, expired, ms });
    return done;
  }

  /** False where something was sealed meanwhile, or the lead is lost: what is worth doing is looked at anew. */
  private async publish(shard: SealableShard, manifest: Manifest, startedMs: number): Promise<boolean> {
    const { timing, garbage, manifests, tier } = this.parts;
    // What was put so long ago may have been taken for garbage by who leads now.
    if (!this.isLed(shard) || timing.monotonicMs() - startedMs > garbage.graceMs / 2) return false;
    const published = await manifests.publish(manifest);
    if (published.kind === "lost") return false;
    tier.note({ manifest, sha256: published.sha256 });
    const { through, number, checkpoint } = manifest;
    const refused = shard.record({ through, manifest: number, sha256: published.sha256, statesThrough: checkpoint?.appliedIndex ?? 0 });
    // Whoever leads next records it.
    if (refused !== undefined) throw HopError.from(refused);
    return true;
  }

  /**
   * Removes what expired from the shard's objects: from a segment when it is an eighth of it, and from any object
   * when it was found there a grace ago. True where a segment was replaced: the next look goes on.
   */
  private async removeExpired(shard: SealableShard): Promise<boolean> {
    const before = await this.recorded(shard);
    if (before === undefined) return false;
    const expired = this.expiredIn(before.manifest);
    const { segments, records } = before.manifest;
    for (const [at, entry] of segments.entries()) {
      if (!this.removal.isToLookAt(shard.shard, entry.segment, entry.summary.indexBytes)) continue;
      const { events } = await expired.inSegment(entry);
      const isDue = this.removal.isDue(shard.shard, entry.segment, events, events * dueShare >= entry.summary.rows);
      if (!isDue) continue;
      let done: Compaction | undefined;
      try {
        done = await this.replace(shard, { before, range: [at, at + 1], what: "expired history removed" });
      } finally {
        if (done === undefined) this.removal.putBack(shard.shard, entry.segment);
      }
      return done !== undefined;
    }
    for (const entry of records) {
      if (!this.removal.isToLookAt(shard.shard, entry.key, entry.bytes)) continue;
      // Newer states need fewer of the records that lead on from them.
      if (this.removal.isDue(shard.shard, entry.key, await expired.inRecords(entry), false)) this.parts.statesWanted.add(shard.shard);
    }
    return false;
  }

  private expiredIn(manifest: Manifest): ExpiredEvents {
    return new ExpiredEvents({ ...this.parts, checkpoint: this.parts.states.checkpoint }, manifest);
  }

  /** The newest manifest, where the shard's log tells of it; one that it does not tell of yet is for the sealer to record. */
  private async recorded(shard: SealableShard): Promise<StoredManifest | undefined> {
    const { manifests, restoreEpoch, tier } = this.parts;
    const stored = await manifests.newest(shard.shard);
    const header = shard.header();
    if (stored === undefined || stored.manifest.restoreEpoch > restoreEpoch) return undefined;
    tier.note(stored);
    const isRecorded = stored.manifest.number === header.manifest && bytesEqual(stored.sha256, header.manifestSha256);
    return isRecorded ? stored : undefined;
  }

  private async merged(manifest: Manifest, entries: readonly SegmentEntry[]): Promise<SealedSegment> {
    const { tier, work } = this.parts;
    const { shard } = manifest;
    const [first, last] = [entries[0], entries.at(-1)] as [SegmentEntry, SegmentEntry];
    const segments = entries.map((entry) => ({ summary: entry.summary, reader: tier.reader(entry) }));
    const expired = this.expiredIn(manifest);
    const ends = new Map<Partition, number>();
    // Each run's saved state is looked at for it: not where nothing expired.
    for (const entry of this.parts.hasExpired() ? entries : [])
      for (const [partition, end] of (await expired.inSegment(entry)).ends) ends.set(partition, end);
    let removed = 0;
    const expiredEnd = (partition: Partition) => ends.get(partition) ?? 0;
    const records = recordsOfSegments(segments, { expiredEnd, removed: () => removed++ });
    const options = { shard, firstIndex: first.summary.firstIndex, lastIndex: last.summary.lastIndex, mayLack: true };
    const sealed = await work.segment(packRecords(records), options);
    const rows = entries.reduce((sum, { summary }) => sum + summary.rows, 0);
    if (sealed.summary.rows !== rows - removed)
      throw new InvariantError(
        `Segments of shard ${shard} with ${rows} events, of which ${removed} expired, became one with ${sealed.summary.rows}`,
      );
    return sealed;
  }

  private next(shard: SealableShard, before: StoredManifest, changed: Pick<Manifest, "segments">): Manifest {
    const { node, restoreEpoch } = this.parts;
    return {
      ...before.manifest,
      restoreEpoch,
      number: before.manifest.number + 1,
      previous: before.sha256,
      writer: { node, epoch: shard.epoch },
      ...changed,
    };
  }

  private isLed({ shard, epoch }: SealableShard): boolean {
    for (const each of this.parts.shards()) if (each.shard === shard && each.epoch === epoch) return true;
    return false;
  }
}
