/** A broken invariant: which one, and what was seen. */
export class Violation extends Error {
  override name = "Violation";
  readonly invariant: string;

  constructor(invariant: string, message: string) {
    super(`${invariant}: ${message}`);
    this.invariant = invariant;
    remember(this);
  }
}

/** Product code catches what is thrown at it, and a promise keeps it: the first one is remembered until it is asked for. */
let raised: Violation | undefined;

export function takeRaised(): Violation | undefined {
  const first = raised;
  raised = undefined;
  return first;
}

/** Throws a `Violation` of `invariant` unless `claim` holds. */
export function claim(invariant: string, holds: boolean, message: () => string): asserts holds {
  if (!holds) throw new Violation(invariant, message());
}

function remember(violation: Violation): void {
  raised ??= violation;
}
