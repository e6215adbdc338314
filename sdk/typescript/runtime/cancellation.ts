/**
 * Cancellation reaches a workflow at its awaits: every activity, timer and signal that it waits
 * for rejects with `CancelledError`. Whatever it starts after that works normally, so cleanup in
 * `finally` can use activities.
 */
import { checkText } from "./checks.ts";
import { type EngineScope, engine } from "./engine.ts";

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

/**
 * A part of a workflow that can be cancelled by itself. What is waited for within `run`, and in scopes
 * made there, rejects with `CancelledError` when the scope, or one around it, is cancelled; children
 * spawned there are asked to cancel as they were spawned to be. What is shielded goes on.
 *
 * ```ts
 * const quotes = carriers.map((carrier) => {
 *   const scope = new CancellationScope();
 *   return { scope, price: scope.run(() => activity<number>("ask", carrier)) };
 * });
 * const first = await Promise.race(quotes.map((quote) => quote.price));
 * for (const { scope, price } of quotes) {
 *   price.catch(() => {}); // those that lose reject with CancelledError
 *   scope.cancel("another one was faster");
 * }
 * ```
 *
 * A cancellation is delivered once: what the scope starts after it, in a `finally` say, works normally.
 */
export class CancellationScope {
  readonly #scope: EngineScope;

  /** A scope within the one that this is called in. */
  constructor() {
    this.#scope = engine("CancellationScope").openScope("CancellationScope");
  }

  /** Runs `work` in the scope, and gives what it results in. */
  run<T>(work: () => T | Promise<T>): Promise<T> {
    if (typeof work !== "function") throw new TypeError("CancellationScope.run() takes a function");
    return this.#scope.run(work);
  }

  /** Cancels what is waited for in the scope; where nothing is, its next operation. A second time does nothing. */
  cancel(reason = ""): void {
    checkText("Reason of a cancellation", reason);
    this.#scope.cancel(reason);
  }

  /** Whether `cancel` was called, or a scope around it was cancelled. */
  get cancelled(): boolean {
    return this.#scope.isCancelled();
  }
}
