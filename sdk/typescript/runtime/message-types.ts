/**
 * Signals, queries and methods as values: their names and their types in one place, for the workflow
 * that declares them and for whoever reaches it, in a client or in another workflow.
 *
 * ```ts
 * export const withdraw = defineMethod<number, { cents: number }>("withdraw");
 * // in the workflow
 * method(withdraw, (amount) => ({ cents: (cents -= amount) }));
 * // in a client, in another workflow
 * await run.call(withdraw, 250);
 * await callWorkflow("default:account-7", withdraw, 250);
 * ```
 */
import { checkName } from "./checks.ts";

/** A signal that carries a `T`. */
export interface SignalType<T> {
  readonly kind: "signal";
  readonly name: string;
  /** Never set: it carries the type. */
  readonly types?: (payload: T) => T;
}

/** A query that takes an `I` and is answered with an `O`. */
export interface QueryType<I, O> {
  readonly kind: "query";
  readonly name: string;
  readonly types?: (input: I) => O;
}

/** A method that takes an `I` and answers with an `O`. */
export interface MethodType<I, O> {
  readonly kind: "method";
  readonly name: string;
  readonly types?: (input: I) => O;
}

export function defineSignal<T = void>(name: string): SignalType<T> {
  checkName("Signal", name);
  return Object.freeze({ kind: "signal", name });
}

export function defineQuery<O, I = void>(name: string): QueryType<I, O> {
  checkName("Query", name);
  return Object.freeze({ kind: "query", name });
}

export function defineMethod<I = void, O = void>(name: string): MethodType<I, O> {
  checkName("Method", name);
  return Object.freeze({ kind: "method", name });
}

/** The name that was given, alone or with its types. */
export const nameOf = (named: string | { readonly name: string }): string => (typeof named === "object" ? named.name : named);
