/**
 * Merges a shard's small sealed segments into larger ones, neighbours only: histories are found by the
 * index of a record, so nothing else that leads to them changes.
 *
 * What is merged is, byte for byte, what the log would have been sealed to in one piece. The order
 * makes it safe, as it does for sealing: the new objects are put and read back, then the manifest is
 * put where there is none of its number, then the shard's log records it. The old objects stay for
 * as long as somebody may read by an older manifest (compaction-garbage.ts).
 */
import { bytesEqual, HopError, InvariantError, type ShardId } from "#core/base";
import {
  type Manifest,
  type ManifestLog,
  type ObjectTier,
  type RecordToSeal,
  recordsOfSegments,
  type SealedSegment,
  type SealOptions,
  type SegmentEntry,
  type StoredManifest,
} from "#store";
import type { Note } from "../shard/shard-host.ts";
import type { Timing } from "../timing.ts";
import type { Garbage } from "./compaction-garbage.ts";
import { type CompactionPolicy, neighboursToMerge } from "./compaction-plan.ts";
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
  readonly timing: Timing;
  readonly note: Note;
  readonly isReady: () => boolean;
  readonly shards: () => Iterable<SealableShard>;
  readonly seal: (records: AsyncIterable<RecordToSeal>, options: SealOptions) => Promise<SealedSegment>;
}

/** What became of some segments. */
export interface Compaction {
  readonly segments: number;
  readonly bytesBefore: number;
  readonly bytes: number;
  readonly manifest: number;
}

export class Compactor {
  private readonly parts: CompactorParts;
  private readonly uploads: ShardUploads;
  private stopTimer = () => {};
  private isStopped = false;
  /** One piece of work at a time: garbage is looked for when nothing is being made. */
  private busy: Promise<unknown> | undefined;

  constructor(parts: CompactorParts) {
    this.parts = parts;
    this.uploads = new ShardUploads(parts);
  }

  start(): void {
    this.stopTimer = this.parts.timing.after(this.parts.lookMs, () => {
      if (this.busy === undefined && this.parts.isReady()) void this.alone(() => this.round());
      this.start();
    });
  }

  stop(): void {
    this.isStopped = true;
    this.stopTimer();
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
    for (const shard of led) {
      if (this.isStopped) return;
      try {
        await this.merge(shard, policy);
        await garbage.collect(shard);
      } catch (error) {
        note("warn", "not compacted, and tried again", {
          shard: shard.shard,
          reason: error instanceof Error ? error.message : String(error),
        });
      }
    }
  }

  private async merge(shard: SealableShard, policy: CompactionPolicy): Promise<Compaction | undefined> {
    const { timing, garbage, manifests, tier, note } = this.parts;
    const startedMs = timing.monotonicMs();
    const before = await this.recorded(shard);
    const found = before === undefined ? undefined : neighboursToMerge(before.manifest.segments, policy);
    if (before === undefined || found === undefined) return undefined;
    const [from, end] = found;
    const old = before.manifest.segments.slice(from, end);
    const entry = await this.uploads.segment(await this.merged(shard.shard, old));
    const manifest = this.next(shard, before, before.manifest.segments.toSpliced(from, end - from, entry));
    // What was put so long ago may have been taken for garbage by who leads now.
    if (!this.isLed(shard) || timing.monotonicMs() - startedMs > garbage.graceMs / 2) return undefined;
    const published = await manifests.publish(manifest);
    // Something was sealed meanwhile: what is worth merging is looked at anew.
    if (published.kind === "lost") return undefined;
    tier.note({ manifest, sha256: published.sha256 });
    const { through, number, checkpoint } = manifest;
    const statesThrough = checkpoint?.appliedIndex ?? 0;
    const refused = shard.record({ through, manifest: number, sha256: published.sha256, statesThrough });
    const bytesBefore = old.reduce((sum, { summary }) => sum + summary.segmentBytes, 0);
    const done = { segments: old.length, bytesBefore, bytes: entry.summary.segmentBytes, manifest: number };
    note("info", "compacted", { shard: shard.shard, ...done, ms: Math.round(timing.monotonicMs() - startedMs) });
    // Whoever leads next records it.
    if (refused !== undefined) throw HopError.from(refused);
    return done;
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

  private async merged(shard: ShardId, entries: readonly SegmentEntry[]): Promise<SealedSegment> {
    const { tier, seal } = this.parts;
    const [first, last] = [entries[0], entries.at(-1)] as [SegmentEntry, SegmentEntry];
    const segments = entries.map((entry) => ({ summary: entry.summary, reader: tier.reader(entry) }));
    const options = { shard, firstIndex: first.summary.firstIndex, lastIndex: last.summary.lastIndex };
    const sealed = await seal(recordsOfSegments(segments), options);
    const rows = entries.reduce((sum, { summary }) => sum + summary.rows, 0);
    if (sealed.summary.rows !== rows)
      throw new InvariantError(`Segments of shard ${shard} with ${rows} events became one with ${sealed.summary.rows}`);
    return sealed;
  }

  private next(shard: SealableShard, before: StoredManifest, segments: readonly SegmentEntry[]): Manifest {
    const { node, restoreEpoch } = this.parts;
    return {
      ...before.manifest,
      restoreEpoch,
      number: before.manifest.number + 1,
      previous: before.sha256,
      writer: { node, epoch: shard.epoch },
      segments,
    };
  }

  private isLed({ shard, epoch }: SealableShard): boolean {
    for (const each of this.parts.shards()) if (each.shard === shard && each.epoch === epoch) return true;
    return false;
  }
}
