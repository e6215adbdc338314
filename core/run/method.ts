/**
 * Calls of a run's methods: each is an event, and so is the answer of the run's code.
 *
 * A call is open from the one to the other. A run that ends takes the answers that are still owed
 * with it: nobody is left to give them. Answers to calls with an id are remembered, over the run's
 * generations too, so that a call that is sent again is the same call.
 */
import { limits, type Partition, type Reason, type Rejection } from "#core/base";
import {
  type AnsweredCall,
  EventKind,
  type Message,
  MessageKind,
  type MethodAnswered,
  type MethodCallCancelled,
  type MethodCalled,
  type OpenCall,
  RunStatus,
} from "#proto";
import { refuseUnlessLive } from "./close.ts";
import type { EventOf, RunEvent } from "./event.ts";
import { failureOf } from "./failure.ts";
import { enqueue } from "./outbox.ts";
import { markAsker } from "./sender.ts";
import { isClosed, kept, type Run } from "./state.ts";

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
  return { kind: EventKind.methodCalled, body: { ...byClient, call: run.lastCall + 1, name, input, id } };
}

const byClient = { from: "", number: 0, op: 0, generation: 0, path: [] };

/** A call by another run. It has no id: messages are taken once. */
export function takeCall(run: Run, from: Partition, message: Message): RunEvent | Reason {
  if (run.generation === 0) return "RUN_NOT_FOUND";
  if (isClosed(run) || run.status === RunStatus.compensating) return "RUN_CLOSED";
  if (run.calls.size >= limits.openCallsMax) return "BUFFER_FULL";
  const { name, payload: input, number, op, generation, path } = message;
  return { kind: EventKind.methodCalled, body: { call: run.lastCall + 1, name, input, id: "", from, number, op, generation, path } };
}

/** Undefined: it has its answer, or was cancelled before. */
export function takeCallCancelled(run: Run, from: Partition, { op, generation, reason, number }: Message): RunEvent | undefined {
  for (const open of run.calls.values()) {
    if (open.from !== from || open.op !== op || open.generation !== generation || open.cancelled) continue;
    return { kind: EventKind.methodCallCancelled, body: { call: open.call, reason, from, number } };
  }
  return undefined;
}

function findCall(run: Run, id: string): FoundCall | undefined {
  for (const open of run.calls.values()) if (open.id === id) return { kind: "open", open };
  const answered = run.answeredCalls.find((one) => one.id === id);
  return answered && { kind: "answered", answered };
}

type MethodEvent = EventOf<"methodCalled" | "methodAnswered" | "methodCallCancelled">;

export function applyToMethod(run: Run, event: MethodEvent, seq: number): void {
  switch (event.kind) {
    case EventKind.methodCalled:
      return applyCalled(run, event.body);
    case EventKind.methodAnswered:
      return applyAnswered(run, event.body, seq);
    case EventKind.methodCallCancelled:
      return applyCallCancelled(run, event.body);
  }
}

function applyCalled(run: Run, { call, name, id, from, number, op, generation, path }: MethodCalled): void {
  markAsker(run, { from, number });
  run.lastCall = call;
  run.calls.set(call, { call, name, id, from, op, generation, path, cancelled: false });
}

function applyCallCancelled(run: Run, { call, from, number }: MethodCallCancelled): void {
  markAsker(run, { from, number });
  const open = run.calls.get(call);
  if (open !== undefined) run.calls.set(call, { ...open, cancelled: true });
}

export function decideAnswer(answer: MethodAnswered): RunEvent {
  return { kind: EventKind.methodAnswered, body: answer };
}

function applyAnswered(run: Run, body: MethodAnswered, seq: number): void {
  const open = run.calls.get(body.call);
  run.calls.delete(body.call);
  if (open === undefined) return;
  const answer = { ...body, result: kept(body.result) };
  remember(run, open, seq, answer);
  tellCaller(run, open, answer);
}

/** Nothing where a client called: who of them waits is not part of the state. */
function tellCaller(run: Run, { from, op, generation }: OpenCall, { result, failure }: Pick<MethodAnswered, "result" | "failure">): void {
  if (from === "") return;
  const said = { of: run.generation, payload: result, failure };
  enqueue(run, from as Partition, { kind: MessageKind.callAnswered, op, generation, ...said });
}

/** In the place of an answer that the run did not give before it ended. */
const noAnswer: MethodAnswered = { call: 0, result: undefined, failure: undefined, rejected: false };

/** The run has ended by its event `seq`: calls without an answer get none. */
export function closeCalls(run: Run, seq: number): void {
  for (const open of run.calls.values()) {
    remember(run, open, seq, noAnswer);
    const message = `Cannot wait for ${callText(run, open.name)}: it ended before it answered`;
    tellCaller(run, open, { result: undefined, failure: failureOf("RunClosedError", message, { nonRetryable: true }) });
  }
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
