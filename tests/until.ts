/** Waiting in tests: for a condition, never for a time. */

export interface Patience {
  /** Gives up after this long. */
  readonly withinMs?: number;
  /** Said when it gives up: what was waited for, and what was seen instead. */
  readonly what?: string | (() => string);
}

/**
 * The first value of `read` that is neither undefined nor false; asks about every 5 ms.
 *
 * Throws what `what` says when `withinMs` (20 s) has passed.
 */
export async function until<T>(
  read: () => T | Promise<T>,
  { withinMs = 20_000, what = "a condition" }: Patience = {},
): Promise<Exclude<T, undefined | false>> {
  const deadline = performance.now() + withinMs;
  for (;;) {
    const value = await read();
    if (value !== undefined && value !== false) return value as Exclude<T, undefined | false>;
    if (performance.now() > deadline) throw new Error(`Waited ${withinMs} ms in vain for ${typeof what === "string" ? what : what()}`);
    await Bun.sleep(5);
  }
}

/** Throws where `holds` stops being true within `forMs`: for what must never happen. */
export async function stays(
  holds: () => boolean | Promise<boolean>,
  { forMs, what }: { readonly forMs: number; readonly what: string },
): Promise<void> {
  const end = performance.now() + forMs;
  while (performance.now() < end) {
    if (!(await holds())) throw new Error(`It did not stay so for ${forMs} ms: ${what}`);
    await Bun.sleep(20);
  }
}

/** The rhythm of faults and load, never the wait for a result. */
export const every = (ms: number): Promise<void> => Bun.sleep(ms);
