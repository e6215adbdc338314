/** The log of a simulated node: the simulator is told what a leader decides, as it is appended. */
import type { Index, Prng, ShardId, Term } from "#core/base";
import type { Writer } from "#proto";
import { type EntryKind, type LogSchedule, type MemoryDisk, MemoryLogStore } from "#store";
import type { Journal } from "./journal.ts";

export class WatchedLog extends MemoryLogStore {
  private readonly journal: Journal;
  private isOver = false;
  private open: { readonly shard: ShardId; readonly index: Index; readonly writer: Writer } | undefined;

  constructor(disk: MemoryDisk, journal: Journal, schedule: LogSchedule) {
    super(disk, schedule);
    this.journal = journal;
  }

  override begin(shard: ShardId, index: Index, term: Term, kind: EntryKind = "data"): Writer {
    const writer = super.begin(shard, index, term, kind);
    this.open = { shard, index, writer };
    return writer;
  }

  override end(): void {
    const { shard, index, writer } = this.open as NonNullable<typeof this.open>;
    this.open = undefined;
    const body = writer.bytes.slice(0, writer.at);
    super.end();
    if (!this.isOver) this.journal.appended({ shard, index, body });
  }

  override crash(torn?: Prng): void {
    this.isOver = true;
    super.crash(torn);
  }
}
