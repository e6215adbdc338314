/** Closed loops of callers, and waiting for what user code tells. */
import { now } from "./clock.ts";

/** What travels with each start, step and signal: 100 bytes. */
export const payload = "x".repeat(100);

let made = 0;

/** A name that no run of this machine had before. */
export const freshName = (prefix: string): string =>
  `${prefix}-${process.pid.toString(36)}${Date.now().toString(36)}-${(made++).toString(36)}`;

export const pause = (ms: number): Promise<void> => new Promise((resolve) => setTimeout(resolve, Math.max(0, ms)));

export interface LoopOptions {
  /** Calls that are open at any time. */
  readonly concurrency: number;
  /** Calls in all; left out: as many as the time allows. */
  readonly count?: number;
  /** No call begins later than this; left out: no limit. */
  readonly seconds?: number;
}

/** Calls `call` again and again, each caller when its last call is done. Rejects with the first error. */
export async function closedLoop(options: LoopOptions, call: (i: number) => Promise<unknown>): Promise<{ done: number; ms: number }> {
  const { concurrency, count = Number.POSITIVE_INFINITY, seconds = Number.POSITIVE_INFINITY } = options;
  const begun = now();
  const end = begun + seconds * 1000;
  let started = 0;
  let done = 0;
  const caller = async (): Promise<void> => {
    while (started < count && now() < end) {
      await call(started++);
      done++;
    }
  };
  await Promise.all(Array.from({ length: concurrency }, caller));
  return { done, ms: now() - begun };
}

/** Resolves when `holds` does. Rejects with what it waited for when that takes too long. */
export async function waitUntil(holds: () => boolean, options: { withinMs?: number; everyMs?: number; what: () => string }): Promise<void> {
  const { withinMs = 120_000, everyMs = 2, what } = options;
  const end = now() + withinMs;
  while (!holds()) {
    if (now() > end) throw new Error(`Waited ${withinMs} ms for ${what()}`);
    await pause(everyMs);
  }
}
