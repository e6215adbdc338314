/** Events of a run: their codec, and which of them are for the guest. The union of them is generated from the schema. */
import { decodeRunEvent, EventKind, Reader, type RunEvent } from "#proto";

export { encodeRunEvent as encodeBody, type RunEvent } from "#proto";

/** The events of these kinds. */
export type EventOf<K extends keyof typeof EventKind> = Extract<RunEvent, { readonly kind: (typeof EventKind)[K] }>;

/** The event of a payload, or undefined where this version does not know the kind. Throws `CodecError`. */
export function decodeBody(kind: number, payload: Uint8Array): RunEvent | undefined {
  return decodeRunEvent(kind, new Reader(payload), payload.length);
}

/** Whether the workflow's code is told of it. */
export function isForGuest(kind: number): boolean {
  return (
    kind === EventKind.activityCompleted ||
    kind === EventKind.timerFired ||
    kind === EventKind.signalReceived ||
    kind === EventKind.activityFailed ||
    kind === EventKind.chunkYielded ||
    kind === EventKind.methodCalled ||
    kind === EventKind.methodCallCancelled ||
    kind === EventKind.methodCallAnswered ||
    kind === EventKind.channelReceived ||
    kind === EventKind.channelSendSettled ||
    kind === EventKind.signalSettled ||
    kind === EventKind.resultReceived ||
    kind === EventKind.childStarted ||
    kind === EventKind.childEnded ||
    kind === EventKind.cancelSettled ||
    kind === EventKind.runStarted ||
    kind === EventKind.cancelRequested
  );
}
