/** What a run did in an activation: its commands become events, its faults block it. */
import { limits, noBytes, type SessionId } from "#core/base";
import {
  compensationCount,
  decideAwaitResult,
  decideCallWithdrawn,
  decideChunk,
  decideMethodCall,
  decideRead,
  decideReadCancelled,
  decideRegister,
  decideSchedule,
  decideSendCancel,
  decideSendChannel,
  decideSendSignal,
  decideSpawn,
  decideTimer,
  decideWaitCancelled,
  failureOf,
  isSearchableFull,
  type RunEvent,
  type SpawnRequest,
  searchableProblem,
} from "#core/run";
import { type Activated, ActivatedStatus, type Command, CommandKind, EventKind, type IdentityInit, RunStatus } from "#proto";
import { answerCall, refuseCallers } from "./calls.ts";
import type { ShardContext } from "./context.ts";
import { begin, pump, replay, unseat } from "./delivery.ts";
import { claimOf, isKeyed } from "./keys.ts";
import type { LiveRun } from "./live-run.ts";
import { closeRun, leaveWorker, rejectWaiters } from "./outcome.ts";
import { pumpQueries, refuseQueries } from "./queries.ts";
import { remind } from "./reminders.ts";
import { refuseBlocked } from "./replies.ts";
import { freeTask, offerFirst } from "./tasks.ts";

export const knownKinds: ReadonlySet<number> = new Set(Object.values(CommandKind).filter((kind) => kind !== CommandKind.unspecified));

/** Failed activations in a row after which the run is blocked. */
const strikesMax = 3;

export function onActivated(ctx: ShardContext, sessionId: SessionId, message: Activated): void {
  const live = ctx.pool.sessions.get(sessionId)?.runs.get(message.handle);
  // An answer of an earlier activation, or of a run that was taken away meanwhile, changes nothing.
  if (live === undefined || !live.inFlight || live.activation !== message.activation) return;
  live.inFlight = false;
  if (message.status !== ActivatedStatus.ok) return onFailed(ctx, live, message);
  live.building = false;
  live.strikes = 0;
  live.seenSeq = live.throughSeq;
  if (live.run.status === RunStatus.running) {
    const before = ctx.lastIndex;
    const identity: IdentityInit = { issuer: "worker", subject: live.session?.workerId ?? "" };
    const problem = takeCommands(ctx, live, message.commands, identity);
    if (problem !== undefined) return strike(ctx, live, "broken", problem);
    if (ctx.lastIndex > before) ctx.markDelivered(live, live.throughSeq);
  }
  pump(ctx, live);
  pumpQueries(ctx, live);
}

function onFailed(ctx: ShardContext, live: LiveRun, message: Activated): void {
  const { status, problem } = message;
  if (status === ActivatedStatus.diverged) return block(ctx, live, "divergence", problem);
  if (status === ActivatedStatus.broken) return block(ctx, live, "broken", problem);
  if (status === ActivatedStatus.limit) return strike(ctx, live, "limit", problem);
  if (status === ActivatedStatus.notCached) {
    live.building = false;
    return replay(ctx, live, live.run.status !== RunStatus.running);
  }
  // The worker's own trouble: the same again, a little later.
  live.building = false;
  remind(ctx, live, "replay", ctx.nowMs + 250, { op: 0, attempt: live.activation, delivery: 0 });
}

function strike(ctx: ShardContext, live: LiveRun, cause: string, problem: string): void {
  if (++live.strikes >= strikesMax || cause === "broken") return block(ctx, live, cause, problem);
  live.building = false;
  replay(ctx, live, false);
}

function block(ctx: ShardContext, live: LiveRun, cause: string, problem: string): void {
  leaveWorker(ctx, live);
  const message = problem.slice(0, limits.failureBytesMax);
  // An ended run was built only to be read.
  if (live.run.status !== RunStatus.running) return refuseQueries(ctx, live, "QUERY_FAILED", `Cannot query ${live.id}: ${message}`);
  ctx.append(live, { kind: EventKind.runBlocked, body: { cause, message } }, ctx.core(live.chain.size - 1));
  live.strikes = 0;
  const rejection = refuseBlocked(live);
  rejectWaiters(ctx, live, rejection);
  refuseCallers(ctx, live, rejection);
  refuseQueries(ctx, live, "RUN_BLOCKED", `Cannot query ${live.id}: it is blocked: ${message}`);
}

/** The shell or the session could not do a replay. */
export function onReplayFailed(ctx: ShardContext, sessionId: SessionId, handle: number, activation: number): void {
  const live = ctx.pool.sessions.get(sessionId)?.runs.get(handle);
  if (live === undefined || !live.inFlight || live.activation !== activation) return;
  live.inFlight = false;
  live.building = false;
  remind(ctx, live, "replay", ctx.nowMs + 250, { op: 0, attempt: activation, delivery: 0 });
}

/** The worker dropped the run from its cache. */
export function onEvicted(ctx: ShardContext, sessionId: SessionId, handle: number): void {
  const live = ctx.pool.sessions.get(sessionId)?.runs.get(handle);
  if (live === undefined) return;
  const wasInFlight = live.inFlight;
  unseat(ctx, live);
  if (!wasInFlight) return;
  begin(ctx, live);
  pumpQueries(ctx, live);
}

/** Turns commands into events, in order. Returns what is wrong with them, having appended none then. */
function takeCommands(ctx: ShardContext, live: LiveRun, commands: readonly Command[], identity: IdentityInit): string | undefined {
  const problem = commandProblem(live, commands);
  if (problem !== undefined) return problem;
  for (const command of commands) {
    if (live.run.status !== RunStatus.running) return undefined;
    const message = excess(live, command);
    if (message !== undefined) {
      const failure = failureOf("LimitError", message, { nonRetryable: true });
      closeRun(ctx, live, { kind: EventKind.runFailed, body: { failure } }, identity);
      return undefined;
    }
    takeCommand(ctx, live, command, identity);
  }
  return undefined;
}

/** Which bound the operation would pass. */
function excess(live: LiveRun, command: Command): string | undefined {
  const { kind, name, to } = command;
  const { pending, unsettled, reads } = live.run;
  if (!isOperation(kind)) return undefined;
  if (pending.size >= limits.pendingOpsMax)
    return `Run ${live.id} has ${pending.size} open operations, at most ${limits.pendingOpsMax} are allowed`;
  if (kind === CommandKind.setSearchable && isSearchableFull(live.run, name))
    return `Run ${live.id} has ${limits.searchableMax} searchable names, more are not allowed`;
  if (kind === CommandKind.readChannel && !reads.has(to) && reads.size >= limits.channelsReadMax)
    return `Run ${live.id} reads ${reads.size} channels, more are not allowed`;
  if (kind === CommandKind.compensate) return tooManyOwed(live);
  if (!isRemote(kind) && !isKeyed(command)) return undefined;
  return unsettled < limits.unsettledMessagesMax
    ? undefined
    : `Run ${live.id} has ${unsettled} messages that other partitions have not taken, at most ${limits.unsettledMessagesMax} are allowed`;
}

/** Operations on other runs, and on channels. */
export const isRemote = (kind: number): boolean =>
  kind === CommandKind.sendSignal ||
  kind === CommandKind.awaitResult ||
  kind === CommandKind.spawn ||
  kind === CommandKind.cancelRun ||
  kind === CommandKind.sendChannel ||
  kind === CommandKind.readChannel ||
  kind === CommandKind.callMethod;

/** Operations are numbered; the other kinds withdraw one or end the run. */
const isOperation = (kind: number): boolean =>
  kind <= CommandKind.awaitSignal ||
  kind === CommandKind.setSearchable ||
  kind === CommandKind.yieldChunk ||
  kind === CommandKind.compensate ||
  isRemote(kind);

function tooManyOwed({ id, run }: LiveRun): string | undefined {
  const count = compensationCount(run);
  if (count < limits.compensationsMax) return undefined;
  const { length } = run.deadLetters;
  const dead = length > 0 ? `, ${length} of them dead letters: replay or drop them` : "";
  return `Run ${id} has ${count} compensations, at most ${limits.compensationsMax} are allowed${dead}`;
}

function commandProblem(live: LiveRun, commands: readonly Command[]): string | undefined {
  let next = live.run.nextOp;
  const answered = new Set<number>();
  for (const c of commands) {
    if (!knownKinds.has(c.kind)) return `Command kind ${c.kind} is not known to this version`;
    if (c.kind === CommandKind.answerCall) {
      if (!live.run.calls.has(c.op) || answered.has(c.op)) return `Call ${c.op} has its answer, or was never made`;
      answered.add(c.op);
    }
    if (!isOperation(c.kind)) continue;
    const problem = c.kind === CommandKind.setSearchable ? searchableProblem(c.name, c.searchable) : undefined;
    if (problem !== undefined) return problem;
    if (c.op !== next) return `Operation ${c.op} was issued out of order, want ${next}`;
    next++;
  }
  return undefined;
}

function takeCommand(ctx: ShardContext, live: LiveRun, c: Command, identity: IdentityInit): void {
  switch (c.kind) {
    case CommandKind.activity: {
      const { op, name, payload: input, options } = c;
      ctx.append(live, decideSchedule({ op, name, input, options, claim: claimOf(ctx, live, c) }), identity);
      return offerFirst(ctx, live, c.op);
    }
    case CommandKind.timer: {
      const event = decideTimer(c.op, c.durationMs, ctx.clock.nextMs(ctx.nowMs));
      ctx.append(live, event, identity);
      const o = live.run.pending.get(c.op);
      if (o !== undefined) remind(ctx, live, "timer", o.dueMs, o);
      return;
    }
    case CommandKind.awaitSignal:
      ctx.append(live, { kind: EventKind.signalAwaited, body: { op: c.op, name: c.name } }, identity);
      return;
    case CommandKind.sendSignal:
      ctx.append(live, decideSendSignal(live.run, { op: c.op, to: c.to, name: c.name, payload: c.payload, child: c.child }), identity);
      return;
    case CommandKind.spawn:
      ctx.append(live, decideSpawn(live.run, spawnOf(live, c)), identity);
      return;
    case CommandKind.cancelRun:
      ctx.append(live, decideSendCancel(live.run, { op: c.op, to: c.to, reason: c.reason, child: c.child }), identity);
      return;
    case CommandKind.awaitResult:
      for (const event of decideAwaitResult(live.run, c)) ctx.append(live, event, identity);
      return;
    case CommandKind.callMethod: {
      const { op, to, name, payload: input, propagates, inCall } = c;
      for (const event of decideMethodCall(live.run, { op, to, name, input, propagates, inCall })) ctx.append(live, event, identity);
      return;
    }
    case CommandKind.sendChannel:
      return void ctx.append(live, decideSendChannel(live.run, c), identity);
    case CommandKind.readChannel:
      for (const event of decideRead(live.run, c)) ctx.append(live, event, identity);
      return;
    case CommandKind.answerCall: {
      const { op: call, payload: result, failure, rejected } = c;
      return answerCall(ctx, live, { call, result, failure, rejected }, identity);
    }
    case CommandKind.setSearchable:
      ctx.append(live, { kind: EventKind.searchableSet, body: { op: c.op, name: c.name, value: c.searchable } }, identity);
      return;
    case CommandKind.yieldChunk:
      ctx.append(live, decideChunk(live.run, { op: c.op, chunk: c.payload }), identity);
      return;
    case CommandKind.compensate:
      ctx.append(live, decideRegister({ ...c, input: c.payload }), identity);
      return;
    case CommandKind.withdrawCompensation:
      if (live.run.compensations.some(({ op }) => op === c.op)) {
        ctx.append(live, { kind: EventKind.compensationWithdrawn, body: { op: c.op } }, identity);
      }
      return;
    case CommandKind.cancelOp:
      return withdraw(ctx, live, c.op, identity);
    default:
      closeRun(ctx, live, ending(c, live.run.note), identity);
  }
}

function spawnOf(live: LiveRun, { op, to, name: type, payload: input, start, closePolicy, ownCode }: Command): SpawnRequest {
  const bundle = ownCode ? live.run.bundle : noBytes;
  return { op, to, start: start && { ...start, type, bundle }, input, closePolicy };
}

function withdraw(ctx: ShardContext, live: LiveRun, op: number, identity: IdentityInit): void {
  const o = live.run.pending.get(op);
  // A child goes on until it is told otherwise.
  if (o === undefined || o.kind === EventKind.childSpawned) return;
  const kinds = {
    [EventKind.activityScheduled]: EventKind.activityCancelled,
    [EventKind.timerStarted]: EventKind.timerCancelled,
    [EventKind.signalAwaited]: EventKind.signalWaitCancelled,
    [EventKind.signalSent]: EventKind.signalSendCancelled,
    [EventKind.cancelSent]: EventKind.cancelSendCancelled,
    [EventKind.channelSent]: EventKind.channelSendCancelled,
  } as const;
  // A run withdraws only what it issued itself.
  if (o.kind === EventKind.compensationStarted || o.kind === EventKind.deadLetterReplayed) return;
  if (o.kind === EventKind.resultAwaited) ctx.append(live, decideWaitCancelled(live.run, o), identity);
  else if (o.kind === EventKind.channelAwaited) ctx.append(live, decideReadCancelled(live.run, o), identity);
  else if (o.kind === EventKind.methodCallSent) ctx.append(live, decideCallWithdrawn(live.run, o), identity);
  else ctx.append(live, { kind: kinds[o.kind], body: { op } } as RunEvent, identity);
  const task = live.tasks.get(op);
  if (task !== undefined) freeTask(ctx, live, task, "The workflow withdrew it");
}

/** `note` is what the canceller said. */
function ending(c: Command, note: string): RunEvent {
  if (c.kind === CommandKind.complete) return { kind: EventKind.runCompleted, body: { result: c.payload } };
  if (c.kind === CommandKind.cancelled) return { kind: EventKind.runCancelled, body: { reason: c.failure?.message ?? note } };
  return { kind: EventKind.runFailed, body: { failure: c.failure } };
}
