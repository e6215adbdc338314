/** The end of a run, and telling those who wait for it. */
import type { Rejection } from "#core/base";
import { outcomeOf, type RunEvent } from "#core/run";
import type { IdentityInit } from "#proto";
import type { ShardContext } from "./context.ts";
import { unseat } from "./delivery.ts";
import type { LiveRun, Waiter } from "./live-run.ts";
import { freeTask } from "./tasks.ts";

/** Appends a terminal event: nothing of the run goes on after it. */
export function closeRun(ctx: ShardContext, live: LiveRun, event: RunEvent, identity: IdentityInit): void {
  ctx.append(live, event, identity);
  for (const task of [...live.tasks.values()]) freeTask(ctx, live, task, "The run has ended");
  for (const waiter of live.waiters) answer(ctx, live, waiter);
  live.waiters = [];
  if (live.queries.length === 0) leaveWorker(ctx, live);
}

/** Tells one waiter how a closed run ended. */
export function answer(ctx: ShardContext, live: LiveRun, waiter: Waiter): void {
  ctx.waiting.delete(waiter.request);
  const outcome = outcomeOf(live.run);
  const { generation } = live.run;
  ctx.emit({
    kind: "reply",
    request: waiter.request,
    reply: waiter.start
      ? { kind: "started", run: live.id, generation, attached: waiter.attached, outcome }
      : { kind: "outcome", outcome, generation },
    after: ctx.committed(live),
  });
}

export function rejectWaiters(ctx: ShardContext, live: LiveRun, rejection: Rejection): void {
  for (const { request } of live.waiters) {
    ctx.waiting.delete(request);
    ctx.emit({ kind: "reply", request, reply: { kind: "rejected", rejection }, after: ctx.committed(live) });
  }
  live.waiters = [];
}

/** The worker forgets the run. */
export function leaveWorker(ctx: ShardContext, live: LiveRun): void {
  const { session, handle } = live;
  unseat(ctx, live);
  if (session !== undefined) ctx.emit({ kind: "drop", session: session.id, handle, after: { until: "now" } });
}
