/**
 * Calls of a run's methods: each is an event, and so is the answer of the run's code.
 *
 * A call is open from the one to the other. A run that ends takes the answers that are still owed
 * with it: nobody is left to give them. Answers to calls with an id are remembered, over the run's
 * generations too, so that a call that is sent again is the same call.
 */
import { limits, type Rejection } from "#core/base";
import { type AnsweredCall, EventKind, type MethodAnswered, type MethodCalled, type OpenCall, RunStatus } from "#proto";
import { refuseUnlessLive } from "./close.ts";
import type { RunEvent } from "./event.ts";
import { kept, type Run } from "./state.ts";

/** What a client calls. `id` may be empty: the call is then never taken for one that was sent before. */
export type CallRequest = Pick<MethodCalled, "name" | "input" | "id">;

/** The call was made before. */
export type FoundCall = { readonly kind: "open"; readonly open: OpenCall } | { readonly kind: "answered"; readonly answered: AnsweredCall };

/** How a call is written where a message names it. */
export const callText = (run: Pick<Run, "run">, name: string) => `method ${JSON.stringify(name)} of ${run.run}`;

export function decideCall(run: Run, { name, input, id }: CallRequest): RunEvent | FoundCall | Rejection {
  const found = id === "" ? undefined : findCall(run, id);
  if (found !== undefined) {
    const before = found.kind === "open" ? found.open.name : found.answered.name;
    if (before === name) return found;
    const message = `Cannot call ${callText(run, name)}: the call with id ${JSON.stringify(id)} was one of method ${JSON.stringify(before)}`;
    return { reject: "IDEMPOTENCY_CONFLICT", message };
  }
  const refusal = refuseUnlessLive(run, `call method ${JSON.stringify(name)} of`);
  if (refusal !== undefined) return refusal;
  if (run.status === RunStatus.blocked) {
    return { reject: "RUN_BLOCKED", message: `Cannot call ${callText(run, name)}: it is blocked: ${run.note}` };
  }
  if (run.calls.size >= limits.openCallsMax) {
    const message = `Cannot call ${callText(run, name)}: ${run.calls.size} calls have no answer yet, at most ${limits.openCallsMax} may be open`;
    return { reject: "BUFFER_FULL", message, retryAfterMs: 200 };
  }
  return { kind: EventKind.methodCalled, body: { call: run.lastCall + 1, name, input, id } };
}

function findCall(run: Run, id: string): FoundCall | undefined {
  for (const open of run.calls.values()) if (open.id === id) return { kind: "open", open };
  const answered = run.answeredCalls.find((one) => one.id === id);
  return answered && { kind: "answered", answered };
}

type MethodKind = "methodCalled" | "methodAnswered";
type MethodEvent = Extract<RunEvent, { kind: (typeof EventKind)[MethodKind] }>;

export function applyToMethod(run: Run, event: MethodEvent, seq: number): void {
  if (event.kind === EventKind.methodCalled) applyCalled(run, event.body);
  else applyAnswered(run, event.body, seq);
}

function applyCalled(run: Run, { call, name, id }: MethodCalled): void {
  run.lastCall = call;
  run.calls.set(call, { call, name, id });
}

export function decideAnswer(answer: MethodAnswered): RunEvent {
  return { kind: EventKind.methodAnswered, body: answer };
}

function applyAnswered(run: Run, body: MethodAnswered, seq: number): void {
  const open = run.calls.get(body.call);
  run.calls.delete(body.call);
  if (open !== undefined) remember(run, open, seq, { ...body, result: kept(body.result) });
}

/** In the place of an answer that the run did not give before it ended. */
const noAnswer: MethodAnswered = { call: 0, result: undefined, failure: undefined, rejected: false };

/** The run has ended by its event `seq`: calls without an answer get none. */
export function closeCalls(run: Run, seq: number): void {
  for (const open of run.calls.values()) remember(run, open, seq, noAnswer);
  run.calls.clear();
}

function remember(run: Run, { id, name }: OpenCall, seq: number, answer: MethodAnswered): void {
  if (id === "") return;
  const latest = [...run.answeredCalls, { id, name, seq, answer }].slice(-limits.answeredCallsKept);
  let bytes = 0;
  run.answeredCalls = latest
    .reverse()
    .map((one) => {
      bytes += bytesOf(one);
      return bytes > limits.answeredBytesKept && one.answer !== undefined ? { ...one, answer: undefined } : one;
    })
    .reverse();
}

const bytesOf = ({ answer }: AnsweredCall): number =>
  (answer?.result?.data.length ?? 0) + (answer?.failure?.stack.length ?? 0) + (answer?.failure?.details?.data.length ?? 0);
