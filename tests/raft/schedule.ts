/** Simulated time: actions in order of their time, and of their making where times are equal. */
interface Due {
  readonly at: number;
  readonly order: number;
  readonly action: () => void;
}

const isBefore = (a: Due, b: Due) => a.at < b.at || (a.at === b.at && a.order < b.order);

export class Schedule {
  /** In milliseconds. */
  now = 0;
  private order = 0;
  private readonly heap: Due[] = [];

  after(ms: number, action: () => void): void {
    const { heap } = this;
    const due: Due = { at: this.now + Math.max(ms, 0), order: this.order++, action };
    let at = heap.length;
    heap.push(due);
    while (at > 0) {
      const parent = (at - 1) >> 1;
      if (!isBefore(due, heap[parent] as Due)) break;
      heap[at] = heap[parent] as Due;
      at = parent;
    }
    heap[at] = due;
  }

  runUntil(end: number): void {
    for (let due = this.heap[0]; due !== undefined && due.at <= end; due = this.heap[0]) {
      this.removeFirst();
      this.now = due.at;
      due.action();
    }
    this.now = end;
  }

  private removeFirst(): void {
    const { heap } = this;
    const last = heap.pop() as Due;
    if (heap.length === 0) return;
    let at = 0;
    for (;;) {
      let child = at * 2 + 1;
      if (child >= heap.length) break;
      if (child + 1 < heap.length && isBefore(heap[child + 1] as Due, heap[child] as Due)) child++;
      if (!isBefore(heap[child] as Due, last)) break;
      heap[at] = heap[child] as Due;
      at = child;
    }
    heap[at] = last;
  }
}
