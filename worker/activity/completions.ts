/**
 * Results whose fate is not known: sent on a stream that may have been lost with them.
 *
 * A server that died or was cut off before it recorded a result would have the activity executed
 * again. So results are kept for a while after they were sent; on a new stream they are sent
 * once more, and another delivery of the same attempt is answered with them.
 */
import type { TaskDoneInit, TaskToken, TaskTokenInit } from "#proto";

/** Names one attempt, whatever its delivery. */
export function attemptKey(token: TaskTokenInit): string {
  return `${token.run}/${token.generation}.${token.op}.${token.attempt}`;
}

interface Kept {
  readonly key: string;
  done: TaskDoneInit;
  /** Undefined: there was no stream to send it on. */
  sentMs: number | undefined;
  /** The way by which it was sent last. */
  road: object | undefined;
  readonly bytes: number;
}

export interface CompletionBounds {
  readonly keptMsMax: number;
  readonly countMax: number;
  readonly bytesMax: number;
}

/** A commit takes well below these 15 s; beyond the other bounds the oldest are forgotten first. */
export const completionBounds: CompletionBounds = { keptMsMax: 15_000, countMax: 4096, bytesMax: 64 << 20 };

export class Completions {
  private readonly bounds: CompletionBounds;
  private readonly kept = new Map<string, Kept>();
  /** The same in the order of their coming, from `head` on, with some that are gone. A map would step over all it ever deleted. */
  private order: Kept[] = [];
  private head = 0;
  private bytes = 0;

  constructor(bounds: CompletionBounds = completionBounds) {
    this.bounds = bounds;
  }

  add(done: TaskDoneInit, sent: { readonly atMs: number; readonly road: object } | undefined, nowMs: number): void {
    const key = attemptKey(done.token ?? {});
    this.remove(key);
    const bytes = 200 + (done.result?.data?.length ?? 0);
    const kept: Kept = { key, done, sentMs: sent?.atMs, road: sent?.road, bytes };
    this.kept.set(key, kept);
    this.order.push(kept);
    this.bytes += bytes;
    this.forget(nowMs);
  }

  /** The result of an attempt that is delivered again, now under the new token. */
  again(token: TaskToken, nowMs: number): TaskDoneInit | undefined {
    this.forget(nowMs);
    const kept = this.kept.get(attemptKey(token));
    if (kept === undefined) return undefined;
    kept.done = { ...kept.done, token };
    return kept.done;
  }

  tokens(nowMs: number): TaskTokenInit[] {
    this.forget(nowMs);
    return [...this.kept.values()].map((kept) => kept.done.token ?? {});
  }

  /** What was sent by one of `roads`, or could not be sent at all. */
  sentBy(roads: readonly object[], nowMs: number): TaskDoneInit[] {
    this.forget(nowMs);
    return [...this.kept.values()].filter(({ road }) => road === undefined || roads.includes(road)).map((kept) => kept.done);
  }

  /** All that is kept. */
  all(nowMs: number): TaskDoneInit[] {
    this.forget(nowMs);
    return [...this.kept.values()].map((kept) => kept.done);
  }

  get hasUnsent(): boolean {
    for (const kept of this.kept.values()) if (kept.sentMs === undefined) return true;
    return false;
  }

  /** What was never sent stays, as it can't be many: no task comes without a stream. */
  private forget(nowMs: number): void {
    for (let at = this.head; at < this.order.length; at++) {
      const one = this.order[at] as Kept;
      if (this.kept.get(one.key) === one) {
        const isOver = this.kept.size > this.bounds.countMax || this.bytes > this.bounds.bytesMax;
        if (one.sentMs === undefined) continue;
        if (!isOver && nowMs - one.sentMs <= this.bounds.keptMsMax) break;
        this.remove(one.key);
      }
      if (at === this.head) this.head++;
    }
    if (this.head < 1024 || this.head * 2 < this.order.length) return;
    this.order = this.order.slice(this.head);
    this.head = 0;
  }

  private remove(key: string): void {
    this.bytes -= this.kept.get(key)?.bytes ?? 0;
    this.kept.delete(key);
  }
}
