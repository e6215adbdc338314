/** Workers come and go; what they held goes on elsewhere. */
import type { SessionId } from "#core/base";
import type { SessionCapacity } from "#core/dispatch";
import type { Hello } from "#proto";
import type { ShardContext } from "./context.ts";
import { pump, unseat } from "./delivery.ts";
import type { LiveRun } from "./live-run.ts";
import { pumpQueries, requeueQueries } from "./queries.ts";
import { adoptHeld, feed, keepHeld, orphan, reoffer } from "./tasks.ts";
import { loseStopping } from "./unwind.ts";

export function onJoined(ctx: ShardContext, id: SessionId, hello: Hello, capacity: SessionCapacity): void {
  const session = ctx.pool.join(id, hello, capacity);
  adoptHeld(ctx, session, ctx.options.shard);
  for (const token of hello.held) keepHeld(ctx, session, token);
  // What the same worker had before and does not say it holds, it has lost.
  if (hello.workerId !== "") for (const live of [...ctx.orphaned]) reofferLost(ctx, live, hello.workerId);
  for (const live of [...ctx.unassigned]) pump(ctx, live);
  feed(ctx, session);
}

function reofferLost(ctx: ShardContext, live: LiveRun, workerId: string): void {
  ctx.orphaned.delete(live);
  for (const task of [...live.tasks.values()]) {
    if (task.orphanUntilMs === 0) continue;
    if (task.workerId !== workerId) {
      ctx.orphaned.add(live);
      continue;
    }
    const o = live.run.pending.get(task.op);
    if (o !== undefined) reoffer(ctx, live, o);
  }
}

export function onGone(ctx: ShardContext, id: SessionId): void {
  const session = ctx.pool.sessions.get(id);
  if (session === undefined) return;
  ctx.pool.leave(session);
  const runs = [...session.runs.values()];
  for (const live of runs) unseat(ctx, live);
  for (const live of ctx.runs.values()) {
    for (const task of live.tasks.values()) if (task.session === session) orphan(ctx, live, task);
    loseStopping(ctx, live, id);
  }
  requeueQueries(ctx, id);
  for (const live of runs) {
    pumpQueries(ctx, live);
    pump(ctx, live);
  }
}
