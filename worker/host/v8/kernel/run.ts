/**
 * One run's state inside the realm, and which run is the current one.
 *
 * The current run is known only while a delivery is processed, from `deliver` to `collect`; the
 * host lets all microtasks run in between. Outside of that, everything that needs a run throws.
 */
import { DeterminismError } from "#sdk/runtime";
import type { ChannelRead } from "#sdk/runtime/engine";
import { fieldEnd, recordEnd } from "../protocol.ts";
import type { Child, ChildWait } from "./children.ts";
import { Scope } from "./scope.ts";

/** Nothing waits for a notice: a cancellation does not withdraw it. */
export type PendingKind =
  | "activity"
  | "timer"
  | "signal"
  | "timeout"
  | "callback"
  | "send"
  | "result"
  | "call"
  | "chunk"
  | "channel"
  | "notice";

/** An operation that the host has yet to answer. */
export interface Pending {
  readonly op: number;
  readonly kind: PendingKind;
  /** Of the activity or the signal; of `send`, `result` and `channel`, the address of the other run or the channel. */
  readonly name: string;
  /** What cancels the scope interrupts it. */
  readonly scope: Scope;
  resolve(value: unknown): void;
  /** The error is made where the workflow waits, so that its stack shows the way there. */
  reject(makeError: () => Error): void;
}

/** Declared by the workflow. */
export interface Method {
  readonly handler: (input: unknown) => unknown;
  readonly validate: ((input: unknown) => unknown) | undefined;
}

export interface MethodCall {
  readonly call: number;
  readonly name: string;
  /** JSON. */
  readonly input: string;
}

/**
 * A query may read but not act; `handler` is its own code, `drain` what its microtasks set off. So
 * may what validates a method's input.
 */
export type Reading = "no" | "handler" | "drain" | "validator";

export class Run {
  readonly key: number;
  readonly name: string;
  readonly generation: number;
  readonly type: string;
  readonly bundle: string;
  readonly startedMs: number;
  nowMs: number;
  /** State of the random numbers. */
  seed: number;
  /** Number of the last operation. */
  ops = 0;
  /** What was read of channels and not used, by address. */
  readonly unread = new Map<string, ChannelRead>();
  /** Records of the current delivery. */
  out = "";
  replaying = false;
  /** Its modules are being evaluated: they may not act yet. */
  loading = true;
  ended = false;
  cancelRequested = false;
  /** The run's own scope: a cancellation of the run is one of it. */
  readonly scope = new Scope(undefined);
  /** What its modules export; none before they were evaluated. */
  exports: Readonly<Record<string, unknown>> = {};
  reading: Reading = "no";
  readonly pending = new Map<number, Pending>();
  readonly buffered = new Map<string, unknown[]>();
  readonly waiting = new Map<string, Pending[]>();
  readonly methods = new Map<string, Method>();
  /** Calls of methods that were not declared yet, oldest first. */
  calls: MethodCall[] = [];
  /** Children that have not ended, by the operations that spawned them, and what waits for them. */
  readonly children = new Map<number, Child>();
  readonly childWaits = new Set<ChildWait>();
  /** Of the handlers that run, by the numbers of their calls. */
  readonly callScopes = new Map<number, Scope>();
  readonly queries = new Map<string, (input: unknown) => unknown>();
  /** Open `setTimeout` and `setInterval` handles: their current operation. */
  readonly handles = new Map<number, number>();
  handleCount = 0;

  constructor(key: number, nowMs: number, head: readonly [string, number, string, string, number]) {
    this.key = key;
    this.nowMs = nowMs;
    this.startedMs = nowMs;
    [this.name, this.generation, this.type, this.bundle] = head;
    this.seed = head[4] | 0;
  }

  emit(tag: string, ...fields: readonly (string | number)[]): void {
    let text = tag;
    for (const field of fields) text += fieldEnd + field;
    this.out += text + recordEnd;
  }
}

let current: Run | undefined;

export function setCurrent(run: Run | undefined): void {
  current = run;
}

export function currentRun(): Run | undefined {
  return current;
}

/** The run that reads `what`; for what is fixed by the run's history. */
export function readingRun(what: string): Run {
  if (current === undefined) {
    throw new DeterminismError(
      `Cannot use ${what} here: it needs a run, and a dependency's module level is evaluated once for all of them`,
    );
  }
  return current;
}

/** The run that changes by `what`: draws a random number, issues an operation. */
export function changingRun(what: string): Run {
  const run = readingRun(what);
  if (run.reading === "no") return run;
  if (run.reading === "drain") spoil(run);
  if (run.reading === "validator") throw new DeterminismError(`Cannot use ${what} while a method's input is validated: that only reads`);
  throw new DeterminismError(`Cannot use ${what} in a query: a query only reads`);
}

function spoil(run: Run): void {
  if (!run.out.includes(`Z${recordEnd}`)) run.emit("Z");
}
