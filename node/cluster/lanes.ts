/** So many pieces of work at a time; the rest wait in order. */
export class Lanes {
  private free: number;
  private readonly queue: (() => void)[] = [];

  constructor(count: number) {
    this.free = count;
  }

  get waiting(): number {
    return this.queue.length;
  }

  async run<T>(work: () => Promise<T>): Promise<T> {
    if (this.free === 0) await new Promise<void>((resolve) => this.queue.push(resolve));
    else this.free--;
    try {
      return await work();
    } finally {
      const next = this.queue.shift();
      // The place is handed on, not freed: a newcomer does not overtake.
      if (next !== undefined) next();
      else this.free++;
    }
  }
}
