/**
 * Methods: calls reach the handlers that the workflow declares, and what a handler gives is the answer.
 *
 * A handler begins at once when its call is delivered, beside all else that the run does; calls of a
 * method that is not declared yet wait for its declaration, in their order.
 */
import { CancelledError } from "#sdk/runtime";
import type { Engine } from "#sdk/runtime/engine";
import { record } from "../protocol.ts";
import { cancelScope } from "./cancel.ts";
import { within } from "./context.ts";
import { toFailure } from "./failure.ts";
import { actingRun, fullAddress, intercept, nextOp, pend } from "./operations.ts";
import { fromJson, toJson } from "./payload.ts";
import { changingRun, type Method, type MethodCall, type Run } from "./run.ts";
import { currentCall, Scope } from "./scope.ts";

export const methodOperations: Pick<Engine, "callWorkflow" | "method"> = {
  method(name, handler, validate) {
    const run = changingRun("method()");
    run.methods.set(name, { handler, validate });
    if (run.calls.some((one) => one.name === name)) Promise.resolve().then(() => takeWaiting(run, name));
  },

  callWorkflow(address, method, input, propagates) {
    const run = actingRun("callWorkflow()");
    const json = toJson(input, `Input of method "${method}"`);
    const instead = intercept(run);
    if (instead !== undefined) return instead;
    const to = fullAddress(run, address);
    const op = nextOp(run, json.length);
    run.emit(record.callMethod, op, to, method, propagates ? "1" : "0", currentCall(run), json);
    return pend(run, op, "call", to);
  },
};

/** `head`: JSON `[call, name]`. */
export function callMethod(run: Run, head: string, input: string): void {
  if (run.ended) return;
  const [call, name] = JSON.parse(head) as [number, string];
  const method = run.methods.get(name);
  // Those that wait for a declaration go before it.
  if (method === undefined || run.calls.some((one) => one.name === name)) run.calls.push({ call, name, input });
  else begin(run, method, { call, name, input });
}

/** The method was declared: what waits for it begins. */
function takeWaiting(run: Run, name: string): void {
  const method = run.methods.get(name);
  if (method === undefined || run.ended) return;
  const waiting = run.calls.filter((one) => one.name === name);
  run.calls = run.calls.filter((one) => one.name !== name);
  for (const call of waiting) begin(run, method, call);
}

/** Nobody waits for the answer any more: the handler is told at what it waits for, or at its next operation. */
export function cancelCall(run: Run, call: number, reason: string): void {
  if (run.ended) return;
  const waiting = run.calls.find((one) => one.call === call);
  const scope = run.callScopes.get(call);
  if (scope !== undefined) cancelScope(run, scope, reason);
  else if (waiting !== undefined) {
    run.calls = run.calls.filter((one) => one !== waiting);
    answerFailed(run, call, new CancelledError(reason), false);
  }
}

/** The run ends, and never declared what these call. */
export function refuseWaiting(run: Run): void {
  const names = [...run.methods.keys()].map((name) => JSON.stringify(name));
  const declared = names.length === 0 ? "it declared none" : `it declared ${names.join(", ")}`;
  for (const { call, name } of run.calls.splice(0)) {
    const message = `Run ${run.name} ended without declaring method ${JSON.stringify(name)}: ${declared}`;
    run.emit(record.failCall, call, JSON.stringify({ type: "MethodNotFoundError", message, nonRetryable: true }), "1");
  }
}

function begin(run: Run, method: Method, { call, name, input }: MethodCall): void {
  let value: unknown;
  try {
    value = fromJson(input, `Input of method "${name}"`);
    validate(run, method, name, value);
  } catch (error) {
    answerFailed(run, call, error, true);
    return;
  }
  const scope = new Scope(run.scope, false, call);
  run.callScopes.set(call, scope);
  within(scope, () => handle(method, value)).then(
    (result) => answer(run, { call, name }, result),
    (error: unknown) => answerFailed(run, call, error, false),
  );
}

async function handle({ handler }: Method, value: unknown): Promise<unknown> {
  return await handler(value);
}

function validate(run: Run, { validate: check }: Method, name: string, value: unknown): void {
  if (check === undefined) return;
  run.reading = "validator";
  try {
    const given = check(value);
    if (typeof given === "object" && given !== null && "then" in given && typeof given.then === "function") {
      throw new TypeError(`The validator of method "${name}" gave a promise: it says at once whether an input passes`);
    }
  } finally {
    run.reading = "no";
  }
}

function answer(run: Run, { call, name }: Pick<MethodCall, "call" | "name">, result: unknown): void {
  if (run.ended) return;
  run.callScopes.delete(call);
  try {
    run.emit(record.answerCall, call, toJson(result, `Result of method "${name}"`));
  } catch (error) {
    answerFailed(run, call, error, false);
  }
}

function answerFailed(run: Run, call: number, error: unknown, rejected: boolean): void {
  if (run.ended) return;
  run.callScopes.delete(call);
  run.emit(record.failCall, call, JSON.stringify(toFailure(error)), rejected ? "1" : "0");
}
