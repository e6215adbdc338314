/** Signals: buffered in order, each taken by one wait. */
import { limits, type Rejection } from "#core/base";
import { EventKind, type SignalAwaited, type SignalReceived } from "#proto";
import { refuseUnlessLive } from "./close.ts";
import type { RunEvent } from "./event.ts";
import { markAsker } from "./sender.ts";
import { type EventPlace, openOperation, type Run } from "./state.ts";

/** What a client sends. */
export type SignalRequest = Pick<SignalReceived, "name" | "payload" | "id">;

export function decideSignal(run: Run, body: SignalReceived): RunEvent | "duplicate" | Rejection {
  const { id } = body;
  if (run.generation === 0) return { reject: "RUN_NOT_FOUND", message: `Cannot signal ${run.run}: there is no such run` };
  if (id !== "" && run.signalIds.includes(id)) return "duplicate";
  return refuseUnlessLive(run, "signal") ?? { kind: EventKind.signalReceived, body };
}

export function applySignalReceived(run: Run, body: SignalReceived): void {
  markAsker(run, body);
  rememberSignal(run, body.id);
  for (const o of run.pending.values()) {
    if (o.kind === EventKind.signalAwaited && o.name === body.name) {
      run.pending.delete(o.op);
      return;
    }
  }
  run.unclaimed.set(body.name, (run.unclaimed.get(body.name) ?? 0) + 1);
}

/** A signal with the id was received; empty = it has none. */
export function rememberSignal(run: Run, id: string): void {
  if (id === "" || run.signalIds.includes(id)) return;
  run.signalIds.push(id);
  if (run.signalIds.length > limits.signalIdsKept) run.signalIds.shift();
}

export function applySignalAwaited(run: Run, body: SignalAwaited, at: EventPlace): void {
  run.nextOp = body.op + 1;
  const waiting = run.unclaimed.get(body.name) ?? 0;
  if (waiting > 0) {
    if (waiting === 1) run.unclaimed.delete(body.name);
    else run.unclaimed.set(body.name, waiting - 1);
    return;
  }
  openOperation(run, at, { op: body.op, kind: EventKind.signalAwaited, name: body.name });
}
