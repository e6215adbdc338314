/** Cancellation of a scope, the run's own among them. */
import { CancelledError } from "#sdk/runtime";
import type { Engine } from "#sdk/runtime/engine";
import { record } from "../protocol.ts";
import { askChildren } from "./children.ts";
import { within } from "./context.ts";
import { actingRun, leaveQueue } from "./operations.ts";
import type { Run } from "./run.ts";
import { cancelledBy, currentScope, reaches, Scope } from "./scope.ts";

export const scopeOperations: Pick<Engine, "openScope" | "shield"> = {
  openScope(what) {
    const run = actingRun(what);
    const scope = new Scope(currentScope(run));
    return {
      run: async (work) => within(scope, work),
      cancel: (reason) => cancelScope(actingRun("CancellationScope.cancel()"), scope, reason),
      isCancelled: () => cancelledBy(scope) !== undefined,
    };
  },
  shield: async (work) => {
    const run = actingRun("shield()");
    return within(new Scope(currentScope(run), true), work);
  },
};

interface Interrupted {
  readonly order: number;
  readonly leave: () => void;
  readonly reject: (makeError: () => Error) => void;
}

/** Interrupts all that is waited for in the scope, in the order of its beginning. */
export function cancelScope(run: Run, scope: Scope, reason: string): void {
  if (scope.isCancelled || run.ended) return;
  scope.isCancelled = true;
  scope.reason = reason;
  askChildren(run, scope, reason);
  const interrupted: Interrupted[] = [];
  for (const pending of run.pending.values()) {
    if (pending.kind === "callback" || pending.kind === "notice" || !reaches(scope, pending.scope)) continue;
    const leave = () => {
      run.pending.delete(pending.op);
      if (pending.kind === "signal") leaveQueue(run, pending);
      run.emit(record.cancelOp, pending.op);
    };
    interrupted.push({ order: pending.op, leave, reject: pending.reject });
  }
  let completing = 0;
  for (const wait of run.childWaits) {
    if (!reaches(scope, wait.scope)) continue;
    if (wait.child.cancellation === "wait-completed" && wait.child.isAskedToCancel) {
      // The child's end is what it is told.
      completing++;
      continue;
    }
    interrupted.push({ order: wait.order, leave: () => void run.childWaits.delete(wait), reject: wait.reject });
  }
  interrupted.sort((a, b) => a.order - b.order);
  scope.waits = interrupted.length === 0 && completing === 0;
  for (const each of interrupted) each.leave();
  for (const each of interrupted) each.reject(() => new CancelledError(reason));
}
