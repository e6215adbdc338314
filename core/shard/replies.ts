/** Answers to clients: each waits for the commit of what it rests on. */
import { limits, now, type Rejection, type Reply, type RequestId } from "#core/base";
import type { ShardContext } from "./context.ts";
import type { LiveRun } from "./live-run.ts";

export function respond(ctx: ShardContext, request: RequestId, live: LiveRun, reply: Reply): void {
  ctx.emit({ kind: "reply", request, reply, after: ctx.committed(live) });
}

/** A refusal may rest on what the run has become, and that may still be lost: it waits for its commit like any reply. */
export function reject(ctx: ShardContext, request: RequestId, rejection: Rejection, live?: LiveRun): void {
  ctx.emit({ kind: "reply", request, reply: { kind: "rejected", rejection }, after: live === undefined ? now : ctx.committed(live) });
}

/** Where so many events wait that more would only make it worse. `doing` says to whom what is refused. */
export function refuseBehind(live: LiveRun, doing: string): Rejection | undefined {
  const { length } = live.undelivered;
  if (length < limits.undeliveredMax) return undefined;
  return { reject: "BUFFER_FULL", message: `Cannot ${doing}: ${length} events wait to be taken by it`, retryAfterMs: 200 };
}

/** What whoever waits for a run that is blocked is told. */
export const refuseBlocked = ({ id, run }: LiveRun): Rejection => ({ reject: "RUN_BLOCKED", message: `Run ${id} is blocked: ${run.note}` });
