/** Time that goes on when nothing else can: object storage and its users run in it without waiting. */
import { drainMicrotasks } from "bun:jsc";
import { Prng, TimerHeap } from "#core/base";
import type { ObjectSchedule } from "./memory-object-store.ts";

interface Due {
  readonly atMs: number;
  readonly run: () => void;
}

export class VirtualTime implements ObjectSchedule {
  private readonly heap = new TimerHeap<Due>();
  private readonly prng: Prng;
  private atMs = 0;

  constructor(seed = 1) {
    this.prng = new Prng(seed);
  }

  nowMs(): number {
    return this.atMs;
  }

  latencyMs(): number {
    return 1 + this.prng.below(20);
  }

  fraction(): number {
    return this.prng.fraction();
  }

  after(ms: number, run: () => void): () => void {
    let isOff = false;
    this.heap.push({ atMs: this.atMs + ms, run: () => isOff || run() });
    return () => {
      isOff = true;
    };
  }

  /** What `work` comes to; time goes on until it is there. */
  finish<T>(work: Promise<T>): T {
    let end: { readonly value: T } | { readonly error: unknown } | undefined;
    work.then(
      (value) => {
        end = { value };
      },
      (error: unknown) => {
        end = { error };
      },
    );
    for (;;) {
      drainMicrotasks();
      if (end !== undefined) break;
      this.step();
    }
    if ("error" in end) throw end.error;
    return end.value;
  }

  /** Lets pass so long whatever is due. */
  idle(ms: number): void {
    const end = this.atMs + ms;
    for (let next = this.heap.peek(); next !== undefined && next.atMs <= end; next = this.heap.peek()) {
      this.step();
      drainMicrotasks();
    }
    this.atMs = end;
  }

  private step(): void {
    const due = this.heap.pop();
    if (due === undefined) throw new Error("Nothing is due, and nothing has ended");
    this.atMs = Math.max(this.atMs, due.atMs);
    due.run();
  }
}
