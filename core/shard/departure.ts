/**
 * Runs that are another shard's from here on: they leave memory, their workers forget them, and
 * who waits for them is sent on.
 *
 * What they became here and is not saved yet is kept until it is: the other shard begins with it.
 */
import { type Barrier, inRange, type ShardId } from "#core/base";
import { takeCallers } from "./calls.ts";
import type { ShardContext } from "./context.ts";
import type { LiveRun } from "./live-run.ts";
import { leaveWorker, ticketed } from "./outcome.ts";

/** Lets go of every run whose key is out of range; `to` owns them. */
export function depart(ctx: ShardContext, to: ShardId): void {
  const gone = new Set<LiveRun>();
  for (const live of ctx.runs.values()) if (!inRange(ctx.header, live.key)) gone.add(live);
  // What was captured before is saved by that capture, or put back to the departing.
  for (const [live, changedFrom] of ctx.dirty) {
    if (!gone.has(live)) continue;
    ctx.dirty.delete(live);
    ctx.departing.set(live, changedFrom);
  }
  handOver(gone, { from: ctx.options.shard, to });
  ctx.ready.remove((live) => gone.has(live));
  const after: Barrier = { until: "committed", index: ctx.lastIndex };
  for (const live of gone) letGo(ctx, live, after);
}

/** The tasks go on: where `to` is led by this node too, it finds them with the worker. */
function handOver(gone: ReadonlySet<LiveRun>, { from, to }: { readonly from: ShardId; readonly to: ShardId }): void {
  for (const live of gone) {
    for (const task of live.tasks.values()) {
      const held = task.session?.capacity.tasks.get(task.key);
      if (held === undefined) continue;
      held.shard = to;
      held.from = from;
    }
    live.tasks.clear();
  }
}

function letGo(ctx: ShardContext, live: LiveRun, after: Barrier): void {
  leaveWorker(ctx, live);
  const rejection = ctx.elsewhere(live.partition);
  for (const { request, start, attached, ticket } of live.waiters) {
    ctx.waiting.delete(request);
    const generation = ticket === 0 ? live.run.generation : 0;
    const started = start ? { started: { run: live.id, generation, attached, ...ticketed(ticket) } } : {};
    ctx.emit({ kind: "reply", request, reply: { kind: "rejected", rejection, ...started }, after });
  }
  for (const { request, asked } of live.queries) {
    ctx.queries.delete(asked);
    ctx.emit({ kind: "reply", request, reply: { kind: "rejected", rejection }, after });
  }
  for (const request of takeCallers(ctx, live)) ctx.emit({ kind: "reply", request, reply: { kind: "rejected", rejection }, after });
  live.waiters = [];
  live.queries = [];
  live.fresh = [];
  ctx.orphaned.delete(live);
  ctx.runs.delete(live.partition);
}
