/**
 * Scopes of cancellation: what code waits for belongs to the scope that it runs in, and a scope that
 * is cancelled reaches all of it, through inner scopes, but for what a shield holds.
 *
 * A cancellation is delivered once: where nothing is being waited for, at the next operation.
 */
import { CancelledError } from "#sdk/runtime";
import { carriedScope } from "./context.ts";
import type { Run } from "./run.ts";

export class Scope {
  readonly outer: Scope | undefined;
  /** What cancels outer scopes stops here. */
  readonly isShield: boolean;
  isCancelled = false;
  reason = "";
  /** A cancellation found nothing to interrupt and waits for the next operation. */
  waits = false;

  /** Number of the method call that it is of; 0 = that of the scope around it. */
  readonly call: number;

  constructor(outer: Scope | undefined, isShield = false, call = 0) {
    this.outer = outer;
    this.isShield = isShield;
    this.call = call;
  }
}

export const currentScope = (run: Run): Scope => carriedScope() ?? run.scope;

/** The method call that the code works on; 0 = none, it is the workflow's own. */
export function currentCall(run: Run): number {
  for (let at: Scope | undefined = currentScope(run); at !== undefined; at = at.outer) if (at.call !== 0) return at.call;
  return 0;
}

/** Whether a cancellation of `scope` is one of what runs in `inner`. */
export function reaches(scope: Scope, inner: Scope): boolean {
  for (let at: Scope | undefined = inner; at !== undefined; at = at.outer) {
    if (at === scope) return true;
    if (at.isShield) return false;
  }
  return false;
}

/** The cancellation that waits for the current operation, which is delivered by this. */
export function takeCancellation(run: Run): CancelledError | undefined {
  for (let at: Scope | undefined = currentScope(run); at !== undefined; at = at.outer) {
    if (at.waits) {
      at.waits = false;
      return new CancelledError(at.reason);
    }
    if (at.isShield) return undefined;
  }
  return undefined;
}

/** The scope whose cancellation is one of this: itself, or one around it, as far as no shield is between. */
export function cancelledBy(scope: Scope): Scope | undefined {
  for (let at: Scope | undefined = scope; at !== undefined; at = at.outer) {
    if (at.isCancelled) return at;
    if (at.isShield) return undefined;
  }
  return undefined;
}
