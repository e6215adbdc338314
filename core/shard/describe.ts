/** A run's state for people: what it waits for, and why. */
import type { Hasher } from "#core/base";
import { isClosed, isUngranted, type Operation, outcomeOf, saveChannel, searchableJson } from "#core/run";
import { type ChannelState, type Contender, type DescribeReply, EventKind, type PendingSummary, type QueuedStart } from "#proto";
import type { ShardContext } from "./context.ts";
import type { LiveRun } from "./live-run.ts";
import { isHeld } from "./tasks.ts";

export function describe(ctx: ShardContext, live: LiveRun, hasher: Hasher): DescribeReply {
  const { run } = live;
  const head = live.chain.head();
  return {
    summary: {
      run: live.id,
      generation: run.generation,
      type: run.type,
      status: run.status,
      startedMs: run.startedMs,
      closedMs: run.closedMs,
      bundle: run.bundle,
      note: run.note,
      expiredMs: 0,
      searchable: searchableJson(run),
      deadLetters: run.deadLetters.filter(({ generation }) => generation === run.generation).length,
    },
    size: head.size,
    lastHash: head.lastHash,
    peaks: head.peaks,
    root: live.chain.root(hasher),
    pending: [...run.pending.values()].map((o) => pendingOf(ctx, live, o)),
    outcome: isClosed(run) ? outcomeOf(run) : undefined,
    cancelRequested: run.cancelRequested,
    deadlineAtMs: run.deadlineAtMs,
    expiredEnd: run.expiredEnd,
    ticket: run.ticket,
    queue: run.queue.map(queuedOf),
    ending: run.endings,
    startedBy: run.startedBy,
    firstSeq: run.firstSeq,
    schedule: run.schedule,
    channel: run.channel && { ...(saveChannel(run.channel) as ChannelState), kept: [] },
    keptMessages: run.channel?.kept.length ?? 0,
    compensation: run.compensations.map(({ op, name, trigger }) => ({ op, name, trigger })).reverse(),
    deadLetter: run.deadLetters,
    decidedStatus: run.decided?.status ?? 0,
  };
}

function queuedOf({ ticket, type, queuedMs, expiresAtMs, bundle, signal }: Contender): QueuedStart {
  return { ticket, type, queuedMs, expiresAtMs, bundle, signals: signal.length };
}

function pendingOf(ctx: ShardContext, live: LiveRun, o: Operation): PendingSummary {
  const { op, kind, name, attempt, dueMs, lastFailure, to, of, closePolicy } = o;
  return { op, kind, name, attempt, dueMs, waitsFor: waitsFor(ctx, live, o), lastFailure, to, of, closePolicy };
}

function waitsFor(ctx: ShardContext, live: LiveRun, o: Operation): string {
  if (o.kind === EventKind.timerStarted) return "its time";
  if (o.kind === EventKind.signalAwaited) return `signal ${o.name}`;
  if (o.kind === EventKind.signalSent) return `${o.to} to receive its signal`;
  if (o.kind === EventKind.cancelSent) return `${o.to} to receive its cancellation`;
  if (o.kind === EventKind.childSpawned) return o.started ? `child ${o.to} to end` : `child ${o.to} to be started`;
  if (o.kind === EventKind.methodCallSent) return `method ${o.name} of ${o.to} to answer`;
  if (o.kind === EventKind.channelSent) return `channel ${o.to} to take its message`;
  if (o.kind === EventKind.channelAwaited) return `channel ${o.to} to have something`;
  if (o.kind === EventKind.resultAwaited) return `the result of ${o.to}`;
  if (isUngranted(o)) return `idempotency key ${o.options?.idempotencyKey ?? ""} of ${o.name}`;
  const task = live.tasks.get(o.op);
  if (isHeld(live, o.op) && task?.session === undefined && o.dueMs <= ctx.nowMs) return "the run to be unpaused";
  if (task === undefined) return o.dueMs > ctx.nowMs ? "its next attempt" : "a worker";
  if (task.session !== undefined) return `worker ${task.workerId}`;
  if (task.orphanUntilMs > 0) return task.workerId === "" ? "its worker to reconnect" : `worker ${task.workerId} to reconnect`;
  return ctx.pool.isOffered(live.namespace, o.name) ? "a free slot" : `a worker that offers ${o.name}`;
}
