/** Ends of a run, asked for from outside or by its own code: each generation has exactly one. */
import type { Rejection } from "#core/base";
import { type CancelRequested, EventKind, type Outcome, type RunResumed, type RunStatus, RunStatus as Status } from "#proto";
import type { RunEvent } from "./event.ts";
import { failureOf } from "./failure.ts";
import { markAsker } from "./sender.ts";
import { isClosed, isReplayOp, kept, type Run } from "./state.ts";

/** Why a command that needs a run whose end is not decided is refused, or undefined. */
export function refuseUnlessLive(run: Run, verb: string): Rejection | undefined {
  if (run.generation === 0) return { reject: "RUN_NOT_FOUND", message: `Cannot ${verb} ${run.run}: there is no such run` };
  if (isClosed(run)) return { reject: "RUN_CLOSED", message: `Cannot ${verb} ${run.run}: it has ended` };
  if (run.status === Status.compensating) return { reject: "RUN_CLOSED", message: `Cannot ${verb} ${run.run}: ${unwindText}` };
  return undefined;
}

/** Why nothing can be told to a run whose end is decided. */
export const unwindText = "its end is decided, and its compensations are being executed";

/** Which message of another partition asks; left out: a client does. */
export interface Asker {
  readonly from: string;
  readonly number: number;
}

export const noAsker: Asker = { from: "", number: 0 };

export function decideCancel(run: Run, reason: string, asker = noAsker): RunEvent | "already" | Rejection {
  const refusal = refuseUnlessLive(run, "cancel");
  if (refusal !== undefined) return refusal;
  return run.cancelRequested ? "already" : { kind: EventKind.cancelRequested, body: { reason, ...asker } };
}

export function decideTerminate(run: Run, reason: string, asker = noAsker): RunEvent | Rejection {
  return refuseUnlessLive(run, "terminate") ?? { kind: EventKind.runTerminated, body: { reason, ...asker } };
}

export function applyCancelRequested(run: Run, { reason, from, number }: CancelRequested): void {
  markAsker(run, { from, number });
  run.cancelRequested = true;
  run.note = reason;
}

/** Lets a blocked run go on under `bundle`; empty = the one it has. */
export function decideResume(run: Run, bundle: Uint8Array): RunEvent | Rejection {
  const refusal = refuseUnlessLive(run, "retry");
  if (refusal !== undefined) return refusal;
  if (run.status !== Status.blocked) return { reject: "BAD_REQUEST", message: `Cannot retry ${run.run}: it is not blocked` };
  return { kind: EventKind.runResumed, body: { bundle: bundle.length > 0 ? bundle : run.bundle } };
}

export function applyResumed(run: Run, { bundle }: RunResumed): void {
  run.status = Status.running;
  run.bundle = bundle.slice();
  run.note = "";
  // It is told everything again.
  run.deliveredSeq = run.firstSeq;
}

const endStatus: Readonly<Record<number, RunStatus>> = {
  [EventKind.runCompleted]: Status.completed,
  [EventKind.runFailed]: Status.failed,
  [EventKind.runCancelled]: Status.cancelled,
  [EventKind.runTerminated]: Status.terminated,
  [EventKind.runTimedOut]: Status.timedOut,
};

/** The status of a run whose last event is of that kind. */
export const statusAfter = (kind: number): RunStatus => endStatus[kind] ?? Status.failed;

/** Whether the event is a generation's last. */
export const isTerminal = (kind: number) => endStatus[kind] !== undefined;

export function applyClosed(run: Run, event: RunEvent, timeMs: number): void {
  run.status = statusAfter(event.kind);
  run.closedMs = timeMs;
  clearOperations(run);
  run.compensations = [];
  run.decided = undefined;
  run.note = "";
  if (event.kind === EventKind.runTerminated) markAsker(run, event.body);
  if (event.kind === EventKind.runCompleted) run.result = kept(event.body.result);
  else if (event.kind === EventKind.runFailed) run.failure = event.body.failure;
  else if (event.kind === EventKind.runCancelled || event.kind === EventKind.runTerminated) run.note = event.body.reason;
}

/** The run's own operations are over; replays of dead letters are no run's. */
export function clearOperations(run: Run): void {
  for (const op of run.pending.keys()) if (!isReplayOp(op)) run.pending.delete(op);
  run.unclaimed.clear();
}

/** How a closed run ended, as callers are told. */
export function outcomeOf(run: Run): Outcome {
  const failure = run.failure ?? endFailure(run);
  return { status: run.status, result: run.result, failure };
}

function endFailure(run: Run) {
  const text: Partial<Record<RunStatus, [string, string]>> = {
    [Status.cancelled]: ["CancelledError", `Run ${run.run} was cancelled${run.note === "" ? "" : `: ${run.note}`}`],
    [Status.terminated]: ["TerminatedError", `Run ${run.run} was terminated${run.note === "" ? "" : `: ${run.note}`}`],
    [Status.timedOut]: ["DeadlineError", `Run ${run.run} passed its execution deadline`],
  };
  const found = text[run.status];
  return found && failureOf(...found, { nonRetryable: true });
}
