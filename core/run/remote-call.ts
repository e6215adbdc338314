/**
 * Calls of other runs' methods, as the run that calls has them.
 *
 * A call carries its **path**: the runs that wait for it, each for the next one. It begins with the run
 * whose own code called, or with the path of the call that its code works on. A call of a run that is on
 * its own path could only be answered after itself: it closes a cycle of waits and is not sent, and
 * the code that made it is told the path. Nothing has to be asked for that, so it holds however the
 * runs are spread, and through every loss.
 */
import { limits, type Partition } from "#core/base";
import { EventKind, type Failure, MessageKind, type MethodCallSent, type MethodCallWithdrawn, type Payload } from "#proto";
import type { EventOf, RunEvent } from "./event.ts";
import { failureOf } from "./failure.ts";
import { enqueue, nextNumber, partitionOf } from "./outbox.ts";
import { closeOperation } from "./sender.ts";
import { type EventPlace, kept, type Operation, openOperation, type Run } from "./state.ts";

export interface MethodCallRequest {
  readonly op: number;
  /** `namespace:instance`. */
  readonly to: string;
  readonly name: string;
  readonly input: Payload | undefined;
  /** Whoever withdraws it, be it by its end, tells the other run. */
  readonly propagates: boolean;
  /** Number of the own call whose code makes this one; 0 = the workflow's own code does. */
  readonly inCall: number;
}

/** One event, or two where the call is not sent and fails at once. */
export function decideMethodCall(run: Run, request: MethodCallRequest): RunEvent[] {
  const { op, to, name, input, propagates, inCall } = request;
  const path = pathOf(run, inCall);
  const failure = refuse(path, request);
  const number = failure === undefined ? nextNumber(run, partitionOf(to)) : 0;
  const sent: RunEvent = { kind: EventKind.methodCallSent, body: { op, to, name, input, number, propagates, path } };
  return failure === undefined ? [sent] : [sent, answered(op, partitionOf(to), failure)];
}

/** Runs that wait for what the code does, the own run last. `inCall` is 0 for the workflow's own code. */
export const pathOf = (run: Run, inCall: number): string[] => [...(run.calls.get(inCall)?.path ?? []), run.run];

/** The runs that would wait for each other if the last one on the path waited for `to`. */
export function cycleOf(path: readonly string[], to: string): string[] | undefined {
  const at = path.indexOf(to);
  return at < 0 ? undefined : [...path.slice(at), to];
}

export const cycleFailure = (what: string, cycle: readonly string[]): Failure =>
  failureOf("CallCycleError", `${what} closes a cycle of runs that wait for each other: ${cycle.join(" → ")}`, { nonRetryable: true });

function refuse(path: readonly string[], { to, name }: MethodCallRequest): Failure | undefined {
  const doing = `Cannot call method ${JSON.stringify(name)} of ${to}`;
  const cycle = cycleOf(path, to);
  if (cycle !== undefined) return cycleFailure(`${doing}: the call`, cycle);
  if (path.length <= limits.callDepthMax) return undefined;
  const message = `${doing}: ${path.length} runs wait for it, each for the next one, at most ${limits.callDepthMax} may`;
  return failureOf("LimitError", message, { nonRetryable: true });
}

const answered = (op: number, from: Partition, failure: Failure): RunEvent => ({
  kind: EventKind.methodCallAnswered,
  body: { op, from, number: 0, generation: 0, result: undefined, failure },
});

/** The other run will not answer: why is told to the code. */
export const callRefused = ({ op }: Operation, to: Partition, failure: Failure) => answered(op, to, failure);

/** A restore lost the answer: the other run may have done what was asked, or not. */
export function decideAnswerLost(o: Operation): RunEvent {
  const message = `The answer of method ${JSON.stringify(o.name)} of ${o.to} was lost by a restore: whether it was done is in that run's history`;
  return answered(o.op, partitionOf(o.to), failureOf("AnswerLostError", message, { nonRetryable: true }));
}

/** Nobody waits for the answer any more. */
export function decideCallWithdrawn(run: Run, { op, to, propagates }: Operation): RunEvent {
  return { kind: EventKind.methodCallWithdrawn, body: { op, to, number: propagates ? nextNumber(run, partitionOf(to)) : 0 } };
}

type CallEvent = EventOf<"methodCallSent" | "methodCallAnswered" | "methodCallWithdrawn">;

export function applyToRemoteCall(run: Run, event: CallEvent, at: EventPlace): void {
  switch (event.kind) {
    case EventKind.methodCallSent:
      return applySent(run, event.body, at);
    case EventKind.methodCallAnswered:
      return closeOperation(run, event.body);
    case EventKind.methodCallWithdrawn:
      return applyWithdrawn(run, event.body);
  }
}

function applySent(run: Run, { op, to, name, input, number, propagates, path }: MethodCallSent, at: EventPlace): void {
  openOperation(run, at, { op, kind: EventKind.methodCallSent, name, to, propagates });
  if (number === 0) return;
  enqueue(run, partitionOf(to), { kind: MessageKind.call, op, generation: run.generation, name, payload: kept(input), path });
}

function applyWithdrawn(run: Run, { op, to, number }: MethodCallWithdrawn): void {
  run.pending.delete(op);
  if (number > 0) tell(run, { op, to });
}

/** The run has ended: calls that are to end with it are cancelled. */
export function cancelCalls(run: Run): void {
  for (const o of run.pending.values()) if (o.kind === EventKind.methodCallSent && o.propagates) tell(run, o);
}

function tell(run: Run, { op, to }: Pick<Operation, "op" | "to">): void {
  enqueue(run, partitionOf(to), { kind: MessageKind.callCancelled, op, generation: run.generation, reason: `${run.run} waits no more` });
}
