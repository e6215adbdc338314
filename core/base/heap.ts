/** Binary min-heap of entries ordered by time, then by insertion. */
export interface Timed {
  readonly atMs: number;
}

export class TimerHeap<T extends Timed> {
  private readonly items: { entry: T; order: number }[] = [];
  private order = 0;

  get size(): number {
    return this.items.length;
  }

  peek(): T | undefined {
    return this.items[0]?.entry;
  }

  push(entry: T): void {
    const items = this.items;
    items.push({ entry, order: this.order++ });
    let at = items.length - 1;
    while (at > 0) {
      const up = (at - 1) >> 1;
      if (!this.before(at, up)) break;
      this.swap(at, up);
      at = up;
    }
  }

  pop(): T | undefined {
    const items = this.items;
    const top = items[0];
    const last = items.pop();
    if (top === undefined || last === undefined) return undefined;
    if (items.length > 0) {
      items[0] = last;
      this.sink();
    }
    return top.entry;
  }

  private sink(): void {
    let at = 0;
    for (;;) {
      const left = at * 2 + 1;
      if (left >= this.items.length) return;
      const right = left + 1;
      const least = right < this.items.length && this.before(right, left) ? right : left;
      if (!this.before(least, at)) return;
      this.swap(least, at);
      at = least;
    }
  }

  private before(a: number, b: number): boolean {
    const x = this.items[a] as { entry: T; order: number };
    const y = this.items[b] as { entry: T; order: number };
    return x.entry.atMs - y.entry.atMs < 0 || (x.entry.atMs === y.entry.atMs && x.order < y.order);
  }

  private swap(a: number, b: number): void {
    const items = this.items;
    const x = items[a] as { entry: T; order: number };
    items[a] = items[b] as { entry: T; order: number };
    items[b] = x;
  }
}
