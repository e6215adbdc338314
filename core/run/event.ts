/** Events of a run: the union, its codec, and which of them are for the guest. */
import {
  type ActivityCancelled,
  type ActivityCompleted,
  type ActivityFailed,
  type ActivityRetried,
  type ActivityScheduled,
  type CancelRequested,
  decodeActivityCancelled,
  decodeActivityCompleted,
  decodeActivityFailed,
  decodeActivityRetried,
  decodeActivityScheduled,
  decodeCancelRequested,
  decodeHistoryExpired,
  decodeResultAwaited,
  decodeResultReceived,
  decodeResultWaitCancelled,
  decodeRunBlocked,
  decodeRunCancelled,
  decodeRunCompleted,
  decodeRunFailed,
  decodeRunResumed,
  decodeRunStarted,
  decodeRunTerminated,
  decodeRunTimedOut,
  decodeSignalAwaited,
  decodeSignalQueued,
  decodeSignalReceived,
  decodeSignalSendCancelled,
  decodeSignalSent,
  decodeSignalSettled,
  decodeSignalWaitCancelled,
  decodeStartCancelled,
  decodeStartExpired,
  decodeStartQueued,
  decodeSupersedeRequested,
  decodeTimerCancelled,
  decodeTimerFired,
  decodeTimerStarted,
  EventKind,
  encodeActivityCancelled,
  encodeActivityCompleted,
  encodeActivityFailed,
  encodeActivityRetried,
  encodeActivityScheduled,
  encodeCancelRequested,
  encodeHistoryExpired,
  encodeResultAwaited,
  encodeResultReceived,
  encodeResultWaitCancelled,
  encodeRunBlocked,
  encodeRunCancelled,
  encodeRunCompleted,
  encodeRunFailed,
  encodeRunResumed,
  encodeRunStarted,
  encodeRunTerminated,
  encodeRunTimedOut,
  encodeSignalAwaited,
  encodeSignalQueued,
  encodeSignalReceived,
  encodeSignalSendCancelled,
  encodeSignalSent,
  encodeSignalSettled,
  encodeSignalWaitCancelled,
  encodeStartCancelled,
  encodeStartExpired,
  encodeStartQueued,
  encodeSupersedeRequested,
  encodeTimerCancelled,
  encodeTimerFired,
  encodeTimerStarted,
  fromBytes,
  type HistoryExpired,
  type ResultAwaited,
  type ResultReceived,
  type ResultWaitCancelled,
  type RunBlocked,
  type RunCancelled,
  type RunCompleted,
  type RunFailed,
  type RunResumed,
  type RunStarted,
  type RunTerminated,
  type RunTimedOut,
  type SignalAwaited,
  type SignalQueued,
  type SignalReceived,
  type SignalSendCancelled,
  type SignalSent,
  type SignalSettled,
  type SignalWaitCancelled,
  type StartCancelled,
  type StartExpired,
  type StartQueued,
  type SupersedeRequested,
  type TimerCancelled,
  type TimerFired,
  type TimerStarted,
  type Writer,
} from "#proto";

export type RunEvent =
  | { readonly kind: typeof EventKind.runStarted; readonly body: RunStarted }
  | { readonly kind: typeof EventKind.runCompleted; readonly body: RunCompleted }
  | { readonly kind: typeof EventKind.runFailed; readonly body: RunFailed }
  | { readonly kind: typeof EventKind.runCancelled; readonly body: RunCancelled }
  | { readonly kind: typeof EventKind.runTerminated; readonly body: RunTerminated }
  | { readonly kind: typeof EventKind.runTimedOut; readonly body: RunTimedOut }
  | { readonly kind: typeof EventKind.runBlocked; readonly body: RunBlocked }
  | { readonly kind: typeof EventKind.runResumed; readonly body: RunResumed }
  | { readonly kind: typeof EventKind.cancelRequested; readonly body: CancelRequested }
  | { readonly kind: typeof EventKind.historyExpired; readonly body: HistoryExpired }
  | { readonly kind: typeof EventKind.startQueued; readonly body: StartQueued }
  | { readonly kind: typeof EventKind.startExpired; readonly body: StartExpired }
  | { readonly kind: typeof EventKind.startCancelled; readonly body: StartCancelled }
  | { readonly kind: typeof EventKind.supersedeRequested; readonly body: SupersedeRequested }
  | { readonly kind: typeof EventKind.activityScheduled; readonly body: ActivityScheduled }
  | { readonly kind: typeof EventKind.activityCompleted; readonly body: ActivityCompleted }
  | { readonly kind: typeof EventKind.activityFailed; readonly body: ActivityFailed }
  | { readonly kind: typeof EventKind.activityRetried; readonly body: ActivityRetried }
  | { readonly kind: typeof EventKind.activityCancelled; readonly body: ActivityCancelled }
  | { readonly kind: typeof EventKind.timerStarted; readonly body: TimerStarted }
  | { readonly kind: typeof EventKind.timerFired; readonly body: TimerFired }
  | { readonly kind: typeof EventKind.timerCancelled; readonly body: TimerCancelled }
  | { readonly kind: typeof EventKind.signalReceived; readonly body: SignalReceived }
  | { readonly kind: typeof EventKind.signalAwaited; readonly body: SignalAwaited }
  | { readonly kind: typeof EventKind.signalWaitCancelled; readonly body: SignalWaitCancelled }
  | { readonly kind: typeof EventKind.signalQueued; readonly body: SignalQueued }
  | { readonly kind: typeof EventKind.signalSent; readonly body: SignalSent }
  | { readonly kind: typeof EventKind.signalSettled; readonly body: SignalSettled }
  | { readonly kind: typeof EventKind.signalSendCancelled; readonly body: SignalSendCancelled }
  | { readonly kind: typeof EventKind.resultAwaited; readonly body: ResultAwaited }
  | { readonly kind: typeof EventKind.resultReceived; readonly body: ResultReceived }
  | { readonly kind: typeof EventKind.resultWaitCancelled; readonly body: ResultWaitCancelled };

/** Writes the payload that belongs to the event's kind. */
export function encodeBody(w: Writer, e: RunEvent): void {
  switch (e.kind) {
    case EventKind.runStarted:
      return encodeRunStarted(w, e.body);
    case EventKind.runCompleted:
      return encodeRunCompleted(w, e.body);
    case EventKind.runFailed:
      return encodeRunFailed(w, e.body);
    case EventKind.runCancelled:
      return encodeRunCancelled(w, e.body);
    case EventKind.runTerminated:
      return encodeRunTerminated(w, e.body);
    case EventKind.runTimedOut:
      return encodeRunTimedOut(w, e.body);
    case EventKind.runBlocked:
      return encodeRunBlocked(w, e.body);
    case EventKind.runResumed:
      return encodeRunResumed(w, e.body);
    case EventKind.cancelRequested:
      return encodeCancelRequested(w, e.body);
    case EventKind.historyExpired:
      return encodeHistoryExpired(w, e.body);
    case EventKind.startQueued:
      return encodeStartQueued(w, e.body);
    case EventKind.startExpired:
      return encodeStartExpired(w, e.body);
    case EventKind.startCancelled:
      return encodeStartCancelled(w, e.body);
    case EventKind.supersedeRequested:
      return encodeSupersedeRequested(w, e.body);
    case EventKind.activityScheduled:
      return encodeActivityScheduled(w, e.body);
    case EventKind.activityCompleted:
      return encodeActivityCompleted(w, e.body);
    case EventKind.activityFailed:
      return encodeActivityFailed(w, e.body);
    case EventKind.activityRetried:
      return encodeActivityRetried(w, e.body);
    case EventKind.activityCancelled:
      return encodeActivityCancelled(w, e.body);
    case EventKind.timerStarted:
      return encodeTimerStarted(w, e.body);
    case EventKind.timerFired:
      return encodeTimerFired(w, e.body);
    case EventKind.timerCancelled:
      return encodeTimerCancelled(w, e.body);
    case EventKind.signalReceived:
      return encodeSignalReceived(w, e.body);
    case EventKind.signalAwaited:
      return encodeSignalAwaited(w, e.body);
    case EventKind.signalWaitCancelled:
      return encodeSignalWaitCancelled(w, e.body);
    case EventKind.signalQueued:
      return encodeSignalQueued(w, e.body);
    case EventKind.signalSent:
      return encodeSignalSent(w, e.body);
    case EventKind.signalSettled:
      return encodeSignalSettled(w, e.body);
    case EventKind.signalSendCancelled:
      return encodeSignalSendCancelled(w, e.body);
    case EventKind.resultAwaited:
      return encodeResultAwaited(w, e.body);
    case EventKind.resultReceived:
      return encodeResultReceived(w, e.body);
    case EventKind.resultWaitCancelled:
      return encodeResultWaitCancelled(w, e.body);
  }
}

const decoders = {
  [EventKind.runStarted]: decodeRunStarted,
  [EventKind.runCompleted]: decodeRunCompleted,
  [EventKind.runFailed]: decodeRunFailed,
  [EventKind.runCancelled]: decodeRunCancelled,
  [EventKind.runTerminated]: decodeRunTerminated,
  [EventKind.runTimedOut]: decodeRunTimedOut,
  [EventKind.runBlocked]: decodeRunBlocked,
  [EventKind.runResumed]: decodeRunResumed,
  [EventKind.cancelRequested]: decodeCancelRequested,
  [EventKind.historyExpired]: decodeHistoryExpired,
  [EventKind.startQueued]: decodeStartQueued,
  [EventKind.startExpired]: decodeStartExpired,
  [EventKind.startCancelled]: decodeStartCancelled,
  [EventKind.supersedeRequested]: decodeSupersedeRequested,
  [EventKind.activityScheduled]: decodeActivityScheduled,
  [EventKind.activityCompleted]: decodeActivityCompleted,
  [EventKind.activityFailed]: decodeActivityFailed,
  [EventKind.activityRetried]: decodeActivityRetried,
  [EventKind.activityCancelled]: decodeActivityCancelled,
  [EventKind.timerStarted]: decodeTimerStarted,
  [EventKind.timerFired]: decodeTimerFired,
  [EventKind.timerCancelled]: decodeTimerCancelled,
  [EventKind.signalReceived]: decodeSignalReceived,
  [EventKind.signalAwaited]: decodeSignalAwaited,
  [EventKind.signalWaitCancelled]: decodeSignalWaitCancelled,
  [EventKind.signalQueued]: decodeSignalQueued,
  [EventKind.signalSent]: decodeSignalSent,
  [EventKind.signalSettled]: decodeSignalSettled,
  [EventKind.signalSendCancelled]: decodeSignalSendCancelled,
  [EventKind.resultAwaited]: decodeResultAwaited,
  [EventKind.resultReceived]: decodeResultReceived,
  [EventKind.resultWaitCancelled]: decodeResultWaitCancelled,
} as const;

/** The event of a payload, or undefined where this version does not know the kind. */
export function decodeBody(kind: number, payload: Uint8Array): RunEvent | undefined {
  const decode = (decoders as Record<number, ((...a: never[]) => unknown) | undefined>)[kind];
  if (decode === undefined) return undefined;
  return { kind, body: fromBytes(decode as typeof decodeRunStarted, payload) } as RunEvent;
}

/** Whether the workflow's code is told of it. */
export function isForGuest(kind: number): boolean {
  return (
    kind === EventKind.activityCompleted ||
    kind === EventKind.timerFired ||
    kind === EventKind.signalReceived ||
    kind === EventKind.activityFailed ||
    kind === EventKind.signalSettled ||
    kind === EventKind.resultReceived ||
    kind === EventKind.runStarted ||
    kind === EventKind.cancelRequested
  );
}
