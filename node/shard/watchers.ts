/** Promises that resolve when the log has become durable far enough. */
import { isUnavailable, type Partition, type Seq } from "#core/base";

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

  /**
   * Resolves when the partition has a durable event at `seq`, has ended, or `signal` aborts. Rejects with `HopError`:
   * NOT_LEADER when the shard is led elsewhere, STORE_UNAVAILABLE while its state can't be read.
   */
  changed(partition: Partition, seq: Seq, signal: AbortSignal): Promise<void> {
    return new Promise((resolve, reject) => {
      const settle = (how: () => void) => {
        this.partitions.delete(waiter);
        signal.removeEventListener("abort", done);
        how();
      };
      const done = () => settle(resolve);
      const waiter = { partition, seq, resolve: done, reject: (error: Error) => settle(() => reject(error)) };
      if (signal.aborted) return resolve();
      this.partitions.add(waiter);
      signal.addEventListener("abort", done, { once: true });
      this.look(waiter, this.durableIndex());
    });
  }

  onDurable(index: number): void {
    if (this.indexes.length > 0) {
      const reached = this.indexes.filter((w) => w.index <= index);
      this.indexes = this.indexes.filter((w) => w.index > index);
      for (const w of reached) w.resolve();
    }
    for (const w of this.partitions) this.look(w, index);
  }

  /** Who waits for what can't be read now is told so: it may ask again. */
  private look(waiter: PartitionWaiter, durable: number): void {
    try {
      if (this.isReached(waiter.partition, waiter.seq, durable)) waiter.resolve();
    } catch (error) {
      if (!isUnavailable(error)) throw error;
      waiter.reject(error);
    }
  }

  fail(error: Error): void {
    for (const w of this.indexes) w.reject(error);
    for (const w of [...this.partitions]) w.reject(error);
    this.indexes = [];
  }

  private isReached(partition: Partition, seq: Seq, durable: number): boolean {
    const end = this.endOf(partition);
    return end === undefined || ((end.size > seq || end.closed) && end.lastIndex <= durable);
  }
}
