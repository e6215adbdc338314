/** What reaches a run from outside: signals change it, queries read it. */
import { checkDuration, checkName } from "./checks.ts";
import { engine } from "./engine.ts";

/**
 * Waits for the next signal of this name. Signals are buffered in the order of their arrival, so
 * none is lost while the workflow does something else; each is taken once.
 *
 * With `timeoutMs`, rejects with `TimeoutError` when none came in time. Use it rather than a
 * race against `sleep`: the loser of a race stays in line and would take the next signal.
 */
export function signal<T = unknown>(name: string, options: { readonly timeoutMs?: number } = {}): Promise<T> {
  checkName("Signal", name);
  const timeoutMs = options.timeoutMs === undefined ? undefined : checkDuration("timeoutMs", options.timeoutMs);
  return engine("signal()").signal(name, timeoutMs) as Promise<T>;
}

/**
 * Declares a query. `answer` runs on the run's live state whenever someone asks and returns at
 * once, by value: it can't await, call activities or draw random numbers. It must not change
 * state either. Declaring a name again replaces its answer.
 */
export function query<I = unknown, O = unknown>(name: string, answer: (input: I) => O): void {
  checkName("Query", name);
  if (typeof answer !== "function") throw new TypeError(`Query "${name}" needs a function that answers it`);
  engine("query()").query(name, answer as (input: unknown) => unknown);
}
