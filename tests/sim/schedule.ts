/**
 * Virtual time: what happens next, and when. Nothing in a simulation waits for real time.
 *
 * True time is milliseconds since the simulation began; entries of one time run in the order in
 * which they were made.
 */
import { TimerHeap } from "#core/base";

interface Entry {
  readonly atMs: number;
  readonly run: () => void;
}

export class Schedule {
  nowMs = 0;
  /** Milliseconds that were skipped. */
  skippedMs = 0;
  /** Entries that were run. */
  steps = 0;
  private readonly heap = new TimerHeap<Entry>();

  at(atMs: number, run: () => void): void {
    this.heap.push({ atMs: Math.max(atMs, this.nowMs), run });
  }

  after(ms: number, run: () => void): void {
    this.at(this.nowMs + ms, run);
  }

  get nextMs(): number {
    return this.heap.peek()?.atMs ?? Number.POSITIVE_INFINITY;
  }

  /** Runs the next entry; false where there is none. */
  step(): boolean {
    const entry = this.heap.pop();
    if (entry === undefined) return false;
    this.nowMs = Math.max(this.nowMs, entry.atMs);
    this.steps++;
    entry.run();
    return true;
  }

  /** Time goes on to `atMs`: nothing is due before. */
  idleTo(atMs: number): void {
    this.nowMs = Math.max(this.nowMs, atMs);
  }

  /** All machines sleep for so long: what was due meanwhile runs late. */
  skip(ms: number): void {
    this.nowMs += ms;
    this.skippedMs += ms;
  }
}
