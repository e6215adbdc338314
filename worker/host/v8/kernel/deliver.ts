/** Deliveries to runs: each makes the workflow's code go on, and its records are collected after. */
import { CancelledError, ChannelError, StreamDisconnectedError } from "#sdk/runtime";
import type { WireFailure } from "../protocol.ts";
import { deliveryFlag, deliveryKind, record } from "../protocol.ts";
import { cancelScope } from "./cancel.ts";
import { childRejected, childResolved, isWorkflow } from "./children.ts";
import { resetContext } from "./context.ts";
import { toActivityError, toError, toFailure, toRunError } from "./failure.ts";
import { callMethod, cancelCall, refuseWaiting } from "./methods.ts";
import { evaluateMain } from "./modules.ts";
import { leaveQueue, queueOf } from "./operations.ts";
import { fromJson, toJson } from "./payload.ts";
import { currentRun, type Pending, Run, setCurrent } from "./run.ts";

const runs = new Map<number, Run>();

export function deliver(kind: number, key: number, op: number, nowMs: number, flags: number, text: string): void {
  if (kind === deliveryKind.drop) {
    runs.delete(key);
    return;
  }
  resetContext();
  if (kind === deliveryKind.start) {
    start(key, nowMs, flags, text.slice(0, op), text.slice(op));
    return;
  }
  const run = runs.get(key);
  if (run === undefined) throw new Error(`No run has the key ${key}`);
  setCurrent(run);
  if (kind === deliveryKind.query) {
    answer(run, text.slice(0, op), text.slice(op));
    return;
  }
  run.nowMs = nowMs;
  run.replaying = (flags & deliveryFlag.replay) !== 0;
  if (kind === deliveryKind.resolve) resolve(run, op, text);
  else if (kind === deliveryKind.reject) reject(run, op, JSON.parse(text) as WireFailure);
  else if (kind === deliveryKind.signal) signal(run, text.slice(0, op), text.slice(op));
  else if (kind === deliveryKind.call) callMethod(run, text.slice(0, op), text.slice(op));
  else if (kind === deliveryKind.cancelCall) cancelCall(run, op, text);
  else if (kind === deliveryKind.cancel) cancel(run, text);
  else throw new Error(`No delivery is of kind ${kind}`);
}

/** Records since the last call. To be called after the delivery's microtasks. */
export function collect(): string {
  const run = currentRun();
  if (run === undefined) return "";
  const { out } = run;
  run.out = "";
  run.reading = "no";
  setCurrent(undefined);
  return out;
}

function start(key: number, nowMs: number, flags: number, head: string, input: string): void {
  const run = new Run(key, nowMs, JSON.parse(head) as [string, number, string, string, number]);
  run.replaying = (flags & deliveryFlag.replay) !== 0;
  setCurrent(run);
  const workflow = findWorkflow(run);
  if (workflow === undefined) return;
  runs.set(key, run);
  run.loading = false;
  let value: unknown;
  try {
    value = fromJson(input, `Input of workflow "${run.type}"`);
  } catch (error) {
    fail(run, error);
    return;
  }
  workflow(value).then(
    (result) => complete(run, result),
    (error: unknown) => fail(run, error),
  );
}

function findWorkflow(run: Run): ((input: unknown) => Promise<unknown>) | undefined {
  let exports: Record<string, unknown>;
  try {
    exports = evaluateMain();
    run.exports = exports;
  } catch (error) {
    const failure = toFailure(error);
    run.emit(
      record.broken,
      JSON.stringify(`The workflow code fails while it is loaded: ${failure.stack ?? `${failure.type}: ${failure.message}`}`),
    );
    return undefined;
  }
  const found = Object.hasOwn(exports, run.type) ? exports[run.type] : undefined;
  if (isWorkflow(found)) return found as (input: unknown) => Promise<unknown>;
  const names = Object.keys(exports).filter((name) => isWorkflow(exports[name]));
  const known = names.length === 0 ? "it exports none" : `it exports ${names.join(", ")}`;
  run.emit(record.broken, JSON.stringify(`The bundle has no workflow "${run.type}": ${known}`));
  return undefined;
}

function complete(run: Run, result: unknown): void {
  if (run.ended) return;
  try {
    const json = toJson(result, `Result of workflow "${run.type}"`);
    refuseWaiting(run);
    run.ended = true;
    run.emit(record.complete, json);
  } catch (error) {
    fail(run, error);
  }
}

function fail(run: Run, error: unknown): void {
  if (run.ended) return;
  refuseWaiting(run);
  run.ended = true;
  if (run.cancelRequested && error instanceof CancelledError) run.emit(record.cancelled);
  else run.emit(record.fail, JSON.stringify(toFailure(error)));
}

function resolve(run: Run, op: number, text: string): void {
  const child = run.children.get(op);
  if (child !== undefined) {
    childResolved(run, child, text);
    return;
  }
  const pending = run.pending.get(op);
  // Withdrawn meanwhile: the answer crossed the withdrawal.
  if (pending === undefined) return;
  run.pending.delete(op);
  try {
    pending.resolve(fromJson(text, `Result of ${resultOf[pending.kind] ?? "activity"} "${pending.name}"`));
  } catch (error) {
    pending.reject(() => error as Error);
  }
}

const resultOf: Partial<Record<Pending["kind"], string>> = { result: "run", channel: "channel" };

function reject(run: Run, op: number, failure: WireFailure): void {
  const child = run.children.get(op);
  if (child !== undefined) {
    childRejected(run, child, failure);
    return;
  }
  const pending = run.pending.get(op);
  if (pending === undefined) return;
  run.pending.delete(op);
  pending.reject(() => toOwnError(pending, failure));
}

function toOwnError({ kind, name }: Pending, failure: WireFailure): Error {
  if (kind === "activity") return toActivityError(name, failure);
  if (kind === "call") return toRunError(name, `Call of run "${name}" failed: ${failure.message}`, failure);
  if (kind === "send") return toRunError(name, failure.message, failure);
  if (kind === "result") return toRunError(name, `Run "${name}" did not complete: ${failure.message}`, failure);
  if (kind === "channel") return new ChannelError(name, failure.type, failure.message);
  if (kind === "chunk") return new StreamDisconnectedError(failure.message);
  return toError(failure);
}

function signal(run: Run, name: string, text: string): void {
  let value: unknown;
  try {
    value = fromJson(text, `Payload of signal "${name}"`);
  } catch {
    // Whoever sent it is gone; the workflow gets what was sent.
    value = text;
  }
  const waiting = run.waiting.get(name)?.[0];
  if (waiting === undefined) {
    queueOf(run.buffered, name).push(value);
    return;
  }
  leaveQueue(run, waiting);
  run.pending.delete(waiting.op);
  waiting.resolve(value);
}

function cancel(run: Run, reason: string): void {
  if (run.cancelRequested || run.ended) return;
  run.cancelRequested = true;
  cancelScope(run, run.scope, reason);
}

function answer(run: Run, name: string, input: string): void {
  run.reading = "handler";
  const ask = run.queries.get(name);
  if (ask === undefined) {
    run.emit(record.answerMissing, JSON.stringify([...run.queries.keys()]));
    return;
  }
  try {
    const value = ask(fromJson(input, `Input of query "${name}"`));
    if (typeof value === "object" && value !== null && "then" in value && typeof value.then === "function") {
      throw new TypeError(`Query "${name}" gave a promise: a query answers at once`);
    }
    run.emit(record.answer, toJson(value, `Answer of query "${name}"`));
  } catch (error) {
    run.emit(record.answerFailed, JSON.stringify(toFailure(error)));
  }
  run.reading = "drain";
}
