/**
 * The one value that promise reactions carry along, by two builtins of V8. It tells whether code
 * runs inside `shield`, over any number of awaits and with any number of branches at once.
 */
export interface Natives {
  getContinuationPreservedEmbedderData(): unknown;
  setContinuationPreservedEmbedderData(value: unknown): void;
}

const shielded = "shield";
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

export function isShielded(): boolean {
  return get() === shielded;
}

/** Runs `work`, and all that continues it, shielded. */
export function withShield<T>(work: () => T): T {
  const before = get();
  set(shielded);
  try {
    return work();
  } finally {
    set(before);
  }
}
