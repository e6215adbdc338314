/** Folds one event into a run: a switch, with the logic in the file of each kind. */
import { EventKind as Kind, RunStatus } from "#proto";
import { applyRetried, applyScheduled } from "./activity.ts";
import { applyChannel, isOfChannel } from "./channel.ts";
import { applyToChannelUse, leaveChannels } from "./channel-use.ts";
import { applyToChild, closeChildren } from "./child.ts";
import { applyCancelRequested, applyClosed, applyResumed, statusAfter } from "./close.ts";
import {
  applyCompensationCompleted,
  applyCompensationFailed,
  applyCompensationStarted,
  applyRegistered,
  applyUnwindStarted,
  applyWithdrawn,
} from "./compensation.ts";
import { applyLetterReplayed, settleLetter } from "./dead-letter.ts";
import { type EventOf, isForGuest, type RunEvent } from "./event.ts";
import { applyHistoryExpired } from "./expiry.ts";
import { applyGranted, applyKey, applyOver, isOfKey, releaseKeys } from "./idempotency.ts";
import { tellAwaiters } from "./inbox.ts";
import { applyToMethod, closeCalls } from "./method.ts";
import { applyPaused, applyUnpaused } from "./pause.ts";
import { applyToQueue } from "./queue.ts";
import { applyToRemote, cancelWaits } from "./remote.ts";
import { applyToRemoteCall, cancelCalls } from "./remote-call.ts";
import { applySchedule, applyStartOfSchedule, isOfSchedule } from "./schedule.ts";
import { applySearchable } from "./searchable.ts";
import { applySignalAwaited, applySignalReceived } from "./signal.ts";
import { applyStarted } from "./start.ts";
import { type EventPlace, hasGuest, isLive, type Run } from "./state.ts";
import { applyToStream } from "./stream.ts";
import { applyTimerStarted } from "./timer.ts";

/** `inputHash` matters for starts only, queued or not. */
export function applyEvent(run: Run, event: RunEvent, at: EventPlace, inputHash: Uint8Array): void {
  if (isOfSchedule(event)) return applySchedule(run, event, at);
  if (isOfChannel(event)) return applyChannel(run, event, at);
  if (isOfKey(event)) return applyKey(run, event, at);
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
      applyScheduled(run, event.body, at);
      break;
    case Kind.activityRetried:
      applyRetried(run, event.body);
      break;
    case Kind.activityGranted:
      applyGranted(run, event.body);
      break;
    case Kind.activityCompleted:
    case Kind.activityFailed:
    case Kind.activityCancelled:
      applyOver(run, event);
      break;
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
      applySignalReceived(run, event.body);
      break;
    case Kind.signalAwaited:
      applySignalAwaited(run, event.body, at);
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
    case Kind.chunkYielded:
    case Kind.streamConnected:
    case Kind.streamDisconnected:
      applyToStream(run, event);
      break;
    case Kind.historyExpired:
      applyHistoryExpired(run, at.seq);
      break;
    default:
      applyBetweenRuns(run, event, at);
  }
}

/** What the run and others tell each other. */
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
    case Kind.channelSent:
    case Kind.channelSendSettled:
    case Kind.channelSendCancelled:
    case Kind.channelAwaited:
    case Kind.channelReceived:
    case Kind.channelWaitCancelled:
      applyToChannelUse(run, event, at);
      break;
    case Kind.methodCalled:
    case Kind.methodAnswered:
    case Kind.methodCallCancelled:
      applyToMethod(run, event, at.seq);
      break;
    default:
      applyToStack(run, event, at);
  }
}

/** What is owed of the run, and what became of it; every other kind ends the run. */
function applyToStack(run: Run, event: RunEvent, at: EventPlace): void {
  switch (event.kind) {
    case Kind.compensationRegistered:
      applyRegistered(run, event.body, at.seq);
      break;
    case Kind.compensationWithdrawn:
      applyWithdrawn(run, event.body.op);
      break;
    case Kind.unwindStarted:
      leaveOff(run, event.body.status, at.seq);
      applyUnwindStarted(run, event.body, at);
      break;
    case Kind.compensationStarted:
      applyCompensationStarted(run, event.body, at);
      break;
    case Kind.compensationRetried:
      applyRetried(run, event.body);
      break;
    case Kind.compensationCompleted:
      applyCompensationCompleted(run, event.body);
      break;
    case Kind.compensationFailed:
      applyCompensationFailed(run, event.body, at);
      break;
    case Kind.unwindEnded:
      break;
    case Kind.deadLetterReplayed:
      applyLetterReplayed(run, event.body, at);
      break;
    case Kind.deadLetterDropped:
      settleLetter(run, event.body.letter);
      break;
    default:
      applyEnd(run, event, at);
  }
}

function applyEnd(run: Run, event: RunEvent, at: EventPlace): void {
  leaveOff(run, statusAfter(event.kind), at.seq);
  applyClosed(run, event, at.timeMs);
  tellAwaiters(run);
}

/** The run's end is decided: its code goes on no more. */
function leaveOff(run: Run, status: number, seq: number): void {
  releaseKeys(run);
  cancelWaits(run);
  cancelCalls(run);
  leaveChannels(run);
  closeChildren(run, status);
  closeCalls(run, seq);
}

type Steered = EventOf<"cancelRequested" | "runBlocked" | "runResumed" | "runPaused" | "runUnpaused">;

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
