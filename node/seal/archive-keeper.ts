/**
 * Looks after logs on this node that no replica here has: those of shards that were merged away, and
 * of others that histories lead into.
 *
 * Who leads a shard that took another one in seals what that one left unsealed, under its own manifests;
 * of several that try, the first one's manifest counts. What the manifests of such a log cover is
 * released here, so archives take no disk for good. Object storage is asked seldom, and only for
 * logs that are not done with.
 */
import { asIndex, errorText, HopError, type Index, type KeyRange, placementShard, type ShardId } from "#core/base";
import type { RetiredShard } from "#core/placement";
import type { LogStore, Manifest, ManifestLog, ObjectTier, RecordsEntry, SealWork, SegmentEntry, StoredManifest } from "#store";
import { birthIndex } from "../replica/births.ts";
import { archiveThrough } from "../replica/snapshot.ts";
import { Rounds } from "../rounds.ts";
import type { Note } from "../shard/shard-host.ts";
import type { Timing } from "../timing.ts";
import { mayNarrow } from "./seal-order.ts";
import { ShardUploads, type ShardUploadsParts } from "./shard-uploads.ts";
import { readUnsealed } from "./unsealed-range.ts";

/** A shard that is led here, and the logs that its histories may lead into. */
export interface ArchiveOwner {
  readonly shard: ShardId;
  readonly range: KeyRange;
  /** Of the leadership lease. */
  readonly epoch: number;
  readonly clockMs: number;
  readonly ancestors: readonly ShardId[];
}

export interface ArchiveParts extends ShardUploadsParts {
  readonly node: number;
  readonly restoreEpoch: number;
  /** Of records in one segment. */
  readonly bytesMax: number;
  /** Between two looks. */
  readonly lookMs: number;
  readonly manifests: ManifestLog;
  readonly tier: ObjectTier;
  readonly log: LogStore;
  readonly timing: Timing;
  readonly note: Note;
  readonly work: SealWork;
  /** Object storage has proven itself. */
  readonly isReady: () => boolean;
  readonly owners: () => Iterable<ArchiveOwner>;
  readonly hasReplica: (shard: ShardId) => boolean;
  /** What became of a shard that was merged away; undefined where it was not. */
  readonly retired: (shard: ShardId) => RetiredShard | undefined;
  /** Others who read the log have read it through here. */
  readonly readThrough: (shard: ShardId) => Index;
}

export class ArchiveKeeper {
  private readonly parts: ArchiveParts;
  private readonly uploads: ShardUploads;
  /** Merged away, and known to be sealed to the end. */
  private readonly closed = new Set<ShardId>();
  private readonly rounds: Rounds;

  constructor(parts: ArchiveParts) {
    this.parts = parts;
    this.uploads = new ShardUploads(parts);
    this.rounds = new Rounds({ timing: parts.timing, everyMs: parts.lookMs, round: () => this.round() });
  }

  start(): void {
    this.rounds.start();
  }

  stop(): void {
    this.rounds.stop();
  }

  /** One look at everything. What fails is told, and tried again with the next one. */
  async round(): Promise<void> {
    if (!this.parts.isReady()) return;
    for (const owner of [...this.parts.owners()])
      for (const shard of owner.ancestors) await this.attempt(shard, "not sealed to its end", () => this.close(shard, owner));
    for (const shard of [...this.parts.log.usage().shards.keys()])
      await this.attempt(shard, "archive not released", () => this.release(shard));
  }

  private async attempt(shard: ShardId, what: string, run: () => Promise<void>): Promise<void> {
    if (this.rounds.isStopped) return;
    try {
      await run();
    } catch (error) {
      this.parts.note("warn", what, { shard, reason: errorText(error) });
    }
  }

  /** Seals what a shard that was merged away has not sealed itself. */
  private async close(shard: ShardId, owner: ArchiveOwner): Promise<void> {
    const { retired, hasReplica, manifests, tier, note, restoreEpoch, objects } = this.parts;
    const gone = retired(shard);
    // A log that is still one may hold what was never committed.
    if (gone === undefined || this.closed.has(shard) || hasReplica(shard)) return;
    const before = await tier.newest(shard);
    if (before !== undefined && before.manifest.restoreEpoch > restoreEpoch)
      throw new HopError("FOREIGN_CLUSTER", `This cluster was rebuilt from ${objects.url} elsewhere: it seals nothing there any more`);
    if ((before?.manifest.through ?? 0) < gone.through) {
      const manifest = await this.rest(gone, before, owner);
      const published = await manifests.publish(manifest);
      // The other one's manifest is looked at next time.
      if (published.kind === "lost") return;
      tier.note({ manifest, sha256: published.sha256 });
      note("info", "sealed to its end", { shard, into: gone.into, through: manifest.through, manifest: manifest.number });
    }
    this.closed.add(shard);
  }

  private async areStatesElsewhere(before: StoredManifest | undefined): Promise<boolean> {
    const checkpoint = before?.manifest.checkpoint;
    if (before === undefined || checkpoint === undefined) return true;
    const { first } = checkpoint.range;
    return mayNarrow(this.parts, checkpoint, { shard: before.manifest.shard, range: { first, last: first - 1 } });
  }

  /**
   * Puts the segments that are missing, and returns the manifest that names them. Nobody leads on from here, so its
   * states go, once whoever rebuilds the cluster finds those of its keys at the shard that took it in.
   */
  private async rest({ shard, through }: RetiredShard, before: StoredManifest | undefined, owner: ArchiveOwner): Promise<Manifest> {
    const { work, bytesMax, cluster, restoreEpoch, node } = this.parts;
    const first = asIndex((before?.manifest.through ?? 0) + 1);
    const segments: SegmentEntry[] = [];
    const keepsStates = before?.manifest.checkpoint !== undefined && !(await this.areStatesElsewhere(before));
    const records: RecordsEntry[] = keepsStates ? [...before.manifest.records] : [];
    for (let next = first; next <= through; ) {
      const part = await readUnsealed(this.parts, { shard, first: next, through }, bytesMax);
      const isMissing = part.batches.length === 0 || part.first > (segments.length > 0 || before !== undefined ? next : birthIndex + 1);
      if (isMissing)
        throw new HopError(
          "STORE_UNAVAILABLE",
          `Cannot seal shard ${shard} to its end at ${through}: this node has no record ${next} of it`,
        );
      await this.uploads.blobs(part.blobs);
      segments.push(await this.uploads.segment(await work.segment(part.batches, { shard, firstIndex: part.first, lastIndex: part.last })));
      if (keepsStates) records.push(...(await this.uploads.records(shard, part.batches)));
      next = asIndex(part.last + 1);
    }
    const known = before?.manifest;
    return {
      cluster,
      restoreEpoch,
      shard,
      number: (known?.number ?? 0) + 1,
      previous: before?.sha256,
      writer: { node, epoch: owner.epoch },
      // One that never sealed anything told nobody of its keys: they are among those of the shard that has them now.
      range: known?.range ?? owner.range,
      ancestors: known?.ancestors ?? owner.ancestors.filter((each) => each !== shard),
      through,
      clockMs: Math.max(known?.clockMs ?? 0, ...segments.map(({ summary }) => summary.extent?.lastTimeMs ?? 0)),
      segments: [...(known?.segments ?? []), ...segments],
      checkpoint: keepsStates ? known?.checkpoint : undefined,
      records,
    };
  }

  /** Forgets what the manifests of a log have that no replica here has. */
  private async release(shard: ShardId): Promise<void> {
    const { log, hasReplica, tier, readThrough } = this.parts;
    if (shard === placementShard || hasReplica(shard)) return;
    const stored = await tier.newest(shard);
    if (stored === undefined) return;
    // One may have come to this node meanwhile.
    const through = asIndex(Math.min(stored.manifest.through, readThrough(shard)));
    if (hasReplica(shard) || through <= log.released(shard)) return;
    log.release(shard, archiveThrough(log, shard, through));
    log.kick(false);
  }
}
