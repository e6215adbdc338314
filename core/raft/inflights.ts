/**
 * Append messages on their way to one member: a ring of (last index, payload bytes), bounded by
 * count and by bytes. The ring grows to what is in use, so an idle member costs nothing.
 */
import { assert } from "#core/base";

export class Inflights {
  count = 0;
  private readonly countMax: number;
  private readonly bytesMax: number;
  private start = 0;
  private bytes = 0;
  private indexes: number[] = [];
  private sizes: number[] = [];

  constructor(countMax: number, bytesMax: number) {
    this.countMax = countMax;
    this.bytesMax = bytesMax;
  }

  /** The last message may go beyond the bytes: then no other fits. */
  isFull(): boolean {
    return this.count === this.countMax || this.bytes >= this.bytesMax;
  }

  add(lastIndex: number, bytes: number): void {
    assert(!this.isFull(), "Cannot count another message in flight: the limit is reached");
    if (this.count === this.indexes.length) this.grow();
    const at = (this.start + this.count) % this.indexes.length;
    this.indexes[at] = lastIndex;
    this.sizes[at] = bytes;
    this.count++;
    this.bytes += bytes;
  }

  /** All messages up to `index` have arrived. */
  freeTo(index: number): void {
    while (this.count > 0 && (this.indexes[this.start] as number) <= index) {
      this.bytes -= this.sizes[this.start] as number;
      this.start = (this.start + 1) % this.indexes.length;
      this.count--;
    }
  }

  clear(): void {
    this.count = 0;
    this.bytes = 0;
    this.start = 0;
  }

  private grow(): void {
    const length = this.indexes.length;
    const order = (from: readonly number[]) => from.slice(this.start).concat(from.slice(0, this.start));
    const more = new Array<number>(Math.max(1, length)).fill(0);
    this.indexes = order(this.indexes).concat(more);
    this.sizes = order(this.sizes).concat(more);
    this.start = 0;
  }
}
