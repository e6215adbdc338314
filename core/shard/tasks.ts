/** Activities on their way to workers and back: offered, leased, fenced, tried again. */
import { limits, type SessionId } from "#core/base";
import type { Session } from "#core/dispatch";
import { claimed, decideCompleted, decideFailed, failureOf, type Operation } from "#core/run";
import { EventKind, type Failure, type Heartbeat, type IdentityInit, type TaskDone, type TaskToken } from "#proto";
import type { ShardContext } from "./context.ts";
import type { LiveRun, LiveTask } from "./live-run.ts";
import { remind } from "./reminders.ts";
import { partitionOfToken } from "./token.ts";

/** Names one delivery among the tasks of a session. */
const taskKey = (run: string, token: Omit<TaskToken, "run" | "epoch">) =>
  `${run}#${token.generation}.${token.op}.${token.attempt}.${token.delivery}`;

/** The operation's current delivery, with nobody yet; it takes the place of the one before. */
function newTask(live: LiveRun, o: Operation, progress: LiveTask["progress"]): LiveTask {
  const { op, attempt, delivery } = o;
  const key = taskKey(live.id, { generation: live.run.generation, op, attempt, delivery });
  const task: LiveTask = { op, attempt, delivery, key, session: undefined, workerId: "", orphanUntilMs: 0, heartbeatMs: 0, progress };
  live.tasks.set(op, task);
  return task;
}

/** Offers the operation's current attempt: to a worker with a free slot, or to the queue. */
export function offer(ctx: ShardContext, live: LiveRun, o: Operation): void {
  const before = live.tasks.get(o.op);
  const task = newTask(live, o, before?.attempt === o.attempt ? before.progress : undefined);
  const session = ctx.pool.forActivity(live.namespace, o.name);
  if (session !== undefined) lease(ctx, live, o, task, session);
  else ctx.ready.push(live.namespace, o.name, { holder: live, op: o.op, attempt: o.attempt, delivery: o.delivery });
}

function lease(ctx: ShardContext, live: LiveRun, o: Operation, task: LiveTask, session: Session<LiveRun>): void {
  hold(ctx, live, o, task, session);
  ctx.emit({
    kind: "task",
    session: session.id,
    number: session.nextTask++,
    token: { run: live.id, generation: live.run.generation, op: o.op, attempt: o.attempt, delivery: o.delivery },
    name: o.name,
    input: o.input,
    options: o.options,
    heartbeat: task.progress ?? o.heartbeat,
    workflowType: live.run.type,
    after: ctx.committed(live),
  });
}

function hold(ctx: ShardContext, live: LiveRun, o: Operation, task: LiveTask, session: Session<LiveRun>): void {
  task.session = session;
  task.workerId = session.workerId;
  task.orphanUntilMs = 0;
  task.heartbeatMs = ctx.nowMs;
  session.tasks.add(task.key);
  const { startToCloseMs = 0, heartbeatMs = 0 } = o.options ?? {};
  if (startToCloseMs > 0) remind(ctx, live, "start-to-close", ctx.nowMs + startToCloseMs, o);
  if (heartbeatMs > 0) remind(ctx, live, "heartbeat", ctx.nowMs + heartbeatMs, o);
}

/**
 * Another delivery of the same attempt: the one before is fenced from here on. A task that is lost
 * again and again may be what its workers die of, so the attempt fails then.
 */
export function reoffer(ctx: ShardContext, live: LiveRun, o: Operation): void {
  if (o.delivery >= limits.deliveriesMax) return loseAttempt(ctx, live, o);
  o.delivery++;
  ctx.appendLease(live, o.op, o.attempt, o.delivery);
  offer(ctx, live, o);
}

/** The task is over or given up: its slot is free. With `reason`, its worker is told to stop. */
export function freeTask(ctx: ShardContext, live: LiveRun, task: LiveTask, reason?: string): void {
  live.tasks.delete(task.op);
  const { session } = task;
  if (session === undefined) return;
  session.tasks.delete(task.key);
  if (reason !== undefined) {
    const token = { run: live.id, generation: live.run.generation, op: task.op, attempt: task.attempt, delivery: task.delivery };
    ctx.emit({ kind: "cancel-task", session: session.id, token, reason, after: ctx.committed(live) });
  }
  feed(ctx, session);
}

/** Gives waiting tasks to a session with free slots. */
export function feed(ctx: ShardContext, session: Session<LiveRun>): void {
  if (ctx.ready.size === 0 || session.draining) return;
  for (const name of session.activities) {
    while (session.tasks.size < session.activitySlots) {
      const ready = takeReady(ctx, session, name);
      if (ready === undefined) break;
      lease(ctx, ready.live, ready.o, ready.task, session);
    }
  }
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
      if (o === undefined || task === undefined || task.session !== undefined) continue;
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

/** A reconnected worker says that it still executes this: it keeps the lease, if no newer one exists. */
export function keepHeld(ctx: ShardContext, session: Session<LiveRun>, token: TaskToken): void {
  const found = findClaim(ctx, token);
  if (found === undefined) return;
  const { live, o } = found;
  const task = live.tasks.get(o.op);
  if (task === undefined || task.orphanUntilMs === 0 || task.session !== undefined) return;
  hold(ctx, live, o, task, session);
}

function findClaim(ctx: ShardContext, token: TaskToken): { live: LiveRun; o: Operation } | undefined {
  const partition = partitionOfToken(token);
  const live = partition === undefined ? undefined : ctx.find(partition);
  if (live === undefined) return undefined;
  const o = claimed(live.run, token);
  return "reject" in o ? undefined : { live, o };
}

/** A result. Only the newest delivery of the current attempt commits; any other only frees its slot. */
export function onTaskDone(ctx: ShardContext, sessionId: SessionId, message: TaskDone): void {
  const { token } = message;
  if (token === undefined) return;
  const session = ctx.pool.sessions.get(sessionId);
  session?.tasks.delete(taskKey(token.run, token));
  const found = findClaim(ctx, token);
  if (found !== undefined) commitResult(ctx, found.live, found.o, message, session);
  if (session !== undefined) feed(ctx, session);
}

function commitResult(ctx: ShardContext, live: LiveRun, o: Operation, message: TaskDone, session: Session<LiveRun> | undefined): void {
  const task = live.tasks.get(o.op);
  const worker = session?.workerId ?? task?.workerId ?? "";
  const identity: IdentityInit = { issuer: "worker", subject: worker };
  if (task !== undefined) {
    live.tasks.delete(o.op);
    task.session?.tasks.delete(task.key);
  }
  if (message.failure === undefined) {
    ctx.append(live, decideCompleted(o, message.result, worker), identity);
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
  if (event.kind === EventKind.activityRetried) awaitRetry(ctx, live, o, event.body.nextMs);
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
  const found = message.token === undefined ? undefined : findClaim(ctx, message.token);
  const task = found?.live.tasks.get(found.o.op);
  if (task?.session?.id !== sessionId) return;
  task.heartbeatMs = ctx.nowMs;
  if (message.details !== undefined) task.progress = { data: message.details.data.slice(), ref: message.details.ref };
}
