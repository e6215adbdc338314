/**
 * The newest entries of the shards whose entries are asked for again, in memory: what a leader
 * sends to its followers was appended a moment ago.
 *
 * Of each shard it has entries without a gap up to the last one that was added; the oldest of all
 * shards go first.
 */
import type { LogEntry } from "./log-store.ts";

const bytesMax = 4 << 20;
/** What an entry costs beside its bytes. */
const entryBytes = 100;

interface Run {
  /** Index of `entries[head]`. */
  first: number;
  head: number;
  readonly entries: LogEntry[];
}

interface Kept {
  readonly run: Run;
  readonly entry: LogEntry;
}

export class RecentEntries {
  private readonly runs = new Map<number, Run>();
  /** In the order of their coming; those that were cut off their run are still here. */
  private order: Kept[] = [];
  private oldest = 0;
  private bytes = 0;

  /** The entry takes the place of those of its shard from its index on. */
  add(shard: number, entry: LogEntry): void {
    const run = this.runFor(shard, entry.index);
    run.entries.push(entry);
    this.order.push({ run, entry });
    this.bytes += entry.data.length + entryBytes;
    while (this.bytes > bytesMax) this.dropOldest();
  }

  forget(shard: number): void {
    if (this.runs.size > 0) this.runs.delete(shard);
  }

  /** Index of the shard's first entry here. */
  first(shard: number): number | undefined {
    const run = this.runs.get(shard);
    return run === undefined || run.head === run.entries.length ? undefined : run.first;
  }

  /** The shard's entry at `index`, which is not below `first`. */
  at(shard: number, index: number): LogEntry | undefined {
    const run = this.runs.get(shard);
    return run?.entries[run.head + index - run.first];
  }

  private runFor(shard: number, index: number): Run {
    const run = this.runs.get(shard);
    const place = run === undefined ? -1 : run.head + index - run.first;
    if (run !== undefined && place >= run.head && place <= run.entries.length) {
      run.entries.length = place;
      return run;
    }
    const fresh: Run = { first: index, head: 0, entries: [] };
    this.runs.set(shard, fresh);
    return fresh;
  }

  private dropOldest(): void {
    const { run, entry } = this.order[this.oldest++] as Kept;
    this.bytes -= entry.data.length + entryBytes;
    if (run.entries[run.head] === entry) {
      run.head++;
      run.first++;
      if (run.head > 1024 && run.head * 2 > run.entries.length) {
        run.entries.splice(0, run.head);
        run.head = 0;
      }
    }
    if (this.oldest > 1024 && this.oldest * 2 > this.order.length) {
      this.order = this.order.slice(this.oldest);
      this.oldest = 0;
    }
  }
}
