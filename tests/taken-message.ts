/** Which message of another partition an event is the taking of. */
import type { RunEvent } from "#core/run";
import { EventKind, type StartedBy } from "#proto";

export interface TakenMessage {
  readonly from: string;
  readonly number: number;
}

/** Undefined where the event is not taken from anybody: a client's, or Core's own. */
export function takenIn(event: RunEvent): TakenMessage | undefined {
  const body = event.body as Partial<TakenMessage> & { readonly startedBy?: StartedBy; readonly ticket?: number };
  // A start that waited was taken when it was queued.
  const isBegun = event.kind === EventKind.runStarted && (body.ticket ?? 0) > 0;
  const from = isBegun ? undefined : (body.startedBy?.partition ?? body.from);
  const number = body.startedBy?.number ?? body.number ?? 0;
  return from === undefined || number === 0 ? undefined : { from, number };
}
