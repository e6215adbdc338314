/**
 * What other nodes ask of a shard, or of keys, that are on their way to this node: placement has given
 * them to it, and it has still to hear of that, to open the shard, or to take the keys in.
 *
 * Whoever asks would be refused and ask again every few milliseconds; here it waits for the moment itself.
 */
import type { Timing } from "../timing.ts";

/** Shorter than a leader that was succeeded gets to answer: a request whose leader never comes is refused in time. */
const waitMsMax = 50;
/** More are refused, as they would be without this. */
const waitingMax = 4096;

interface Waiting {
  readonly isOver: () => boolean;
  readonly go: () => void;
}

export class Arrivals {
  private readonly timing: Timing;
  private readonly waiting = new Set<Waiting>();

  constructor(timing: Timing) {
    this.timing = timing;
  }

  /** Requests that wait. */
  get size(): number {
    return this.waiting.size;
  }

  /**
   * Calls `go` once: as soon as `isOver` holds, which is asked when something may have arrived, or after 50 ms.
   * The returned function prevents it.
   */
  wait(isOver: () => boolean, go: () => void): () => void {
    if (this.waiting.size >= waitingMax) {
      go();
      return () => {};
    }
    const stopTimer = this.timing.after(waitMsMax, () => this.end(waiting));
    const waiting: Waiting = {
      isOver,
      go: () => {
        stopTimer();
        go();
      },
    };
    this.waiting.add(waiting);
    return () => {
      stopTimer();
      this.waiting.delete(waiting);
    };
  }

  /** A shard opened here, took keys in, or placement has another map. */
  look(): void {
    for (const each of [...this.waiting]) if (each.isOver()) this.end(each);
  }

  /** Nobody waits any more. */
  close(): void {
    for (const each of [...this.waiting]) this.end(each);
  }

  private end(waiting: Waiting): void {
    if (this.waiting.delete(waiting)) waiting.go();
  }
}
