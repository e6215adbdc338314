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

  constructor(outer: Scope | undefined, isShield = false) {
    this.outer = outer;
    this.isShield = isShield;
  }
}

export const currentScope = (run: Run): Scope => carriedScope() ?? run.scope;

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

/** Whether it was cancelled, or a scope around it, as far as no shield is between. */
export function isCancelled(scope: Scope): boolean {
  for (let at: Scope | undefined = scope; at !== undefined; at = at.outer) {
    if (at.isCancelled) return true;
    if (at.isShield) return false;
  }
  return false;
}
