/**
 * Brings durable records to the index of runs, off the commit path.
 *
 * A list first takes in everything that is durable, so whoever was told of a start finds it.
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
}

/** Records gather for this long before they are read back together. */
const lagMs = 100;
/** After a pass that failed. */
const failedMs = 1000;

export class VisibilityPump {
  private readonly parts: VisibilityParts;
  private readonly query: RunQuery;
  private timer: ReturnType<typeof setTimeout> | undefined;
  private running: Promise<void> | undefined;
  private isClosed = false;
  /** The last pass failed. It is told once, however long the trouble lasts. */
  private isFailing = false;

  constructor(parts: VisibilityParts) {
    this.parts = parts;
    this.query = new RunQuery(parts.projector.database, () => parts.projector.commit());
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

  /** One page of runs, as of everything durable when it was asked. */
  async list(request: ListRequest): Promise<ListReply> {
    try {
      await this.catchUp();
      return this.query.list(request);
    } catch (error) {
      if ((error as { code?: unknown }).code !== "SQLITE_FULL") throw error;
      throw new HopError(
        "NO_SPACE",
        "Cannot list runs: their index is behind the log, and its disk is full; free space and it goes on by itself",
        { cause: error },
      );
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
