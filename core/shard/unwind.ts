/**
 * Unwinding: a run whose end is decided has its compensations executed, newest first and one at a
 * time, and ends with the terminal event after the last.
 *
 * What was executing when the end was decided is fenced and told to stop, and the first compensation
 * waits until its workers say that it has: an undo that overtook its act would undo nothing. Who
 * executes what is known to a leader only, so a new one waits for workers to come back and say.
 */
import { limits, type SessionId } from "#core/base";
import { decideCompensationStarted, decideTerminal, decideUnwindEnded, nextOfUnwind } from "#core/run";
import { RunStatus } from "#proto";
import type { ShardContext } from "./context.ts";
import type { LiveRun } from "./live-run.ts";
import { endRun } from "./outcome.ts";
import { remind } from "./reminders.ts";
import { offerFirst } from "./tasks.ts";

/** Goes on with an unwind as far as it can be now. */
export function unwind(ctx: ShardContext, live: LiveRun): void {
  const { run } = live;
  const next = nextOfUnwind(run);
  if (next === undefined || isStopping(ctx, live)) return;
  if (next !== "end") {
    ctx.append(live, decideCompensationStarted(run, next), ctx.core(next.seq));
    offerFirst(ctx, live, next.op);
    return;
  }
  const because = ctx.core(run.decided?.seq ?? 0);
  ctx.append(live, decideUnwindEnded(run), because);
  endRun(ctx, live, decideTerminal(run), because);
}

/** Something that is fenced may still be executing; it is looked at again when it ends, or in time. */
function isStopping(ctx: ShardContext, live: LiveRun): boolean {
  const latestMs = (live.run.decided?.timeMs ?? 0) + limits.stopWaitMsMax;
  let dueMs = 0;
  for (const [key, { untilMs }] of live.stopping) {
    const atMs = Math.min(untilMs, latestMs);
    if (atMs <= ctx.nowMs) live.stopping.delete(key);
    else dueMs = Math.max(dueMs, atMs);
  }
  if (live.stopping.size === 0) return false;
  remind(ctx, live, "unwind", dueMs);
  return true;
}

/** A new leader: workers are given time to say what they still execute of the run. */
export function awaitStopping(ctx: ShardContext, live: LiveRun): void {
  if (live.run.status !== RunStatus.compensating) return;
  const untilMs = ctx.nowMs + ctx.orphanGraceMs;
  live.stopping.set("", { session: undefined, untilMs });
  remind(ctx, live, "unwind", untilMs);
}

/** The stream of a worker ended: what it was to stop counts as stopped where it does not come back soon. */
export function loseStopping(ctx: ShardContext, live: LiveRun, session: SessionId): void {
  const untilMs = ctx.nowMs + ctx.orphanGraceMs;
  for (const [key, stopping] of live.stopping) if (stopping.session === session) live.stopping.set(key, { session: undefined, untilMs });
  if (live.stopping.size > 0 && live.run.status === RunStatus.compensating) remind(ctx, live, "unwind", untilMs);
}
