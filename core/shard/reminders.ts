/** Puts into the heap what comes due within the horizon. */
import { dueMs, generationOf, isLive, isOpen, type Operation, scheduleDueMs } from "#core/run";
import { type Contender, EventKind } from "#proto";
import type { ShardContext } from "./context.ts";
import type { LiveRun } from "./live-run.ts";
import type { ShardTimer } from "./shard-timer.ts";

export function remind(
  ctx: ShardContext,
  live: LiveRun,
  what: ShardTimer["what"],
  atMs: number,
  o?: Pick<Operation, "op" | "attempt" | "delivery">,
): void {
  // A task's own limits end with its worker's stream: they are in the heap whatever the horizon.
  const derived =
    what === "timer" ||
    what === "retry" ||
    what === "schedule-to-close" ||
    what === "deadline" ||
    what === "budget" ||
    what === "schedule" ||
    what === "channel" ||
    what === "key";
  if (derived && atMs >= ctx.horizonMs) return;
  ctx.timers.push({
    atMs,
    what,
    partition: live.partition,
    generation: generationOf(live.run, o?.op ?? 0),
    op: o?.op ?? 0,
    attempt: o?.attempt ?? 0,
    delivery: o?.delivery ?? 0,
  });
}

/** Puts what is due within the horizon into the heap. */
export function remindAll(ctx: ShardContext, live: LiveRun, fromMs = 0): void {
  const inWindow = (atMs: number) => atMs >= fromMs && atMs > 0;
  const { schedule, key, pending } = live.run;
  if (schedule !== undefined) {
    const atMs = Math.max(scheduleDueMs(schedule, pending.size), 1);
    if (inWindow(atMs)) remind(ctx, live, "schedule", atMs);
    return;
  }
  if (live.run.channel !== undefined) {
    const atMs = Math.max(dueMs(live.run), 1);
    if (inWindow(atMs)) remind(ctx, live, "channel", atMs);
    return;
  }
  if (key !== undefined) {
    if (inWindow(key.forgetAtMs)) remind(ctx, live, "key", key.forgetAtMs);
    return;
  }
  if (isOpen(live.run) && inWindow(live.run.deadlineAtMs)) remind(ctx, live, "deadline", live.run.deadlineAtMs);
  if (isLive(live.run)) remindBudgets(ctx, live, ({ expiresAtMs }) => inWindow(expiresAtMs));
  for (const o of live.run.pending.values()) {
    if (inWindow(o.dueMs)) remind(ctx, live, o.kind === EventKind.timerStarted ? "timer" : "retry", o.dueMs, o);
    const whole = o.options?.scheduleToCloseMs ?? 0;
    if (whole > 0 && inWindow(o.scheduledMs + whole)) remind(ctx, live, "schedule-to-close", o.scheduledMs + whole, o);
  }
}

/** Of the starts that wait, those whose budgets have an end and that `isWanted` picks. */
export function remindBudgets(ctx: ShardContext, live: LiveRun, isWanted: (contender: Contender) => boolean): void {
  for (const contender of live.run.queue) {
    const { ticket, expiresAtMs } = contender;
    if (expiresAtMs > 0 && isWanted(contender)) remind(ctx, live, "budget", expiresAtMs, { op: ticket, attempt: 0, delivery: 0 });
  }
}
