/** What reaches a run from outside: signals change it, queries read it, methods do both and answer. */
import { checkDuration, checkName } from "./checks.ts";
import { engine } from "./engine.ts";
import { type MethodType, nameOf, type QueryType, type SignalType } from "./message-types.ts";

/**
 * Waits for the next signal of this name. Signals are buffered in the order of their arrival, so
 * none is lost while the workflow does something else; each is taken once.
 *
 * With `timeoutMs`, rejects with `TimeoutError` when none came in time. Use it rather than a
 * race against `sleep`: the loser of a race stays in line and would take the next signal.
 */
export function signal<T = unknown>(named: string | SignalType<T>, options: { readonly timeoutMs?: number } = {}): Promise<T> {
  const name = nameOf(named);
  checkName("Signal", name);
  const timeoutMs = options.timeoutMs === undefined ? undefined : checkDuration("timeoutMs", options.timeoutMs);
  return engine("signal()").signal(name, timeoutMs) as Promise<T>;
}

/**
 * Declares a query. `answer` runs on the run's live state whenever someone asks and returns at
 * once, by value: it can't await, call activities or draw random numbers. It must not change
 * state either. Declaring a name again replaces its answer.
 */
export function query<I = unknown, O = unknown>(named: string | QueryType<I, O>, answer: (input: I) => O): void {
  const name = nameOf(named);
  checkName("Query", name);
  if (typeof answer !== "function") throw new TypeError(`Query "${name}" needs a function that answers it`);
  engine("query()").query(name, answer as (input: unknown) => unknown);
}

/** How a method is declared. */
export interface MethodOptions<I> {
  /**
   * Looks at the input, and at the run's state, before the handler begins: what it throws is the
   * answer, and nothing else happens. It only reads, as a query does.
   */
  readonly validate?: (input: I) => void;
}

/**
 * Declares a method: what others call and get an answer from. `handler` is part of the workflow,
 * so it may await activities, timers, signals and other runs; it runs beside the workflow's own code
 * and beside other calls, each from one await to the next. What it returns, or throws, is the answer.
 *
 * Each call and each answer is an event of the run, and the caller is answered once that is durable.
 * Calls that come before the declaration wait for it, in their order. When the run ends, calls
 * without an answer fail with `RUN_CLOSED`: await your handlers before you return. Declaring a name
 * again replaces its handler for the calls that follow.
 */
export function method<I = unknown, O = unknown>(
  named: string | MethodType<I, O>,
  handler: (input: I) => O | Promise<O>,
  options: MethodOptions<I> = {},
): void {
  const name = nameOf(named);
  checkName("Method", name);
  if (typeof handler !== "function") throw new TypeError(`Method "${name}" needs a function that handles it`);
  const { validate } = options;
  if (validate !== undefined && typeof validate !== "function") throw new TypeError(`The validator of method "${name}" must be a function`);
  engine("method()").method(name, handler as (input: unknown) => unknown, validate as ((input: unknown) => unknown) | undefined);
}
