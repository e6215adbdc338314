/** Holding a run: it keeps its state and takes what reaches it, and goes on from there when it is unpaused. */
import type { Rejection } from "#core/base";
import { EventKind, RunStatus } from "#proto";
import { refuseUnlessLive } from "./close.ts";
import type { RunEvent } from "./event.ts";
import type { Run } from "./state.ts";

export const isPaused = (run: Run) => run.status === RunStatus.paused;

export function decidePause(run: Run, reason: string): RunEvent | "already" | Rejection {
  const refusal = refuseUnlessLive(run, "pause");
  if (refusal !== undefined) return refusal;
  if (isPaused(run)) return "already";
  if (run.status === RunStatus.blocked) {
    return { reject: "BAD_REQUEST", message: `Cannot pause ${run.run}: it is blocked, and goes on only when it is retried` };
  }
  return { kind: EventKind.runPaused, body: { reason } };
}

export function decideUnpause(run: Run, reason: string): RunEvent | "already" | Rejection {
  const refusal = refuseUnlessLive(run, "unpause");
  if (refusal !== undefined) return refusal;
  if (run.status === RunStatus.blocked) {
    return { reject: "BAD_REQUEST", message: `Cannot unpause ${run.run}: it is blocked, let it go on with \`hop workflow retry\`` };
  }
  // Asked again after a lost reply, it is what was wanted.
  return isPaused(run) ? { kind: EventKind.runUnpaused, body: { reason } } : "already";
}

export function applyPaused(run: Run, reason: string): void {
  run.status = RunStatus.paused;
  run.note = reason;
}

export function applyUnpaused(run: Run): void {
  run.status = RunStatus.running;
  run.note = "";
}
