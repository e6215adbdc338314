/** What goes wrong with one try, and what callers get of it when no further try is made. */
import { HopError, type Reason } from "#core/base";

/** What no second try changes. Somebody has to do something, which the message says. */
export type Problem = "credentials" | "expired" | "forbidden" | "clock" | "no-bucket" | "region" | "unsupported" | "rejected";

const reasonOf: Readonly<Record<Problem, Reason>> = {
  credentials: "UNAUTHENTICATED",
  expired: "UNAUTHENTICATED",
  forbidden: "UNAUTHENTICATED",
  clock: "UNAUTHENTICATED",
  "no-bucket": "BAD_REQUEST",
  region: "BAD_REQUEST",
  unsupported: "BAD_REQUEST",
  rejected: "BAD_REQUEST",
};

/** Object storage says no, and will say so again. */
export class ObjectRefusal extends HopError {
  override name = "ObjectRefusal";
  readonly problem: Problem;

  constructor(problem: Problem, message: string, options: { cause?: unknown } = {}) {
    super(reasonOf[problem], message, options);
    this.problem = problem;
  }
}

/**
 * `unavailable`: no answer, or one that says "not now". `damaged`: bytes that are not the ones that
 * were sent. `replaced`: what was being read is not there any more. `full`: no space.
 */
export type AttemptKind = "unavailable" | "damaged" | "replaced" | "full" | Problem;

/** One failed try, before anybody knows whether there is another one. */
export class AttemptError extends Error {
  override name = "AttemptError";
  readonly kind: AttemptKind;
  /** What to do about it. */
  readonly advice: string | undefined;

  constructor(kind: AttemptKind, message: string, options: { cause?: unknown; advice?: string } = {}) {
    super(message, options.cause === undefined ? undefined : { cause: options.cause });
    this.kind = kind;
    this.advice = options.advice;
  }

  get isTransient(): boolean {
    return this.kind === "unavailable" || this.kind === "damaged";
  }

  /** As callers get it: `attempt` is what could not be done, after `tries` tries. */
  toHopError(attempt: string, tries: number): HopError {
    const times = this.isTransient && tries > 1 ? ` (tried ${tries} times)` : "";
    const message = `Cannot ${attempt}: ${this.message}${times}${this.advice === undefined ? "" : `; ${this.advice}`}`;
    const options = { cause: this.cause ?? this };
    switch (this.kind) {
      case "unavailable":
      case "replaced":
        return new HopError("STORE_UNAVAILABLE", message, options);
      case "damaged":
        return new HopError("HASH_MISMATCH", message, options);
      case "full":
        return new HopError("NO_SPACE", message, options);
      default:
        return new ObjectRefusal(this.kind, message, options);
    }
  }
}
