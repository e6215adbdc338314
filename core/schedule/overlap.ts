/** What an instant comes to while earlier runs of its schedule are live. */
import { limits } from "#core/base";
import { OverlapPolicy } from "#proto";

/** Runs of the schedule that are live, and instants that wait for their end. */
export interface Ahead {
  readonly live: number;
  readonly waiting: number;
}

/** `replace`: waits, in the place of all that wait. */
export type Overlap = "start" | "wait" | "replace" | "skip";

export function decideOverlap(policy: number, { live, waiting }: Ahead): Overlap {
  if (policy === OverlapPolicy.allowAll || (live === 0 && waiting === 0)) return "start";
  switch (policy) {
    case OverlapPolicy.bufferOne:
      return waiting === 0 ? "wait" : "skip";
    case OverlapPolicy.bufferAll:
      return waiting < limits.scheduleWaitingMax ? "wait" : "skip";
    case OverlapPolicy.cancelOther:
    case OverlapPolicy.terminateOther:
      return "replace";
    default:
      return "skip";
  }
}
