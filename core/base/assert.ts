/** Asserts stay on in production: a shard that would go on with a broken state stops instead. */
export class InvariantError extends Error {
  override name = "InvariantError";
}

/** Throws `InvariantError` unless `claim` holds. */
export function assert(claim: boolean, what: string): asserts claim {
  if (!claim) throw new InvariantError(what);
}

/** Closes a switch: a case left out does not compile. */
export function unreachable(value: never): never {
  throw new InvariantError(`Unreachable: ${JSON.stringify(value)}`);
}

/** `value`, which must be there. */
export function present<T>(value: T | undefined, what: string): T {
  if (value === undefined) throw new InvariantError(`Missing: ${what}`);
  return value;
}
