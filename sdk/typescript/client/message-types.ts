/** Signals, queries and methods by name, or as a workflow defines them with their types. */

/** What `defineSignal` of the runtime makes; so the others. */
export interface SignalType<T> {
  readonly kind: "signal";
  readonly name: string;
  readonly types?: (payload: T) => T;
}
export interface QueryType<I, O> {
  readonly kind: "query";
  readonly name: string;
  readonly types?: (input: I) => O;
}
export interface MethodType<I, O> {
  readonly kind: "method";
  readonly name: string;
  readonly types?: (input: I) => O;
}

export const nameOf = (named: string | { readonly name: string }): string => (typeof named === "string" ? named : named.name);
