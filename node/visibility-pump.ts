/**
 * Brings committed records of every shard that has a replica here to the index of runs, off the
 * commit path.
 *
 * A list first takes in everything that is committed, so whoever was told of a start finds it; on
 * a full disk it shows the runs as of what could still be taken in. A shard's records wait for
 * those of the shard that it came from, or that it absorbs. Where those are not all in this node's
 * log any more, the shard's part of the index is rebuilt, and lists of its keys are refused until it is there.
 */
import type { Index, KeyRange, ShardId } from "#core/base";
import { asIndex, errorText, HopError } from "#core/base";
import type { ListReply, ListRequest } from "#proto";
import { type LogRecord, type LogStore, type Projector, RunQuery } from "#store";
import { type Lineage, type SealedRows, VisibilityRebuild } from "./visibility-rebuild.ts";

/** A replica here, and how far its log is committed. */
export interface CommittedLog {
  readonly shard: ShardId;
  readonly commitIndex: Index;
  /** Left out: it is never rebuilt. */
  readonly keys?: () => ShardKeys;
}

/** The keys that a shard has as of its record `changedIndex`, and where their histories may lie. */
export interface ShardKeys {
  readonly range: KeyRange;
  readonly ancestors: readonly ShardId[];
  readonly changedIndex: number;
}

export interface VisibilityParts {
  /** Replicas of data on this node. */
  readonly logs: () => Iterable<CommittedLog>;
  readonly log: LogStore;
  readonly projector: Projector;
  /** What the log does not have any more; left out where there is no object storage. */
  readonly sealed?: SealedRows | undefined;
  /** Told of each record once, when it is committed. */
  readonly onRecord: (record: LogRecord) => void;
  readonly onFault: (error: unknown) => void;
  readonly warn: (message: string) => void;
}

/** Records gather for this long before they are read back together. */
const lagMs = 100;
/** After a pass that failed. */
const failedMs = 1000;
/** Of a log that says nothing of its keys: it waits. */
const unknownKeys = { range: { first: 0, last: 0 }, ancestors: [], changedIndex: Number.POSITIVE_INFINITY };
/** After a shard could not be rebuilt. */
const brokenMs = 2000;
const diskPollMs = 2;
const diskMsMax = 2000;

/** The second one: the index's shared memory, a file like the others, could not grow. */
const isFull = (error: unknown) => ["SQLITE_FULL", "SQLITE_IOERR_SHMSIZE"].includes(String((error as { code?: unknown }).code));

export class VisibilityPump {
  private readonly parts: VisibilityParts;
  private readonly query: RunQuery;
  /** Reads the rows as they are. */
  private readonly indexed: RunQuery;
  private timer: ReturnType<typeof setTimeout> | undefined;
  private running: Promise<void> | undefined;
  private isClosed = false;
  /** The last pass failed. It is told once, however long the trouble lasts. */
  private isFailing = false;
  /** Lists are served from rows that are behind the log. It is told once. */
  private isStale = false;
  /** Shards whose next record this node's log does not have. */
  private readonly lacking = new Set<ShardId>();
  /** What the next record of a shard waits for. */
  private readonly awaited = new Map<ShardId, { readonly shard: ShardId; readonly index: number }>();
  private rebuild: VisibilityRebuild | undefined;
  private rebuilding: Promise<void> = Promise.resolve();
  /** Why a shard could not be rebuilt, and when that is tried again. */
  private readonly broken = new Map<ShardId, { readonly why: string; readonly againMs: number }>();

  constructor(parts: VisibilityParts) {
    this.parts = parts;
    this.query = new RunQuery(parts.projector.database, () => parts.projector.commit());
    this.indexed = new RunQuery(parts.projector.database);
    this.onCommitted();
  }

  /** To be called when a shard has committed further. */
  onCommitted(): void {
    if (this.isClosed || this.timer !== undefined || this.isCaughtUp()) return;
    this.timer = setTimeout(
      () => {
        this.timer = undefined;
        this.catchUp().then(
          () => {
            this.isFailing = false;
            // What waits for another shard's records comes with those.
            if (!this.isCaughtUp()) this.onCommitted();
          },
          (error: unknown) => this.failed(error),
        );
      },
      this.isFailing ? failedMs : lagMs,
    );
  }

  private failed(error: unknown): void {
    if (!this.isFailing) this.parts.onFault(error);
    this.isFailing = true;
    this.onCommitted();
  }

  /**
   * One page of runs, of the keys in `ranges` where they are given, as of everything committed when
   * it was asked; where the disk is full, as of what is indexed.
   */
  async list(request: ListRequest, ranges?: readonly KeyRange[]): Promise<ListReply> {
    try {
      await this.catchUpWithDisk(ranges);
      const reply = this.query.list(request, ranges);
      this.isStale = false;
      return reply;
    } catch (error) {
      if (!isFull(error)) throw error;
    }
    return this.listIndexed(request, ranges);
  }

  /** Whether the index holds everything of a shard through `index`. */
  has(shard: ShardId, index: number): boolean {
    return this.parts.projector.appliedIndex(shard) >= index;
  }

  private listIndexed(request: ListRequest, ranges: readonly KeyRange[] | undefined): ListReply {
    if (!this.isStale) this.parts.warn("Lists of runs are stale until there is space: their index is behind the log, and its disk is full");
    this.isStale = true;
    try {
      return this.indexed.list(request, ranges);
    } catch (error) {
      if (!isFull(error)) throw error;
      throw new HopError("NO_SPACE", "Cannot list runs: the disk of their index is full; free space and it goes on by itself", {
        cause: error,
      });
    }
  }

  async close(): Promise<void> {
    this.isClosed = true;
    clearTimeout(this.timer);
    await this.running?.catch(() => {});
    await this.rebuilding;
    this.parts.projector.close();
  }

  private isCaughtUp(): boolean {
    for (const { shard, commitIndex } of this.parts.logs()) if (!this.has(shard, commitIndex)) return false;
    return true;
  }

  /** What other nodes committed may not be on this node's disk yet: that is waited for, but not for ever. */
  private async catchUpWithDisk(ranges: readonly KeyRange[] | undefined): Promise<void> {
    const { projector } = this.parts;
    const wanted = [...this.parts.logs()]
      .filter(({ shard }) => projector.isBegun(shard))
      .map(({ shard, commitIndex }) => ({ shard, commitIndex }));
    const untilMs = performance.now() + diskMsMax;
    for (;;) {
      await this.catchUp();
      this.requireRows(ranges);
      const late = wanted.find(({ shard, commitIndex }) => projector.isBegun(shard) && !this.lacks(shard) && !this.has(shard, commitIndex));
      if (late === undefined || this.isClosed) return;
      if (performance.now() >= untilMs) {
        const message = `Cannot list runs: this node's index is at ${projector.appliedIndex(late.shard)} of shard ${late.shard}, and ${late.commitIndex} is committed; try again`;
        throw new HopError("STORE_UNAVAILABLE", message, { retryAfterMs: 200 });
      }
      await new Promise((resolve) => setTimeout(resolve, diskPollMs));
    }
  }

  /** Rows of some of the keys may be missing altogether: a shorter table would be wrong. */
  private requireRows(ranges: readonly KeyRange[] | undefined): void {
    for (const { shard, keys } of this.parts.logs()) {
      if (!this.lacks(shard)) continue;
      const range = keys?.().range;
      if (range !== undefined && ranges?.every(({ first, last }) => last < range.first || first > range.last) === true) continue;
      const { rebuild } = this;
      const state =
        rebuild?.lineage.shard === shard
          ? rebuild.progress
          : (this.broken.get(shard)?.why ?? `the index of shard ${shard} is to be rebuilt`);
      throw new HopError("STORE_UNAVAILABLE", `Cannot list runs: ${state}; try again`, { retryAfterMs: 500 });
    }
  }

  private lacks(shard: ShardId): boolean {
    return this.lacking.has(shard) || this.rebuild?.lineage.shard === shard || this.parts.projector.isUnfinished(shard);
  }

  private async catchUp(): Promise<void> {
    // The pass under way may have begun before what this one has to see.
    await this.running;
    if (this.isCaughtUp()) return;
    this.running ??= this.pass().finally(() => {
      this.running = undefined;
    });
    await this.running;
  }

  /** Round after round: a child begins when its parent's split was taken in, whichever comes first. */
  private async pass(): Promise<void> {
    for (let moved = true; moved && !this.isClosed; ) {
      moved = false;
      for (const { shard, commitIndex } of [...this.parts.logs()]) {
        const before = this.parts.projector.appliedIndex(shard);
        await this.bring(shard, commitIndex);
        if (this.parts.projector.appliedIndex(shard) > before) moved = true;
      }
    }
    this.rebuildNext();
  }

  /** Begins to rebuild what will not come by itself any more, one shard after the other. */
  private rebuildNext(): void {
    for (const each of this.parts.logs()) if (this.isStuck(each)) this.lacking.add(each.shard);
    for (const { shard, commitIndex, keys } of this.parts.logs()) {
      const through = asIndex(Math.min(commitIndex, this.parts.log.durableIndex(shard)));
      // A leader may know of a change of its keys that is not committed.
      if (this.rebuild !== undefined || this.isClosed || !this.lacks(shard)) continue;
      if (performance.now() < (this.broken.get(shard)?.againMs ?? 0)) continue;
      const { range, ancestors, changedIndex } = keys?.() ?? unknownKeys;
      if (changedIndex <= through) this.rebuilding = this.rebuildNow({ shard, through, range, ancestors });
    }
  }

  private async rebuildNow(lineage: Lineage): Promise<void> {
    const { parts } = this;
    const { shard } = lineage;
    const isHere = () => [...parts.logs()].some((each) => each.shard === shard);
    const rebuild = new VisibilityRebuild({ ...parts, sealed: parts.sealed, isOver: () => this.isClosed || !isHere() }, lineage);
    this.rebuild = rebuild;
    parts.warn(`The index of runs of shard ${shard} is rebuilt from what is sealed and from the log; lists of its keys wait for it`);
    try {
      await rebuild.run();
      if (!isHere()) parts.projector.forget(shard, lineage.range);
      this.lacking.delete(shard);
      this.broken.delete(shard);
    } catch (error) {
      const why = errorText(error);
      if (this.broken.get(shard)?.why !== why)
        parts.warn(`The index of runs of shard ${shard} can't be rebuilt, and it is tried again: ${why}`);
      this.broken.set(shard, { why, againMs: performance.now() + brokenMs });
    } finally {
      this.rebuild = undefined;
      this.onCommitted();
    }
  }

  /** Whether no record that is still to come brings the shard on. To be asked when a pass is done. */
  private isStuck({ shard, commitIndex, keys }: CommittedLog): boolean {
    const { projector, log } = this.parts;
    if (keys === undefined || this.lacks(shard) || this.has(shard, commitIndex)) return false;
    const logs = [...this.parts.logs()];
    const awaited = this.awaited.get(shard);
    if (projector.isBegun(shard)) {
      if (awaited === undefined || this.has(awaited.shard, awaited.index)) return false;
      if (logs.some((each) => each.shard === awaited.shard) || log.durableIndex(shard) <= projector.appliedIndex(shard)) return false;
    }
    const { ancestors } = keys();
    return !logs.some((each) => ancestors.includes(each.shard) && !this.has(each.shard, each.commitIndex));
  }

  private async bring(shard: ShardId, through: number): Promise<void> {
    const { log, projector, onRecord } = this.parts;
    if (!projector.isBegun(shard) || this.lacks(shard) || this.has(shard, through)) return;
    this.awaited.delete(shard);
    for await (const record of log.scan(shard, asIndex(projector.appliedIndex(shard) + 1), asIndex(through + 1))) {
      if (this.isClosed) return;
      if (record.index > projector.appliedIndex(shard) + 1) return void this.lacking.add(shard);
      const awaited = projector.waitsFor(record);
      if (awaited !== undefined) {
        this.awaited.set(shard, awaited);
        // Its bytes are the log's until the next read: after the wait it is read again.
        await this.bring(awaited.shard, awaited.index);
        return this.has(awaited.shard, awaited.index) ? this.bring(shard, through) : undefined;
      }
      projector.apply(record);
      onRecord(record);
    }
  }
}
