/** Folds one event into a run: a switch, with the logic in the file of each kind. */
import { EventKind as Kind, RunStatus } from "#proto";
import { applyToActivity } from "./activity.ts";
import { applyToChild, closeChildren } from "./child.ts";
import { applyCancelRequested, applyClosed, applyResumed } from "./close.ts";
import { isForGuest, type RunEvent } from "./event.ts";
import { applyHistoryExpired } from "./expiry.ts";
import { tellAwaiters } from "./inbox.ts";
import { applyToMethod, closeCalls } from "./method.ts";
import { applyPaused, applyUnpaused } from "./pause.ts";
import { applyToQueue } from "./queue.ts";
import { applyToRemote, cancelWaits } from "./remote.ts";
import { applyToRemoteCall, cancelCalls } from "./remote-call.ts";
import { applySchedule, applyStartOfSchedule, isOfSchedule } from "./schedule.ts";
import { applySearchable } from "./searchable.ts";
import { applyToSignal } from "./signal.ts";
import { applyStarted } from "./start.ts";
import { type EventPlace, hasGuest, isLive, type Run } from "./state.ts";
import { applyTimerStarted } from "./timer.ts";

/** `inputHash` matters for starts only, queued or not. */
export function applyEvent(run: Run, event: RunEvent, at: EventPlace, inputHash: Uint8Array): void {
  if (isOfSchedule(event)) return applySchedule(run, event, at);
  applyToRun(run, event, at, inputHash);
  if (isLive(run) && hasGuest(run) && isForGuest(event.kind)) run.deliverableEnd = at.seq + 1;
}

function applyToRun(run: Run, event: RunEvent, at: EventPlace, inputHash: Uint8Array): void {
  switch (event.kind) {
    case Kind.runStarted:
      applyStarted(run, event.body, at, inputHash);
      break;
    case Kind.startQueued:
    case Kind.startExpired:
    case Kind.startCancelled:
    case Kind.supersedeRequested:
    case Kind.signalQueued:
      applyToQueue(run, event, at, inputHash);
      break;
    case Kind.activityScheduled:
    case Kind.activityRetried:
      applyToActivity(run, event, at);
      break;
    case Kind.activityCompleted:
    case Kind.activityFailed:
    case Kind.activityCancelled:
    case Kind.timerFired:
    case Kind.timerCancelled:
    case Kind.signalWaitCancelled:
    case Kind.signalSettled:
    case Kind.signalSendCancelled:
    case Kind.cancelSettled:
    case Kind.cancelSendCancelled:
      run.pending.delete(event.body.op);
      break;
    case Kind.timerStarted:
      applyTimerStarted(run, event.body, at);
      break;
    case Kind.signalReceived:
    case Kind.signalAwaited:
      applyToSignal(run, event, at);
      break;
    case Kind.cancelRequested:
    case Kind.runBlocked:
    case Kind.runResumed:
    case Kind.runPaused:
    case Kind.runUnpaused:
      applySteered(run, event);
      break;
    case Kind.searchableSet:
      applySearchable(run, event.body);
      break;
    case Kind.historyExpired:
      applyHistoryExpired(run, at.seq);
      break;
    default:
      applyBetweenRuns(run, event, at);
  }
}

/** What the run and others tell each other; every other kind ends the run. */
function applyBetweenRuns(run: Run, event: RunEvent, at: EventPlace): void {
  switch (event.kind) {
    case Kind.signalSent:
    case Kind.resultAwaited:
    case Kind.resultReceived:
    case Kind.resultWaitCancelled:
      applyToRemote(run, event, at);
      break;
    case Kind.methodCallSent:
    case Kind.methodCallAnswered:
    case Kind.methodCallWithdrawn:
      applyToRemoteCall(run, event, at);
      break;
    case Kind.childSpawned:
    case Kind.childStarted:
    case Kind.childEnded:
    case Kind.cancelSent:
      applyToChild(run, event, at);
      applyStartOfSchedule(run, event);
      break;
    case Kind.methodCalled:
    case Kind.methodAnswered:
    case Kind.methodCallCancelled:
      applyToMethod(run, event, at.seq);
      break;
    default:
      applyEnd(run, event, at);
  }
}

function applyEnd(run: Run, event: RunEvent, at: EventPlace): void {
  cancelWaits(run);
  cancelCalls(run);
  closeChildren(run, event.kind);
  closeCalls(run, at.seq);
  applyClosed(run, event, at.timeMs);
  tellAwaiters(run);
}

type Steered = Extract<
  RunEvent,
  { readonly kind: (typeof Kind)["cancelRequested" | "runBlocked" | "runResumed" | "runPaused" | "runUnpaused"] }
>;

/** How the run stands, without its end. */
function applySteered(run: Run, event: Steered): void {
  switch (event.kind) {
    case Kind.cancelRequested:
      applyCancelRequested(run, event.body);
      break;
    case Kind.runBlocked:
      run.status = RunStatus.blocked;
      run.note = event.body.message;
      break;
    case Kind.runResumed:
      applyResumed(run, event.body);
      break;
    case Kind.runPaused:
      applyPaused(run, event.body.reason);
      break;
    case Kind.runUnpaused:
      applyUnpaused(run);
  }
}
