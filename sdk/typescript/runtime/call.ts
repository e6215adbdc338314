/** Calls of other runs' methods. */
import { checkAddress, checkName, describe } from "./checks.ts";
import { engine } from "./engine.ts";
import { type MethodType, nameOf } from "./message-types.ts";

export interface CallOptions {
  /**
   * What becomes of the call when the code that waits for it is cancelled, or its run ends: the other run
   * goes on with it ("abandon", so where left out), or the code that works on it is cancelled too ("propagate").
   */
  readonly cancellation?: "abandon" | "propagate";
}

/**
 * Calls a method of another run and waits for its answer, however long that takes. The call is made
 * once, whatever fails on the way; calls of one run to another are taken in the order in which
 * they were made. The other run need not have declared the method yet.
 *
 * Rejects with `RunError`. Its `type` is that of the method's own error; `RunNotFoundError` where there
 * is no such run, `RunClosedError` when it has ended or ends before it answers, `MethodNotFoundError`
 * when it ended without declaring the method. **A call that closes a cycle** of runs that wait for each
 * other, of any length, is not made and rejects with type `CallCycleError`, whose message names the
 * path: `shop:a → shop:b → shop:a`. Rejects with `CancelledError` when the own run is cancelled.
 */
export function callWorkflow<O = unknown>(address: string, method: string, input?: unknown, options?: CallOptions): Promise<O>;
export function callWorkflow<I, O>(address: string, type: MethodType<I, O>, input: I, options?: CallOptions): Promise<O>;
export function callWorkflow(
  address: string,
  named: string | { readonly name: string },
  input?: unknown,
  options: CallOptions = {},
): Promise<unknown> {
  const method = nameOf(named);
  checkAddress(address);
  checkName("Method", method);
  const { cancellation = "abandon" } = options;
  if (cancellation !== "abandon" && cancellation !== "propagate") {
    throw new TypeError(`The cancellation of a call must be "abandon" or "propagate", got ${describe(cancellation)}`);
  }
  return engine("callWorkflow()").callWorkflow(address, method, input, cancellation === "propagate");
}

/** The name that the call has in the other languages. */
export const call_workflow: typeof callWorkflow = callWorkflow;
