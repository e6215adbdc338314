/**
 * One run's state inside the realm, and which run is the current one.
 *
 * The current run is known only while a delivery is processed, from `deliver` to `collect`; the
 * host lets all microtasks run in between. Outside of that, everything that needs a run throws.
 */
import { DeterminismError } from "#sdk/runtime";
import { fieldEnd, recordEnd } from "../protocol.ts";

export type PendingKind = "activity" | "timer" | "signal" | "timeout" | "callback" | "send" | "result";

/** An operation that the host has yet to answer. */
export interface Pending {
  readonly op: number;
  readonly kind: PendingKind;
  /** Of the activity or the signal; of `send` and `result`, the address of the other run. */
  readonly name: string;
  /** A cancellation passes it by. */
  readonly shielded: boolean;
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
  /** Records of the current delivery. */
  out = "";
  replaying = false;
  /** Its modules are being evaluated: they may not act yet. */
  loading = true;
  ended = false;
  cancelRequested = false;
  /** A cancellation found nothing to interrupt and waits for the next operation. */
  cancelWaits = false;
  cancelReason = "";
  reading: Reading = "no";
  readonly pending = new Map<number, Pending>();
  readonly buffered = new Map<string, unknown[]>();
  readonly waiting = new Map<string, Pending[]>();
  readonly methods = new Map<string, Method>();
  /** Calls of methods that were not declared yet, oldest first. */
  calls: MethodCall[] = [];
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
