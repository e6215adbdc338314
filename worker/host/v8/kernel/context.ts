/**
 * The one value that promise reactions carry along, by two builtins of V8: the scope that code runs
 * in, over any number of awaits and with any number of branches at once.
 */
import type { Scope } from "./scope.ts";

export interface Natives {
  getContinuationPreservedEmbedderData(): unknown;
  setContinuationPreservedEmbedderData(value: unknown): void;
}

let get: () => unknown;
let set: (value: unknown) => void;

export function bindContext(natives: Natives): void {
  get = natives.getContinuationPreservedEmbedderData;
  set = natives.setContinuationPreservedEmbedderData;
}

/** To be called before each delivery: what ran before must not leak into it. */
export function resetContext(): void {
  set(undefined);
}

/** Undefined = the run's own. */
export const carriedScope = () => get() as Scope | undefined;

/** Runs `work`, and all that continues it, in the scope. */
export function within<T>(scope: Scope, work: () => T): T {
  const before = get();
  set(scope);
  try {
    return work();
  } finally {
    set(before);
  }
}
