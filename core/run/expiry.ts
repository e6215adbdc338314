/** The end of a history: what stays of it, and when it may go. */
import { limits } from "#core/base";
import { EventKind, type ExpiredRun, type Identity } from "#proto";
import type { RunEvent } from "./event.ts";
import { isClosed, type Run } from "./state.ts";

/** By which policy a history goes, and the ended runs before the newest that it holds, oldest first. */
export interface Expiry {
  readonly generation: number;
  readonly earlier: readonly ExpiredRun[];
  readonly retentionMs: number;
  /** Namespace that says so, its version, and who set that. */
  readonly policy: string;
  readonly policyVersion: number;
  readonly policyIdentity: Identity | undefined;
}

/** The event by which the whole history up to it goes; undefined where it may not go yet. `peaks` are those of the range so far. */
export function decideExpiry(run: Run, expiry: Expiry, at: { readonly nowMs: number; readonly peaks: Uint8Array }): RunEvent | undefined {
  const { generation, earlier, retentionMs, policy, policyVersion, policyIdentity } = expiry;
  if (!isClosed(run) || run.generation !== generation || run.expiredEnd > run.firstSeq) return undefined;
  if (run.closedMs + retentionMs > at.nowMs) return undefined;
  // Somebody is still to be told how it ended.
  if (run.unsettled > 0 || run.outbox.size > 0 || run.owed.size > 0 || run.awaiters.size > 0) return undefined;
  // And somebody is still to see to what it could not undo.
  if (run.deadLetters.length > 0) return undefined;
  const { type, status, startedMs, closedMs, bundle, note } = run;
  const last = { generation, type, status, startedMs, closedMs, bundle, note: note.slice(0, limits.noteCharsMax).toWellFormed() };
  const named = [...earlier.filter((each) => each.generation < generation).slice(1 - limits.expiredRunsMax), last];
  return { kind: EventKind.historyExpired, body: { peaks: at.peaks, run: named, policy, policyVersion, policyIdentity, retentionMs } };
}

export function applyHistoryExpired(run: Run, seq: number): void {
  run.expiredEnd = seq;
  // What they name is gone with the history.
  run.endings = [];
}

/** Why nothing can be rebuilt from it. */
export const expiredText = ({ expiredEnd }: Run): string =>
  `its history of ${expiredEnd} events was taken away by retention, as event ${expiredEnd} says`;
