/** Durable timers: any length up to a hundred years, never early, exactly once. */
import { limits } from "#core/base";
import { EventKind, type TimerStarted } from "#proto";
import type { RunEvent } from "./event.ts";
import { openOperation, type Run } from "./state.ts";

/** A timer of `durationMs` from `timeMs` on. */
export function decideTimer(op: number, durationMs: number, timeMs: number): RunEvent {
  const bounded = Math.min(Math.max(Math.ceil(durationMs), 0), limits.timerMsMax);
  return { kind: EventKind.timerStarted, body: { op, dueMs: timeMs + bounded, durationMs: bounded } };
}

export function applyTimerStarted(run: Run, body: TimerStarted, at: { seq: number; timeMs: number }): void {
  openOperation(run, at, { op: body.op, kind: EventKind.timerStarted, dueMs: Math.max(body.dueMs, 1) });
}
