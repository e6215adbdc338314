/** A broken invariant: which one, and what was seen. */
export class Violation extends Error {
  override name = "Violation";
  readonly invariant: string;

  constructor(invariant: string, message: string) {
    super(`${invariant}: ${message}`);
    this.invariant = invariant;
  }
}

/** Throws a `Violation` of `invariant` unless `claim` holds. */
export function claim(invariant: string, holds: boolean, message: () => string): asserts holds {
  if (!holds) throw new Violation(invariant, message());
}
