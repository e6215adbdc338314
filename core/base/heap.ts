/** Binary min-heap of entries ordered by time, then by insertion. */
export interface Timed {
  readonly atMs: number;
}

interface Item<T> {
  readonly entry: T;
  readonly atMs: number;
  readonly order: number;
}

export class TimerHeap<T extends Timed> {
  private readonly items: Item<T>[] = [];
  private order = 0;

  get size(): number {
    return this.items.length;
  }

  peek(): T | undefined {
    return this.items[0]?.entry;
  }

  push(entry: T): void {
    const { items } = this;
    const item = { entry, atMs: entry.atMs, order: this.order++ };
    let at = items.length;
    items.push(item);
    while (at > 0) {
      const up = (at - 1) >> 1;
      const above = items[up] as Item<T>;
      if (!isBefore(item, above)) break;
      items[at] = above;
      at = up;
    }
    items[at] = item;
  }

  pop(): T | undefined {
    const { items } = this;
    const top = items[0];
    const last = items.pop();
    if (top === undefined || last === undefined) return undefined;
    if (items.length > 0) this.sink(last);
    return top.entry;
  }

  /** Puts the item where it belongs, from the top on, which is free. */
  private sink(item: Item<T>): void {
    const { items } = this;
    const { length } = items;
    let at = 0;
    for (;;) {
      let least = at * 2 + 1;
      if (least >= length) break;
      let below = items[least] as Item<T>;
      if (least + 1 < length) {
        const right = items[least + 1] as Item<T>;
        if (isBefore(right, below)) {
          least++;
          below = right;
        }
      }
      if (!isBefore(below, item)) break;
      items[at] = below;
      at = least;
    }
    items[at] = item;
  }
}

function isBefore<T>(x: Item<T>, y: Item<T>): boolean {
  return x.atMs < y.atMs || (x.atMs === y.atMs && x.order < y.order);
}
