/**
 * Makes a shard's part of the index of runs anew, where the log that it was made from is not all here
 * any more: out of sealed segments of the shard and of those that its histories lead into, and out of
 * the logs behind them.
 *
 * Rows of the range are gone while it goes on, and the shard begins in the index when all are there.
 */
import { asIndex, HopError, type Index, type KeyRange, type ShardId } from "#core/base";
import {
  type LogStore,
  type Projector,
  ReleasedError,
  type RunRebuild,
  type SealedRow,
  type SegmentEntry,
  type StoredManifest,
} from "#store";
import { birthIndex } from "./replica/births.ts";

/** What is sealed, as far as rows are asked for. */
export interface SealedRows {
  /** The shard's newest manifest; undefined where nothing of it certainly is sealed. */
  sealed(shard: ShardId): Promise<StoredManifest | undefined>;
  rows(entry: SegmentEntry): AsyncGenerator<SealedRow[]>;
}

/** A shard as of one index, and where its histories may lie. */
export interface Lineage {
  readonly shard: ShardId;
  readonly through: Index;
  readonly range: KeyRange;
  readonly ancestors: readonly ShardId[];
}

export interface RebuildParts {
  readonly log: LogStore;
  readonly projector: Projector;
  /** Undefined: there is no object storage. */
  readonly sealed: SealedRows | undefined;
  /** Nobody wants the result any more. */
  readonly isOver: () => boolean;
}

/** A segment that is released while it is read is sealed by then. */
const triesMax = 4;

export class VisibilityRebuild {
  readonly lineage: Lineage;
  private readonly parts: RebuildParts;
  private logsRead = 0;
  private segmentsRead = 0;
  private rows = 0;

  constructor(parts: RebuildParts, lineage: Lineage) {
    this.parts = parts;
    this.lineage = lineage;
  }

  /** How far it is, for people. */
  get progress(): string {
    const { shard, ancestors } = this.lineage;
    const read = `${this.segmentsRead} sealed segments and ${this.logsRead} of ${ancestors.length + 1} logs are read`;
    return `the index of shard ${shard} is being rebuilt: ${this.rows > 0 ? `${this.rows} runs are back` : read}`;
  }

  /** Rejects with `HopError` STORE_UNAVAILABLE or HASH_MISMATCH; it may be tried again. */
  async run(): Promise<void> {
    const { projector, isOver } = this.parts;
    const { shard, through, range, ancestors } = this.lineage;
    const rebuild = projector.rebuild(shard, range);
    try {
      for (const each of [...ancestors, shard]) {
        await this.take(each, rebuild);
        this.logsRead++;
        if (isOver()) return;
      }
      for (const batch of rebuild.rows()) {
        projector.takeRows(batch);
        this.rows += batch.length;
        // Others run in between.
        await new Promise((resolve) => setImmediate(resolve));
        if (isOver()) return;
      }
      projector.begin(shard, through);
    } finally {
      rebuild.close();
    }
  }

  private async take(shard: ShardId, rebuild: RunRebuild): Promise<void> {
    const { sealed, log } = this.parts;
    let through = 0;
    for (let tries = 0; tries < triesMax; tries++) {
      const stored = await sealed?.sealed(shard);
      if (this.parts.isOver()) return;
      if (stored !== undefined) await this.takeSealed(stored, rebuild);
      through = stored?.manifest.through ?? 0;
      try {
        if (await this.takeLog(shard, through, rebuild)) return;
      } catch (error) {
        if (!(error instanceof ReleasedError)) throw error;
      }
      if (log.released(shard) <= through) break;
    }
    const where = sealed === undefined ? "and there is no object storage" : "nor sealed";
    throw new HopError(
      "STORE_UNAVAILABLE",
      `Cannot rebuild the index of shard ${this.lineage.shard}: records of shard ${shard} behind ${through} are not in this node's log, ${where}`,
      { retryAfterMs: 1000 },
    );
  }

  private async takeSealed({ manifest: { shard, segments } }: StoredManifest, rebuild: RunRebuild): Promise<void> {
    const { sealed, isOver } = this.parts;
    const { range } = this.lineage;
    for (const entry of segments) {
      const { extent, firstIndex } = entry.summary;
      const isOutside = extent === undefined || extent.lastKey < range.first || extent.firstKey > range.last;
      if (isOutside || firstIndex > this.end(shard)) continue;
      for await (const rows of (sealed as SealedRows).rows(entry)) {
        if (isOver()) return;
        rebuild.add(rows.filter(({ index }) => index <= this.end(shard)));
      }
      this.segmentsRead++;
    }
  }

  /** Takes what the log has behind `sealed`. False where it lacks something. */
  private async takeLog(shard: ShardId, sealed: number, rebuild: RunRebuild): Promise<boolean> {
    const isOwn = shard === this.lineage.shard;
    const end = this.end(shard);
    if (isOwn && sealed >= end) return true;
    let next = sealed + 1;
    for await (const record of this.parts.log.scan(shard, asIndex(next), isOwn ? asIndex(end + 1) : undefined)) {
      if (this.parts.isOver()) return true;
      if (record.index !== next && !(sealed === 0 && next === 1 && record.index === birthIndex + 1)) return false;
      rebuild.addRecord(record);
      next = record.index + 1;
    }
    // How far the log of another shard is needed is not known; it begins, and has no gap.
    return isOwn ? next === end + 1 : next > 1;
  }

  /** Records of the shard's own log behind this one are taken from there, later. */
  private end(shard: ShardId): number {
    return shard === this.lineage.shard ? this.lineage.through : Number.MAX_SAFE_INTEGER;
  }
}
