/**
 * Everything that happens because time passed.
 *
 * Timers are derived from states, so an entry of the heap is only a reminder: what it meant is
 * looked up again, and one that no longer applies does nothing. Only what is due within the
 * horizon is in the heap; the rest is found in memory or in the checkpoint when its time nears.
 */
import { limits } from "#core/base";
import { generationOf, isLive, isReplayOp, type Operation, timeoutFailure } from "#core/run";
import { EventKind } from "#proto";
import { onChannelDue } from "./channels.ts";
import type { ShardContext } from "./context.ts";
import { retryReplay } from "./delivery.ts";
import { onKeyDue } from "./keys.ts";
import type { LiveRun } from "./live-run.ts";
import { onResendDue } from "./outbox.ts";
import { closeRun, expireOverdue } from "./outcome.ts";
import { findNow, reread, wake } from "./reading.ts";
import { remind, remindAll } from "./reminders.ts";
import { onScheduleDue } from "./schedules.ts";
import type { ShardTimer } from "./shard-timer.ts";
import { failAttempt, freeTask, offer, reoffer } from "./tasks.ts";
import { onStreamDue } from "./waits.ts";

/** Entries handled in one step; the rest follows in the next. Records stay small, and what fires leaves early. */
const firedMax = 256;

/** Moves the horizon on and fetches what comes due before it. */
function extendHorizon(ctx: ShardContext): void {
  const from = ctx.horizonMs;
  ctx.horizonMs = ctx.nowMs + limits.timerHorizonMs;
  for (const live of ctx.runs.values()) remindAll(ctx, live, from);
  wake(ctx);
}

export function onTick(ctx: ShardContext): void {
  ctx.armedMs = Number.POSITIVE_INFINITY;
  if (ctx.nowMs >= ctx.horizonMs - limits.timerHorizonMs / 2) extendHorizon(ctx);
  reread(ctx);
  for (let i = 0; i < firedMax; i++) {
    const next = ctx.timers.peek();
    if (next === undefined || next.atMs > ctx.nowMs) return;
    ctx.timers.pop();
    if (next.peer !== undefined) {
      onResendDue(ctx, next.partition, next.peer);
      continue;
    }
    const live = findNow(ctx, next.partition);
    if (live === "unreadable") {
      ctx.timers.push({ ...next, atMs: ctx.nowMs + limits.rereadMs });
      continue;
    }
    // A start waits while generations pass.
    if (live !== undefined && next.what === "budget") expireOverdue(ctx, live);
    if (live === undefined || generationOf(live.run, next.op) !== next.generation) continue;
    // An ended run is still built for who reads it, and dead letters of it are replayed.
    if (isLive(live.run) || next.what === "replay" || next.what === "channel" || isReplayOp(next.op)) fire(ctx, live, next);
  }
}

/** Asks the shell for a tick when the earliest reminder is due. */
export function arm(ctx: ShardContext): void {
  if (ctx.isFrozen) return;
  const reminder = ctx.timers.peek()?.atMs ?? Number.POSITIVE_INFINITY;
  const next = Math.min(reminder, ctx.rereadAtMs, ctx.horizonMs - limits.timerHorizonMs / 2);
  if (next >= ctx.armedMs) return;
  ctx.armedMs = next;
  ctx.emit({ kind: "arm-timer", atMs: next, after: { until: "now" } });
}

function fire(ctx: ShardContext, live: LiveRun, t: ShardTimer): void {
  if (t.what === "budget") return;
  if (t.what === "schedule") return onScheduleDue(ctx, live);
  if (t.what === "channel") return onChannelDue(ctx, live);
  if (t.what === "key") return onKeyDue(ctx, live);
  if (t.what === "unwind") return ctx.touch(live);
  if (t.what === "stream") return onStreamDue(ctx, live);
  if (t.what === "deadline") return onDeadline(ctx, live);
  if (t.what === "replay") return retryReplay(ctx, live, t.attempt);
  const o = live.run.pending.get(t.op);
  if (o === undefined) return;
  if (t.what === "timer") {
    if (o.kind === EventKind.timerStarted && o.dueMs <= ctx.nowMs) {
      ctx.append(live, { kind: EventKind.timerFired, body: { op: o.op } }, ctx.core(o.scheduledSeq));
    }
    return;
  }
  if (o.attempt !== t.attempt && t.what !== "schedule-to-close") return;
  if (t.what === "retry") return onRetryDue(ctx, live, o);
  if (t.what === "orphan") return onOrphan(ctx, live, o, t);
  onTimeout(ctx, live, o, t);
}

function onDeadline(ctx: ShardContext, live: LiveRun): void {
  const { deadlineAtMs, startedMs, firstSeq } = live.run;
  if (deadlineAtMs === 0 || deadlineAtMs > ctx.nowMs) return;
  closeRun(ctx, live, { kind: EventKind.runTimedOut, body: { deadlineMs: deadlineAtMs - startedMs } }, ctx.core(firstSeq));
}

function onRetryDue(ctx: ShardContext, live: LiveRun, o: Operation): void {
  if (o.dueMs === 0 || o.dueMs > ctx.nowMs || live.tasks.has(o.op)) return;
  // A clock that went back over a restart may have been due before: then delivery 1 is out already.
  if (live.retries.delete(o.op)) offer(ctx, live, o);
  else reoffer(ctx, live, o);
}

function onOrphan(ctx: ShardContext, live: LiveRun, o: Operation, t: ShardTimer): void {
  const task = live.tasks.get(o.op);
  if (task === undefined || task.session !== undefined || task.orphanUntilMs === 0 || task.delivery !== t.delivery) return;
  reoffer(ctx, live, o);
}

function onTimeout(ctx: ShardContext, live: LiveRun, o: Operation, t: ShardTimer): void {
  const task = live.tasks.get(o.op);
  if (t.what === "heartbeat" && task !== undefined) {
    const dueMs = task.heartbeatMs + (o.options?.heartbeatMs ?? 0);
    if (dueMs > ctx.nowMs) return remind(ctx, live, "heartbeat", dueMs, o);
  }
  if (t.what !== "schedule-to-close" && (task?.session === undefined || task.delivery !== t.delivery)) return;
  const timeout = t.what as "start-to-close" | "schedule-to-close" | "heartbeat";
  const failure = timeoutFailure(o, timeout);
  const worker = task?.workerId ?? "";
  failAttempt(ctx, live, o, { failure, worker, identity: ctx.core(o.scheduledSeq), progress: task?.progress });
  if (task !== undefined) freeTask(ctx, live, task, failure.message);
}
