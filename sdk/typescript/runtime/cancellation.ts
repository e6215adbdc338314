/**
 * Cancellation reaches a workflow at its awaits: every activity, timer and signal that it waits
 * for rejects with `CancelledError`. Whatever it starts after that works normally, so cleanup in
 * `finally` can use activities.
 */
import { engine } from "./engine.ts";

/**
 * Runs `work` so that a cancellation does not interrupt it: what `work` waits for goes on. If
 * nothing else was being waited for, the cancellation is delivered at the first operation after
 * the shield.
 *
 * ```ts
 * await shield(async () => {
 *   await activity("debit", transfer);
 *   await activity("credit", transfer); // never left half done by a cancellation
 * });
 * ```
 */
export function shield<T>(work: () => T | Promise<T>): Promise<T> {
  if (typeof work !== "function") throw new TypeError("shield() takes a function");
  return engine("shield()").shield(work);
}
