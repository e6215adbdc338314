/**
 * What is owed when a run's end is decided: its compensation stack.
 *
 * A registration is an event of its own, ahead of what it undoes. The decided end seals the stack:
 * from then on the run's code changes nothing, the entries are executed one at a time, newest first,
 * and the event that ends the run comes last. Invariants: entries are in the order of their
 * registration; while an entry is executing it is the last of them, and an open operation of the
 * same number; only a compensating run has a decided end.
 */
import { assert } from "#core/base";
import { defaultRetry } from "#core/policy";
import {
  type ActivityOptions,
  type Compensation,
  type CompensationCompleted,
  type CompensationFailed,
  type CompensationRegistered,
  type CompensationStarted,
  CompensationTrigger,
  EventKind,
  type Payload,
  RunStatus,
  type UnwindStarted,
} from "#proto";
import { clearOperations, isTerminal, noAsker, statusAfter } from "./close.ts";
import { addDeadLetter, failReplay, settleLetter } from "./dead-letter.ts";
import type { RunEvent } from "./event.ts";
import { markAsker } from "./sender.ts";
import { kept, openOperation, type Run } from "./state.ts";

/** Executions of a compensation whose registration does not say how many: an unwind comes to an end. */
export const compensationAttempts = 10;

export interface CompensationRequest {
  readonly op: number;
  readonly name: string;
  readonly input: Payload | undefined;
  readonly trigger: number;
  readonly options: ActivityOptions | undefined;
}

/**
 * Time of a compensation whose registration does not say how much, in milliseconds: also one that no worker offers, or that
 * hangs, becomes a dead letter.
 */
export const compensationMsMax = 24 * 3600 * 1000;

/** Attempts and time without a bound become bounded. */
export function decideRegister({ op, name, input, trigger, options }: CompensationRequest): RunEvent {
  const retry = options?.retry ?? defaultRetry;
  const attemptsMax = retry.attemptsMax || compensationAttempts;
  const timeouts = { startToCloseMs: 0, scheduleToCloseMs: 0, heartbeatMs: 0, idempotencyKey: "" };
  const scheduleToCloseMs = options?.scheduleToCloseMs || compensationMsMax;
  const bounded: ActivityOptions = { ...timeouts, ...options, retry: { ...retry, attemptsMax }, scheduleToCloseMs };
  return { kind: EventKind.compensationRegistered, body: { op, name, input, trigger, options: bounded } };
}

export function applyRegistered(run: Run, { op, name, input, trigger, options }: CompensationRegistered, seq: number): void {
  run.nextOp = op + 1;
  run.compensations.push({ op, seq, name, input: kept(input), trigger, options });
}

export function applyWithdrawn(run: Run, op: number): void {
  run.compensations = run.compensations.filter((one) => one.op !== op);
}

/** What a run owes that ends with this event. */
export function owedAt(run: Run, terminal: RunEvent): readonly Compensation[] {
  return owedWith(run, statusAfter(terminal.kind));
}

function owedWith(run: Run, status: number): Compensation[] {
  if (status !== RunStatus.completed) return run.compensations;
  return run.compensations.filter(({ trigger }) => trigger === CompensationTrigger.always);
}

/** The event that seals the stack, in the place of the terminal one. */
export function decideUnwind(run: Run, terminal: RunEvent): RunEvent {
  assert(isTerminal(terminal.kind), `event kind ${terminal.kind} ends a run`);
  const status = statusAfter(terminal.kind);
  const body: UnwindStarted = {
    status,
    result: undefined,
    failure: undefined,
    reason: "",
    deadlineMs: 0,
    ...noAsker,
    owed: owedAt(run, terminal).length,
  };
  if (terminal.kind === EventKind.runCompleted) body.result = terminal.body.result;
  else if (terminal.kind === EventKind.runFailed) body.failure = terminal.body.failure;
  else if (terminal.kind === EventKind.runTimedOut) body.deadlineMs = terminal.body.deadlineMs;
  else if (terminal.kind === EventKind.runCancelled) body.reason = terminal.body.reason;
  else if (terminal.kind === EventKind.runTerminated) Object.assign(body, terminal.body);
  return { kind: EventKind.unwindStarted, body };
}

export function applyUnwindStarted(run: Run, body: UnwindStarted, at: { seq: number; timeMs: number }): void {
  const { status, result, failure, reason, deadlineMs } = body;
  const { seq, timeMs } = at;
  markAsker(run, body);
  clearOperations(run);
  run.status = RunStatus.compensating;
  run.compensations = owedWith(run, status);
  run.decided = { seq, timeMs, status, result: kept(result), failure, reason, deadlineMs, completed: 0, failed: 0 };
  run.note = reason;
}

/** The terminal event of a decided end. */
export function decideTerminal({ decided }: Run): RunEvent {
  assert(decided !== undefined, "a compensating run has a decided end");
  const { status, result, failure, reason, deadlineMs } = decided;
  switch (status) {
    case RunStatus.completed:
      return { kind: EventKind.runCompleted, body: { result } };
    case RunStatus.cancelled:
      return { kind: EventKind.runCancelled, body: { reason } };
    case RunStatus.terminated:
      // Who asked by a message is in the event that decided so.
      return { kind: EventKind.runTerminated, body: { reason, ...noAsker } };
    case RunStatus.timedOut:
      return { kind: EventKind.runTimedOut, body: { deadlineMs } };
    default:
      return { kind: EventKind.runFailed, body: { failure } };
  }
}

/** What comes next of an unwind; undefined while an entry is executing, and where there is no unwind. */
export function nextOfUnwind(run: Run): Compensation | "end" | undefined {
  if (run.status !== RunStatus.compensating) return undefined;
  const last = run.compensations.at(-1);
  if (last === undefined) return "end";
  return run.pending.has(last.op) ? undefined : last;
}

/** The same for every execution, also of a later replay; what the workflow chose goes first. */
export const compensationKey = (run: Run, { op, options }: Compensation): string =>
  options?.idempotencyKey || `${run.run}/${run.generation}/undo/${op}`;

export function decideCompensationStarted(run: Run, entry: Compensation): RunEvent {
  return { kind: EventKind.compensationStarted, body: { op: entry.op, idempotencyKey: compensationKey(run, entry) } };
}

export function applyCompensationStarted(run: Run, body: CompensationStarted, at: { seq: number; timeMs: number }): void {
  const entry = run.compensations.at(-1);
  assert(entry?.op === body.op, `compensation ${body.op} of ${run.run} is the newest that is owed`);
  const { nextOp } = run;
  const options = keyed(entry.options, body.idempotencyKey);
  const { op, name, input } = entry;
  openOperation(run, at, { op, kind: EventKind.compensationStarted, name, input, options, attempt: 1, delivery: 1 });
  run.nextOp = nextOp;
}

function keyed(options: ActivityOptions | undefined, idempotencyKey: string): ActivityOptions {
  const none = { retry: undefined, startToCloseMs: 0, scheduleToCloseMs: 0, heartbeatMs: 0 };
  return { ...none, ...options, idempotencyKey };
}

export function applyCompensationCompleted(run: Run, { op, letter }: CompensationCompleted): void {
  run.pending.delete(op);
  if (letter > 0) return settleLetter(run, letter);
  run.compensations.pop();
  if (run.decided !== undefined) run.decided = { ...run.decided, completed: run.decided.completed + 1 };
}

export function applyCompensationFailed(run: Run, body: CompensationFailed, at: { seq: number; timeMs: number }): void {
  const o = run.pending.get(body.op);
  run.pending.delete(body.op);
  if (body.letter > 0) return failReplay(run, body, at.timeMs);
  const entry = run.compensations.pop();
  assert(entry?.op === body.op, `compensation ${body.op} of ${run.run} was the newest that is owed`);
  addDeadLetter(run, { ...entry, options: o?.options ?? entry.options }, body, at);
  if (run.decided !== undefined) run.decided = { ...run.decided, failed: run.decided.failed + 1 };
}

export function decideUnwindEnded({ decided }: Run): RunEvent {
  return { kind: EventKind.unwindEnded, body: { completed: decided?.completed ?? 0, failed: decided?.failed ?? 0 } };
}
