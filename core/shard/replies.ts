/** Answers to clients: each waits for the commit of what it rests on. */
import { now, type Rejection, type Reply, type RequestId } from "#core/base";
import type { ShardContext } from "./context.ts";
import type { LiveRun } from "./live-run.ts";

export function respond(ctx: ShardContext, request: RequestId, live: LiveRun, reply: Reply): void {
  ctx.emit({ kind: "reply", request, reply, after: ctx.committed(live) });
}

/** A refusal may rest on what the run has become, and that may still be lost: it waits for its commit like any reply. */
export function reject(ctx: ShardContext, request: RequestId, rejection: Rejection, live?: LiveRun): void {
  ctx.emit({ kind: "reply", request, reply: { kind: "rejected", rejection }, after: live === undefined ? now : ctx.committed(live) });
}
