/** The end of a run, or of a start that waits for one, and telling those who wait for it. */
import { assert, type Rejection, type Reply } from "#core/base";
import { decideExpired, decideUnwind, findStart, isOverdue, isReplayOp, outcomeOf, owedAt, type RunEvent } from "#core/run";
import { type Contender, type Ending, type IdentityInit, RunStatus } from "#proto";
import { refuseCallers } from "./calls.ts";
import type { ShardContext } from "./context.ts";
import { unseat } from "./delivery.ts";
import type { LiveRun, Waiter } from "./live-run.ts";
import { reject, respond } from "./replies.ts";
import { freeTask } from "./tasks.ts";

/**
 * The run's end is decided, as the terminal event says: that is appended at once, or, where compensations are owed, its
 * stack is sealed in its place. A decided end stays as it is.
 */
export function closeRun(ctx: ShardContext, live: LiveRun, event: RunEvent, identity: IdentityInit): void {
  if (live.run.status === RunStatus.compensating) return;
  if (owedAt(live.run, event).length === 0) return endRun(ctx, live, event, identity);
  ctx.append(live, decideUnwind(live.run, event), identity);
  stopWork(ctx, live);
  if (live.queries.length === 0) leaveWorker(ctx, live);
}

/** Appends a terminal event: nothing of the run goes on after it. The start that waits next begins with the same record. */
export function endRun(ctx: ShardContext, live: LiveRun, event: RunEvent, identity: IdentityInit): void {
  expireOverdue(ctx, live);
  ctx.append(live, event, identity);
  stopWork(ctx, live);
  live.stopping.clear();
  for (const waiter of takeWaiters(live)) answer(ctx, live, waiter);
  if (live.queries.length === 0) leaveWorker(ctx, live);
}

/** Its code goes on no more: nobody waits for what that was to get or to answer. Replays of dead letters go on: they are no run's. */
function stopWork(ctx: ShardContext, live: LiveRun): void {
  refuseCallers(ctx, live, { reject: "RUN_CLOSED", message: `Cannot wait for a method of ${live.id}: it ended before it answered` });
  for (const task of [...live.tasks.values()]) if (!isReplayOp(task.op)) freeTask(ctx, live, task, "The run has ended");
}

/** Those who wait for the newest run; the others wait for one that is queued. */
function takeWaiters(live: LiveRun): Waiter[] {
  const isForNewest = ({ ticket }: Waiter) => ticket === 0 || ticket === live.run.ticket;
  const taken = live.waiters.filter(isForNewest);
  live.waiters = live.waiters.filter((waiter) => !isForNewest(waiter));
  return taken;
}

/** Takes out of the queue whoever waited for too long: when its time is over, and before a run ends, since the next one begins then. */
export function expireOverdue(ctx: ShardContext, live: LiveRun): void {
  const timeMs = ctx.clock.nextMs(ctx.nowMs);
  for (const contender of live.run.queue) {
    if (isOverdue(contender, timeMs)) leaveQueue(ctx, live, contender, decideExpired(contender), ctx.core(contender.ticket));
  }
}

/** A start leaves the queue without a run, by `event`; who waits for it is told. */
export function leaveQueue(ctx: ShardContext, live: LiveRun, { ticket }: Contender, event: RunEvent, identity: IdentityInit): void {
  ctx.append(live, event, identity);
  const found = findStart(live.run, { ticket, generation: 0 });
  assert(found?.kind === "ended", `how start ${ticket} of ${live.id} left the queue is remembered`);
  const waiters = live.waiters.filter((one) => one.ticket === ticket);
  live.waiters = live.waiters.filter((one) => one.ticket !== ticket);
  for (const waiter of waiters) tellEnding(ctx, live, waiter, found.ending);
}

/** Tells one waiter how a closed run ended. */
export function answer(ctx: ShardContext, live: LiveRun, waiter: Waiter): void {
  const { ticket, generation } = live.run;
  tellEnding(ctx, live, waiter, { ticket, generation, outcome: outcomeOf(live.run) });
}

/** Tells one waiter how what it waits for ended. */
export function tellEnding(ctx: ShardContext, live: LiveRun, { request, start, attached, ticket }: Waiter, ending: Ending): void {
  ctx.waiting.delete(request);
  const { generation, outcome } = ending;
  assert(outcome !== undefined, `what is remembered of an ended start of ${live.id} says how it ended`);
  if (generation === 0 && outcome.status === RunStatus.timedOut) {
    return reject(ctx, request, { reject: "BUDGET_EXPIRED", message: outcome.failure?.message ?? "" }, live);
  }
  const reply: Reply = start
    ? { kind: "started", run: live.id, generation, attached, ...ticketed(ticket), outcome }
    : { kind: "outcome", outcome, generation };
  respond(ctx, request, live, reply);
}

/** A start that was not queued has no ticket. */
export const ticketed = (ticket: number) => (ticket > 0 ? { ticket } : {});

export function rejectWaiters(ctx: ShardContext, live: LiveRun, rejection: Rejection): void {
  for (const { request } of takeWaiters(live)) {
    ctx.waiting.delete(request);
    reject(ctx, request, rejection, live);
  }
}

/** The worker forgets the run. */
export function leaveWorker(ctx: ShardContext, live: LiveRun): void {
  const { session, handle } = live;
  unseat(ctx, live);
  if (session !== undefined) ctx.emit({ kind: "drop", session: session.id, handle, after: { until: "now" } });
}
