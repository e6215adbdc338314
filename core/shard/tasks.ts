/** Activities on their way to workers and back: offered, leased, fenced, tried again. */
import { limits, type SessionId, type ShardId, type Token } from "#core/base";
import type { Session } from "#core/dispatch";
import {
  claimed,
  decideCompleted,
  decideFailed,
  failureOf,
  generationOf,
  isPaused,
  isReplayOp,
  isUngranted,
  type Operation,
} from "#core/run";
import { EventKind, type Failure, type Heartbeat, type IdentityInit, RunStatus, type TaskDone, type TaskToken } from "#proto";
import type { ShardContext } from "./context.ts";
import type { LiveRun, LiveTask } from "./live-run.ts";
import { remind } from "./reminders.ts";
import { partitionOfToken } from "./token.ts";

/** Names one delivery of a task. */
export const taskKey = (run: string, token: Omit<TaskToken, "run" | "epoch">) =>
  `${run}#${token.generation}.${token.op}.${token.attempt}.${token.delivery}`;

/** The operation's current delivery, with nobody yet; it takes the place of the one before. */
function newTask(live: LiveRun, o: Operation, progress: LiveTask["progress"]): LiveTask {
  const { op, attempt, delivery } = o;
  const key = taskKey(live.id, { generation: generationOf(live.run, op), op, attempt, delivery });
  const nobody = { session: undefined, workerId: "", orphanUntilMs: 0, isUnclaimed: false, heartbeatMs: 0 };
  const task: LiveTask = { op, attempt, delivery, key, ...nobody, progress };
  live.tasks.set(op, task);
  return task;
}

/** Whether its run is paused, so that it does not begin. A replay of a dead letter is no part of that run. */
export const isHeld = ({ run }: LiveRun, op: number) => isPaused(run) && !isReplayOp(op);

/** Offers an operation that was just issued, unless its key is to grant it first. The time it has as a whole counts from here, be it offered or not. */
export function offerFirst(ctx: ShardContext, live: LiveRun, op: number): void {
  const o = live.run.pending.get(op);
  if (o === undefined) return;
  if (!isUngranted(o)) offer(ctx, live, o);
  if (o.options?.scheduleToCloseMs) remind(ctx, live, "schedule-to-close", o.scheduledMs + o.options.scheduleToCloseMs, o);
}

/** Offers the operation's current attempt, which no worker can have: to one with a free slot, or to the queue. */
export function offer(ctx: ShardContext, live: LiveRun, o: Operation): void {
  place(ctx, live, o, takePlace(live, o));
}

/** In the place of the task before, whose progress it has. */
function takePlace(live: LiveRun, o: Operation): LiveTask {
  const before = live.tasks.get(o.op);
  return newTask(live, o, before?.attempt === o.attempt ? before.progress : undefined);
}

/** Leases the task, which is without a worker, or queues it; where its run is paused, neither. */
export function place(ctx: ShardContext, live: LiveRun, o: Operation, task: LiveTask): void {
  // It begins when the run goes on.
  if (isHeld(live, o.op)) return;
  const session = ctx.pool.forActivity(live.namespace, o.name);
  if (session !== undefined) lease(ctx, live, o, task, session);
  else {
    ctx.ready.push(live.namespace, o.name, { holder: live, op: o.op, attempt: o.attempt, delivery: o.delivery });
    ctx.pool.awaitSlot(live.namespace, o.name);
  }
}

function lease(ctx: ShardContext, live: LiveRun, o: Operation, placed: LiveTask, session: Session<LiveRun>): void {
  const task = placed.isUnclaimed ? redeliver(ctx, live, o) : placed;
  const token = tokenOf(ctx, live, o);
  hold(ctx, live, o, task, session, token);
  ctx.emit({
    kind: "task",
    session: session.id,
    number: session.capacity.nextTask(),
    token,
    name: o.name,
    input: o.input,
    options: o.options,
    heartbeat: task.progress ?? o.heartbeat,
    workflowType: live.run.type,
    after: ctx.committed(live),
  });
}

function tokenOf(ctx: ShardContext, live: LiveRun, { op, attempt, delivery }: Pick<Token, "op" | "attempt" | "delivery">): Token {
  return { run: live.id, generation: generationOf(live.run, op), op, attempt, delivery, epoch: ctx.header.epoch };
}

function hold(ctx: ShardContext, live: LiveRun, o: Operation, task: LiveTask, session: Session<LiveRun>, token: Token): void {
  task.session = session;
  task.workerId = session.workerId;
  task.orphanUntilMs = 0;
  task.isUnclaimed = false;
  task.heartbeatMs = ctx.nowMs;
  session.capacity.hold(task.key, ctx.options.shard, token);
  const { startToCloseMs = 0, heartbeatMs = 0 } = o.options ?? {};
  if (startToCloseMs > 0) remind(ctx, live, "start-to-close", ctx.nowMs + startToCloseMs, o);
  if (heartbeatMs > 0) remind(ctx, live, "heartbeat", ctx.nowMs + heartbeatMs, o);
}

/**
 * Offers an attempt anew that a worker may have and does not claim: as another delivery, when it leaves.
 * Until then the one before counts, should it turn up, and leaders that come and go count nothing. A
 * task that is lost again and again may be what its workers die of, so the attempt fails then.
 */
export function reoffer(ctx: ShardContext, live: LiveRun, o: Operation): void {
  if (o.delivery >= limits.deliveriesMax) return loseAttempt(ctx, live, o);
  const task = takePlace(live, o);
  task.isUnclaimed = true;
  place(ctx, live, o, task);
}

/** The next delivery: the one before is fenced from here on. */
function redeliver(ctx: ShardContext, live: LiveRun, o: Operation): LiveTask {
  o.delivery++;
  ctx.appendLease(live, o.op, o.attempt, o.delivery);
  return takePlace(live, o);
}

/** The task is over or given up: its slot is free. With `reason`, its worker is told to stop. */
export function freeTask(ctx: ShardContext, live: LiveRun, task: LiveTask, reason?: string): void {
  live.tasks.delete(task.op);
  const { session } = task;
  if (session === undefined) return;
  session.capacity.release(task.key);
  if (reason !== undefined) {
    // What undoes it waits for it to stop.
    if (live.run.compensations.length > 0) live.stopping.set(task.key, { session: session.id, untilMs: Number.POSITIVE_INFINITY });
    const token = tokenOf(ctx, live, task);
    ctx.emit({ kind: "cancel-task", session: session.id, token, reason, after: ctx.committed(live) });
  }
  feed(ctx, session);
}

/**
 * Gives waiting tasks to a session with free slots. Where other shards wait for a slot too, each
 * takes one in turn.
 */
export function feed(ctx: ShardContext, session: Session<LiveRun>): void {
  const { capacity } = session;
  const { shard } = ctx.options;
  if (ctx.ready.size === 0 || session.draining) return capacity.rest(shard);
  for (const name of session.activities) {
    for (;;) {
      if (!capacity.hasSlot(shard)) return capacity.wait(shard);
      const ready = takeReady(ctx, session, name);
      if (ready === undefined) break;
      lease(ctx, ready.live, ready.o, ready.task, session);
      capacity.endTurn(shard);
    }
  }
  capacity.rest(shard);
}

/** A slot of the session is free, and it is this shard's turn. */
export function onCapacityFreed(ctx: ShardContext, sessionId: SessionId): void {
  const session = ctx.pool.sessions.get(sessionId);
  if (session !== undefined) feed(ctx, session);
}

/** The oldest waiting task of an activity that still is what it was when it was queued. */
function takeReady(
  ctx: ShardContext,
  session: Session<LiveRun>,
  name: string,
): { live: LiveRun; o: Operation; task: LiveTask } | undefined {
  const namespaces =
    session.namespace === ""
      ? ctx.ready
          .waiting()
          .filter(([, a]) => a === name)
          .map(([n]) => n)
      : [session.namespace];
  for (const namespace of namespaces) {
    for (;;) {
      const ready = ctx.ready.shift(namespace, name);
      if (ready === undefined) break;
      const live = ready.holder;
      const o = live.run.pending.get(ready.op);
      const task = live.tasks.get(ready.op);
      if (o === undefined || task === undefined || task.session !== undefined || isHeld(live, ready.op)) continue;
      if (o.attempt === ready.attempt && o.delivery === ready.delivery && task.orphanUntilMs === 0) return { live, o, task };
    }
  }
  return undefined;
}

/** The worker's stream ended: for a while it may come back and keep the task. */
export function orphan(ctx: ShardContext, live: LiveRun, task: LiveTask): void {
  task.session = undefined;
  task.orphanUntilMs = ctx.nowMs + ctx.orphanGraceMs;
  ctx.orphaned.add(live);
  remind(ctx, live, "orphan", task.orphanUntilMs, task);
}

/** A task that was under way when the node stopped: which worker has it is not known. */
export function orphanOperation(ctx: ShardContext, live: LiveRun, o: Operation): void {
  const task = newTask(live, o, undefined);
  orphan(ctx, live, task);
}

/** A worker says that it still executes this: it keeps the lease, if no newer one exists. Returns whether it does. */
export function keepHeld(ctx: ShardContext, session: Session<LiveRun>, token: TaskToken): boolean {
  const partition = partitionOfToken(token);
  // A task without its worker is one of a run in memory.
  const found = partition === undefined ? undefined : claimOf(ctx, ctx.runs.get(partition), token);
  if (found === undefined) return stopHeld(ctx, session, token);
  const { live, o } = found;
  const task = live.tasks.get(o.op);
  if (task === undefined || task.session !== undefined || (task.orphanUntilMs === 0 && !task.isUnclaimed)) return false;
  hold(ctx, live, o, task, session, { ...token, run: live.id });
  return true;
}

/** Of a run whose end was decided before this leader was: its compensations wait until it has stopped. */
function stopHeld(ctx: ShardContext, session: Session<LiveRun>, token: TaskToken): false {
  const partition = partitionOfToken(token);
  const live = partition === undefined ? undefined : ctx.runs.get(partition);
  if (live?.run.status !== RunStatus.compensating || token.generation !== live.run.generation) return false;
  if (token.epoch > ctx.header.epoch || live.run.pending.has(token.op)) return false;
  live.stopping.set(taskKey(token.run, token), { session: session.id, untilMs: Number.POSITIVE_INFINITY });
  ctx.emit({
    kind: "cancel-task",
    session: session.id,
    token: { ...token, run: live.id },
    reason: "The run has ended",
    after: ctx.committed(live),
  });
  return false;
}

/** Tasks that the session executes for runs that `from` gave out and this shard owns: they go on. */
export function adoptHeld(ctx: ShardContext, session: Session<LiveRun>, from: ShardId): void {
  for (const [key, held] of [...session.capacity.tasks]) {
    if (held.shard === from && !keepHeld(ctx, session, held.token)) session.capacity.release(key);
  }
}

function findRun(ctx: ShardContext, token: TaskToken): LiveRun | undefined {
  const partition = partitionOfToken(token);
  return partition && ctx.find(partition);
}

function claimOf(ctx: ShardContext, live: LiveRun | undefined, token: TaskToken): { live: LiveRun; o: Operation } | undefined {
  if (live === undefined) return undefined;
  // What a later leader offered is not this one's to take.
  if (token.epoch > ctx.header.epoch) return undefined;
  const o = claimed(live.run, token);
  return "reject" in o ? undefined : { live, o };
}

/** A result. Only the newest delivery of the current attempt commits; any other only frees its slot. */
export function onTaskDone(ctx: ShardContext, sessionId: SessionId, message: TaskDone): void {
  const { token } = message;
  if (token === undefined) return;
  const session = ctx.pool.sessions.get(sessionId);
  const key = taskKey(token.run, token);
  session?.capacity.release(key);
  const live = findRun(ctx, token);
  // A task that was given up has ended: where an unwind waited for that, it goes on.
  if (live?.stopping.delete(key) && live.run.status === RunStatus.compensating) ctx.touch(live);
  const found = claimOf(ctx, live, token);
  if (found !== undefined) commitResult(ctx, found.live, found.o, message, session);
  if (session !== undefined) feed(ctx, session);
}

function commitResult(ctx: ShardContext, live: LiveRun, o: Operation, message: TaskDone, session: Session<LiveRun> | undefined): void {
  const task = live.tasks.get(o.op);
  const worker = session?.workerId ?? task?.workerId ?? "";
  const identity: IdentityInit = { issuer: "worker", subject: worker };
  if (task !== undefined) {
    live.tasks.delete(o.op);
    task.session?.capacity.release(task.key);
  }
  if (message.failure === undefined) {
    ctx.append(live, decideCompleted(live.run, o, message.result, worker), identity);
    return;
  }
  failAttempt(ctx, live, o, { failure: message.failure, worker, identity, progress: task?.progress });
}

interface Failing {
  readonly failure: Failure;
  readonly worker: string;
  readonly identity: IdentityInit;
  readonly progress: LiveTask["progress"];
}

/** The attempt failed: its policy says what follows. */
export function failAttempt(ctx: ShardContext, live: LiveRun, o: Operation, failing: Failing): void {
  const event = decideFailed(live.run, o, { ...failing, timeMs: ctx.nowMs });
  ctx.append(live, event, failing.identity);
  if (event.kind === EventKind.activityRetried || event.kind === EventKind.compensationRetried) awaitRetry(ctx, live, o, event.body.nextMs);
}

/** The next attempt is offered when it is due, the first time without a lease of its own. */
function awaitRetry(ctx: ShardContext, live: LiveRun, o: Operation, nextMs: number): void {
  live.retries.add(o.op);
  remind(ctx, live, "retry", nextMs, { ...o, delivery: 1 });
}

function loseAttempt(ctx: ShardContext, live: LiveRun, o: Operation): void {
  const task = live.tasks.get(o.op);
  live.tasks.delete(o.op);
  const message = `Activity ${o.name} was lost with its worker ${o.delivery} times in attempt ${o.attempt}: the worker died, or its stream broke for too long`;
  const failure = failureOf("WorkerLostError", message, { nonRetryable: false });
  failAttempt(ctx, live, o, { failure, worker: task?.workerId ?? "", identity: ctx.core(o.scheduledSeq), progress: task?.progress });
}

export function onHeartbeat(ctx: ShardContext, sessionId: SessionId, message: Heartbeat): void {
  const { token } = message;
  const found = token && claimOf(ctx, findRun(ctx, token), token);
  const task = found?.live.tasks.get(found.o.op);
  const session = ctx.pool.sessions.get(sessionId);
  // After a change of leaders this is how the new one learns who executes it.
  if (token !== undefined && session !== undefined && task?.session === undefined) keepHeld(ctx, session, token);
  if (task?.session?.id !== sessionId) return;
  task.heartbeatMs = ctx.nowMs;
  if (message.details !== undefined) task.progress = { data: message.details.data.slice(), ref: message.details.ref };
}
