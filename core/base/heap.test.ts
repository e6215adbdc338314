import { expect, test } from "bun:test";
import fc from "fast-check";
import { TimerHeap } from "#core/base";

interface Entry {
  readonly atMs: number;
  readonly name: number;
}

/** The same by sorting: earliest first, then the order of insertion. */
class NaiveHeap {
  readonly entries: Entry[] = [];

  push(entry: Entry): void {
    const at = this.entries.findIndex((each) => each.atMs > entry.atMs);
    this.entries.splice(at < 0 ? this.entries.length : at, 0, entry);
  }
}

test("push, peek and pop agree with a sorted list, also among equal times", () => {
  const time = fc.oneof(fc.nat(5), fc.constant(Number.POSITIVE_INFINITY), fc.nat());
  fc.assert(
    fc.property(fc.array(fc.option(time, { freq: 3 }), { maxLength: 200 }), (steps) => {
      const heap = new TimerHeap<Entry>();
      const naive = new NaiveHeap();
      for (const [name, atMs] of steps.entries()) {
        if (atMs === null) expect(heap.pop()).toEqual(naive.entries.shift());
        else {
          heap.push({ atMs, name });
          naive.push({ atMs, name });
        }
        expect(heap.size).toBe(naive.entries.length);
        expect(heap.peek()).toEqual(naive.entries[0]);
      }
      while (naive.entries.length > 0) expect(heap.pop()).toEqual(naive.entries.shift());
      expect(heap.pop()).toBeUndefined();
    }),
  );
});
