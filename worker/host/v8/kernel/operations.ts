/**
 * The engine behind `@hopskip/runtime`: operations are numbered from 1 in the order of their
 * calls, written as records, and settled by later deliveries.
 */
import type { ActivityOptions, LogLevel, WorkflowInfo } from "#sdk/runtime";
import { DeterminismError, retryDefaults, TimeoutError } from "#sdk/runtime";
import { wholeMs } from "#sdk/runtime/checks";
import type { Engine } from "#sdk/runtime/engine";
import type { WireOptions } from "../protocol.ts";
import { fieldEnd, record, recordEnd } from "../protocol.ts";
import { writeLog } from "./log.ts";
import { toJson } from "./payload.ts";
import { nextRandom, nextUuid } from "./random.ts";
import type { Pending, PendingKind, Run } from "./run.ts";
import { changingRun, readingRun } from "./run.ts";
import { currentCall, currentScope, takeCancellation } from "./scope.ts";

const pendingMax = 10_000;
const activationBytesMax = 48 * 1024 * 1024;
const defaultOptions = optionsText(undefined);

export const engine: Omit<Engine, "callWorkflow" | "method" | "openScope" | "readChannel" | "sendChannel" | "shield" | "spawn" | "unread"> =
  {
    activity(name, input, options) {
      const run = actingRun("activity()");
      const json = toJson(input, `Input of activity "${name}"`);
      const instead = intercept(run);
      if (instead !== undefined) return instead;
      const op = nextOp(run, json.length);
      const settings = options === undefined ? defaultOptions : optionsText(options);
      run.out += record.activity + fieldEnd + op + fieldEnd + name + fieldEnd + settings + fieldEnd + json + recordEnd;
      return pend(run, op, "activity", name);
    },

    timer(ms) {
      const run = actingRun("sleep()");
      return intercept(run) ?? (startTimer(run, ms, "timer") as Promise<void>);
    },

    signal(name, timeoutMs) {
      const run = actingRun("signal()");
      const instead = intercept(run);
      if (instead !== undefined) return instead;
      const op = nextOp(run, 0);
      run.emit(record.awaitSignal, op, name);
      const early = takeBuffered(run, name);
      if (early !== undefined) return Promise.resolve(early.value);
      const waited = pend(run, op, "signal", name);
      queueOf(run.waiting, name).push(run.pending.get(op)!);
      if (timeoutMs === undefined) return waited;
      return withTimeout(run, op, { waited, timeoutMs, message: `No signal "${name}" came within ${timeoutMs} ms` });
    },

    sendSignal(address, name, payload) {
      const run = actingRun("sendSignal()");
      const json = toJson(payload, `Payload of signal "${name}"`);
      const instead = intercept(run);
      if (instead !== undefined) return instead;
      const to = fullAddress(run, address);
      const op = nextOp(run, json.length);
      run.emit(record.sendSignal, op, to, name, json);
      return pend(run, op, "send", to) as Promise<void>;
    },

    resultOf(address) {
      const run = actingRun("resultOf()");
      const to = fullAddress(run, address);
      if (to === run.name) throw new TypeError(`A run can't wait for its own result: resultOf("${address}") is called by ${run.name}`);
      const instead = intercept(run);
      if (instead !== undefined) return instead;
      const op = nextOp(run, 0);
      run.emit(record.awaitResult, op, to, currentCall(run));
      return pend(run, op, "result", to);
    },

    searchable(name, value) {
      const run = actingRun("searchable()");
      if (run.ended) return;
      const op = nextOp(run, value.length);
      run.emit(record.setSearchable, op, name, value);
    },

    yieldChunk(chunk) {
      const run = actingRun("yieldChunk()");
      const json = toJson(chunk, "A chunk");
      const instead = intercept(run);
      if (instead !== undefined) return instead;
      const op = nextOp(run, json.length);
      run.emit(record.yieldChunk, op, json);
      return pend(run, op, "chunk", "") as Promise<void>;
    },

    compensate(name, input, trigger, options) {
      const run = actingRun("compensate()");
      const json = toJson(input, `Input of compensation "${name}"`);
      // What it is owed is decided.
      if (run.ended) return () => false;
      const op = nextOp(run, json.length);
      run.emit(record.compensate, op, name, trigger === "always" ? 1 : 0, optionsText(options), json);
      let isOwed = true;
      return () => {
        actingRun("cancel() of a compensation");
        if (!isOwed || run.ended) return false;
        isOwed = false;
        run.emit(record.withdrawCompensation, op);
        return true;
      };
    },

    query(name, answer) {
      // Allowed at module level too: it is no operation.
      changingRun("query()").queries.set(name, answer);
    },

    nowMs: () => readingRun("now()").nowMs,
    random: () => nextRandom(changingRun("random()")),
    uuid: () => nextUuid(changingRun("uuid()")),
    log: (level: LogLevel, parts) => writeLog(readingRun("log"), level, parts),

    info(): WorkflowInfo {
      const run = readingRun("workflowInfo()");
      const colon = run.name.indexOf(":");
      return Object.freeze({
        run: run.name,
        namespace: run.name.slice(0, colon),
        instance: run.name.slice(colon + 1),
        generation: run.generation,
        type: run.type,
        bundle: run.bundle,
        startedMs: run.startedMs,
      });
    },
  };

export function fullAddress(run: Run, address: string): string {
  return address.includes(":") ? address : `${run.name.slice(0, run.name.indexOf(":"))}:${address}`;
}

/** The run that issues an operation by `what`. */
export function actingRun(what: string): Run {
  const run = changingRun(what);
  if (run.loading) throw new DeterminismError(`Cannot use ${what} at module level: call it inside a function given to durable()`);
  return run;
}

export function startTimer(run: Run, ms: number, kind: PendingKind): Promise<unknown> {
  if (run.ended) return new Promise(() => {});
  const op = nextOp(run, 0);
  run.emit(record.timer, op, ms);
  return pend(run, op, kind, "");
}

/** Withdraws an operation; it then never settles. */
export function withdraw(run: Run, op: number): void {
  const pending = run.pending.get(op);
  if (pending === undefined) return;
  run.pending.delete(op);
  if (pending.kind === "signal") leaveQueue(run, pending);
  if (!run.ended) run.emit(record.cancelOp, op);
}

export function leaveQueue(run: Run, pending: Pending): void {
  const queue = run.waiting.get(pending.name);
  if (queue === undefined) return;
  queue.splice(queue.indexOf(pending), 1);
  if (queue.length === 0) run.waiting.delete(pending.name);
}

export function queueOf<T>(queues: Map<string, T[]>, name: string): T[] {
  let queue = queues.get(name);
  if (queue === undefined) {
    queue = [];
    queues.set(name, queue);
  }
  return queue;
}

export function nextOp(run: Run, bytes: number): number {
  // A child is an open operation of the run too, until it has ended.
  if (run.pending.size + run.children.size >= pendingMax) {
    throw new RangeError(`Too many operations are open in this run: at most ${pendingMax} are allowed, wait for some before starting more`);
  }
  if (run.out.length + bytes > activationBytesMax) {
    throw new RangeError(
      `What the run asks for at one time is above ${activationBytesMax} bytes: wait for some operations before starting more`,
    );
  }
  run.ops += 1;
  return run.ops;
}

export function pend(run: Run, op: number, kind: PendingKind, name: string): Promise<unknown> {
  const settled = new Promise((resolve, reject) => {
    run.pending.set(op, { op, kind, name, scope: currentScope(run), resolve, reject });
  });
  return settled.then(undefined, throwMade);
}

/**
 * An error made here has the functions that wait for it on its stack: V8 follows the awaits. To
 * note the stack at each call instead would cost more than all the rest of an activation.
 */
export function throwMade(makeError: () => Error): never {
  throw makeError();
}

/** What an operation gives without being issued: a waiting cancellation, or nothing ever in a run that has ended. */
export function intercept(run: Run): Promise<never> | undefined {
  if (run.ended) return new Promise(() => {});
  const cancelled = takeCancellation(run);
  return cancelled === undefined ? undefined : Promise.reject(cancelled);
}

function takeBuffered(run: Run, name: string): { readonly value: unknown } | undefined {
  const queue = run.buffered.get(name);
  if (queue === undefined) return undefined;
  const value = queue.shift();
  if (queue.length === 0) run.buffered.delete(name);
  return { value };
}

interface Timed {
  readonly waited: Promise<unknown>;
  readonly timeoutMs: number;
  /** Of the `TimeoutError`. */
  readonly message: string;
}

export function withTimeout(run: Run, op: number, { waited, timeoutMs, message }: Timed): Promise<unknown> {
  const wait = run.pending.get(op)!;
  const timer = run.ops + 1;
  startTimer(run, timeoutMs, "timeout").then(
    () => {
      if (!run.pending.has(op)) return;
      withdraw(run, op);
      wait.reject(() => new TimeoutError(message));
    },
    () => {}, // cancelled together with the wait
  );
  return waited.then((value) => {
    withdraw(run, timer);
    return value;
  });
}

function optionsText(options: ActivityOptions | undefined): string {
  const retry = { ...retryDefaults, ...options?.retry };
  const fields: WireOptions = [
    retry.attempts,
    wholeMs(retry.initialMs),
    wholeMs(retry.maxMs),
    Math.round(retry.backoff * 1000),
    Math.round(retry.jitter * 1000),
    wholeMs(options?.startToCloseMs ?? 0),
    wholeMs(options?.scheduleToCloseMs ?? 0),
    wholeMs(options?.heartbeatMs ?? 0),
    options?.retry?.nonRetryable ?? [],
    options?.idempotencyKey ?? "",
  ];
  return JSON.stringify(fields);
}
