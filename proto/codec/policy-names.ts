/** Names of policies, as people and programs write and read them. */
import { OverlapPolicy, ParentClosePolicy, Reducer } from "../gen/codec.ts";

/** By name: they are written more often than read. */
export const overlapPolicies = {
  skip: OverlapPolicy.skip,
  "buffer-one": OverlapPolicy.bufferOne,
  "buffer-all": OverlapPolicy.bufferAll,
  "cancel-other": OverlapPolicy.cancelOther,
  "terminate-other": OverlapPolicy.terminateOther,
  "allow-all": OverlapPolicy.allowAll,
} as const;
export type OverlapName = keyof typeof overlapPolicies;

export const closePolicyNames = {
  [ParentClosePolicy.terminate]: "terminate",
  [ParentClosePolicy.cancel]: "cancel",
  [ParentClosePolicy.abandon]: "abandon",
} as const;

/** What a channel makes of its messages; "none" keeps each. */
export const reducers = {
  none: Reducer.none,
  count: Reducer.count,
  sum: Reducer.sum,
  min: Reducer.min,
  max: Reducer.max,
  union: Reducer.union,
  last: Reducer.last,
} as const;
export type ReducerName = keyof typeof reducers;

/** One that only a later version knows goes by its number. */
export const reducerName = (reducer: number): string =>
  Object.entries(reducers).find(([, number]) => number === reducer)?.[0] ?? `reducer ${reducer}`;
