/** Names of policies, as people and programs write and read them. */
import { OverlapPolicy, ParentClosePolicy } from "../gen/codec.ts";

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
