/**
 * Brings committed records of every shard that has a replica here to the index of runs, off the
 * commit path.
 *
 * A list first takes in everything that is committed, so whoever was told of a start finds it; on
 * a full disk it shows the runs as of what could still be taken in. A shard's records wait for
 * those of the shard that it came from, or that it absorbs.
 */
import type { Index, KeyRange, ShardId } from "#core/base";
import { asIndex, HopError } from "#core/base";
import type { ListReply, ListRequest } from "#proto";
import { type LogRecord, type LogStore, type Projector, RunQuery } from "#store";

/** A replica here, and how far its log is committed. */
export interface CommittedLog {
  readonly shard: ShardId;
  readonly commitIndex: Index;
}

export interface VisibilityParts {
  /** Replicas of data on this node. */
  readonly logs: () => Iterable<CommittedLog>;
  readonly log: LogStore;
  readonly projector: Projector;
  /** Told of each record once, when it is committed. */
  readonly onRecord: (record: LogRecord) => void;
  readonly onFault: (error: unknown) => void;
  readonly warn: (message: string) => void;
}

/** Records gather for this long before they are read back together. */
const lagMs = 100;
/** After a pass that failed. */
const failedMs = 1000;
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
      await this.catchUpWithDisk();
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
    this.parts.projector.close();
  }

  private isCaughtUp(): boolean {
    for (const { shard, commitIndex } of this.parts.logs()) if (!this.has(shard, commitIndex)) return false;
    return true;
  }

  /** What other nodes committed may not be on this node's disk yet: that is waited for, but not for ever. */
  private async catchUpWithDisk(): Promise<void> {
    const { projector } = this.parts;
    const wanted = [...this.parts.logs()]
      .filter(({ shard }) => projector.isBegun(shard))
      .map(({ shard, commitIndex }) => ({ shard, commitIndex }));
    const untilMs = performance.now() + diskMsMax;
    for (;;) {
      await this.catchUp();
      const late = wanted.find(({ shard, commitIndex }) => projector.isBegun(shard) && !this.has(shard, commitIndex));
      if (late === undefined || this.isClosed) return;
      if (performance.now() >= untilMs) {
        const message = `Cannot list runs: this node's index is at ${projector.appliedIndex(late.shard)} of shard ${late.shard}, and ${late.commitIndex} is committed; try again`;
        throw new HopError("STORE_UNAVAILABLE", message, { retryAfterMs: 200 });
      }
      await new Promise((resolve) => setTimeout(resolve, diskPollMs));
    }
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
  }

  private async bring(shard: ShardId, through: number): Promise<void> {
    const { log, projector, onRecord } = this.parts;
    if (!projector.isBegun(shard) || this.has(shard, through)) return;
    for await (const record of log.scan(shard, asIndex(projector.appliedIndex(shard) + 1), asIndex(through + 1))) {
      if (this.isClosed) return;
      const awaited = projector.waitsFor(record);
      if (awaited !== undefined) {
        // Its bytes are the log's until the next read: after the wait it is read again.
        await this.bring(awaited.shard, awaited.index);
        return this.has(awaited.shard, awaited.index) ? this.bring(shard, through) : undefined;
      }
      projector.apply(record);
      onRecord(record);
    }
  }
}
