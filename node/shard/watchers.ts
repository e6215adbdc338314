/** Promises that resolve when the log has become durable far enough. */
import type { Partition, Seq } from "#core/base";

type End = { readonly size: number; readonly lastIndex: number; readonly closed: boolean } | undefined;

interface IndexWaiter {
  readonly index: number;
  readonly resolve: () => void;
  readonly reject: (error: Error) => void;
}

interface PartitionWaiter {
  readonly partition: Partition;
  readonly seq: Seq;
  readonly resolve: () => void;
  readonly reject: (error: Error) => void;
}

export class Watchers {
  private readonly endOf: (partition: Partition) => End;
  private readonly durableIndex: () => number;
  private indexes: IndexWaiter[] = [];
  private readonly partitions = new Set<PartitionWaiter>();

  constructor(endOf: (partition: Partition) => End, durableIndex: () => number) {
    this.endOf = endOf;
    this.durableIndex = durableIndex;
  }

  durable(index: number): Promise<void> {
    if (index <= this.durableIndex()) return Promise.resolve();
    return new Promise((resolve, reject) => this.indexes.push({ index, resolve, reject }));
  }

  /** Resolves when the partition has a durable event at `seq`, has ended, or `signal` aborts. */
  changed(partition: Partition, seq: Seq, signal: AbortSignal): Promise<void> {
    if (signal.aborted || this.isReached(partition, seq, this.durableIndex())) return Promise.resolve();
    return new Promise((resolve, reject) => {
      const done = () => {
        this.partitions.delete(waiter);
        signal.removeEventListener("abort", done);
        resolve();
      };
      const waiter = { partition, seq, resolve: done, reject };
      this.partitions.add(waiter);
      signal.addEventListener("abort", done, { once: true });
    });
  }

  onDurable(index: number): void {
    if (this.indexes.length > 0) {
      const reached = this.indexes.filter((w) => w.index <= index);
      this.indexes = this.indexes.filter((w) => w.index > index);
      for (const w of reached) w.resolve();
    }
    for (const w of this.partitions) if (this.isReached(w.partition, w.seq, index)) w.resolve();
  }

  fail(error: Error): void {
    for (const w of this.indexes) w.reject(error);
    for (const w of this.partitions) w.reject(error);
    this.indexes = [];
    this.partitions.clear();
  }

  private isReached(partition: Partition, seq: Seq, durable: number): boolean {
    const end = this.endOf(partition);
    return end === undefined || ((end.size > seq || end.closed) && end.lastIndex <= durable);
  }
}
