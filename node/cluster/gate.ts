/**
 * Requests that wait for a shard to have a leader that takes them.
 *
 * While the shard refuses, one request at a time finds out whether it still does, every 5–20 ms;
 * each that is taken brings some of the others, so they follow in growing numbers. So ten thousand
 * waiting clients cost a shard without a leader no more than one does.
 */
import type { Timing } from "../timing.ts";

export interface Waiter {
  /** Monotonic milliseconds after which it no longer waits. */
  readonly deadlineMs: number;
  /** Try again. */
  retry(): void;
  /** Its time is over. */
  expire(): void;
}

const delayMsMin = 5;
const delayMsMax = 20;
const batchMax = 4096;
/** Each request that is taken lets so many others try. */
const followersMax = 4;
/** Refusals further apart than this belong to different outages. */
const streakGapMs = 1000;

export class Gate {
  private readonly timing: Timing;
  private waiting: Waiter[] = [];
  private stop: (() => void) | undefined;
  private delayMs = delayMsMin;
  private batch = 1;
  private isRefused = false;
  private lastMs = 0;
  /** Monotonic milliseconds of the first refusal of this outage. */
  sinceMs = 0;

  constructor(timing: Timing) {
    this.timing = timing;
  }

  get size(): number {
    return this.waiting.length;
  }

  /** The shard refused this one. */
  add(waiter: Waiter): void {
    const nowMs = this.timing.monotonicMs();
    if (this.lastMs === 0 || nowMs - this.lastMs > streakGapMs) {
      this.sinceMs = nowMs;
      this.delayMs = delayMsMin;
    }
    this.lastMs = nowMs;
    this.isRefused = true;
    this.waiting.push(waiter);
    this.arm();
  }

  /** Nobody waits for this one any more. */
  remove(waiter: Waiter): void {
    const at = this.waiting.indexOf(waiter);
    if (at >= 0) this.waiting.splice(at, 1);
  }

  /** Something changed that may have given the shard a leader: all try at once. */
  open(): void {
    this.rest();
    const { waiting } = this;
    this.waiting = [];
    for (const waiter of waiting) waiter.retry();
  }

  /** The shard took one that had waited: others follow without a pause. */
  taken(): void {
    this.rest();
    for (const waiter of this.waiting.splice(0, followersMax)) waiter.retry();
    if (this.waiting.length > 0) this.arm();
  }

  /** Nothing is tried any more. */
  close(): void {
    this.rest();
    const { waiting } = this;
    this.waiting = [];
    for (const waiter of waiting) waiter.expire();
  }

  /** Refusals so far say nothing any more. */
  private rest(): void {
    this.stop?.();
    this.stop = undefined;
    this.isRefused = false;
    this.delayMs = delayMsMin;
  }

  private arm(): void {
    this.stop ??= this.timing.after(this.delayMs, () => this.fire());
  }

  private fire(): void {
    this.stop = undefined;
    const nowMs = this.timing.monotonicMs();
    const expired = this.waiting.filter((each) => each.deadlineMs <= nowMs);
    if (expired.length > 0) this.waiting = this.waiting.filter((each) => each.deadlineMs > nowMs);
    this.batch = this.isRefused ? 1 : Math.min(this.batch * 4, batchMax);
    this.delayMs = this.isRefused ? Math.min(this.delayMs * 2, delayMsMax) : delayMsMin;
    this.isRefused = false;
    const tried = this.waiting.splice(0, this.batch);
    for (const waiter of expired) waiter.expire();
    for (const waiter of tried) waiter.retry();
    if (this.waiting.length > 0) this.arm();
  }
}
