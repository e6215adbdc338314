/**
 * Brings durable records to the index of runs, off the commit path.
 *
 * A list first takes in everything that is durable, so whoever was told of a start finds it; on
 * a full disk it shows the runs as of what could still be taken in.
 */
import type { ShardId } from "#core/base";
import { asIndex, HopError } from "#core/base";
import type { ListReply, ListRequest } from "#proto";
import { type LogRecord, type LogStore, type Projector, RunQuery } from "#store";

export interface VisibilityParts {
  readonly shard: ShardId;
  readonly log: LogStore;
  readonly projector: Projector;
  /** Told of each record once, when it is durable. */
  readonly onRecord: (record: LogRecord) => void;
  readonly onFault: (error: unknown) => void;
  readonly warn: (message: string) => void;
}

/** Records gather for this long before they are read back together. */
const lagMs = 100;
/** After a pass that failed. */
const failedMs = 1000;

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
    this.onDurable();
  }

  /** To be called after each group commit. */
  onDurable(): void {
    if (this.isClosed || this.timer !== undefined || this.isCaughtUp()) return;
    this.timer = setTimeout(
      () => {
        this.timer = undefined;
        this.catchUp().then(
          () => {
            this.isFailing = false;
            this.onDurable();
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
    this.onDurable();
  }

  /** One page of runs, as of everything durable when it was asked; where the disk is full, as of what is indexed. */
  async list(request: ListRequest): Promise<ListReply> {
    try {
      await this.catchUp();
      const reply = this.query.list(request);
      this.isStale = false;
      return reply;
    } catch (error) {
      if (!isFull(error)) throw error;
    }
    return this.listIndexed(request);
  }

  private listIndexed(request: ListRequest): ListReply {
    if (!this.isStale) this.parts.warn("Lists of runs are stale until there is space: their index is behind the log, and its disk is full");
    this.isStale = true;
    try {
      return this.indexed.list(request);
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
    const { shard, log, projector } = this.parts;
    return projector.appliedIndex(shard) >= log.durableIndex(shard);
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

  private async pass(): Promise<void> {
    const { shard, log, projector, onRecord } = this.parts;
    for await (const record of log.scan(shard, asIndex(projector.appliedIndex(shard) + 1))) {
      if (this.isClosed) return;
      projector.apply(record);
      onRecord(record);
    }
  }
}
