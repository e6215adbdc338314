/**
 * Activities: everything that touches the world. They run in a worker's own process, at least
 * once; what they return is recorded and never computed again.
 */
import { checkDuration, checkFields, checkName, describe } from "./checks.ts";
import { engine } from "./engine.ts";

/** How often and how fast a failed activity is tried again. */
export interface RetryOptions {
  /** Executions in all, the first one included. Left out: no limit. */
  readonly attempts?: number;
  /** Wait before the second execution, at most 24 hours. Left out: 100 ms. */
  readonly initialMs?: number;
  /** Longest wait, at most 24 hours. Left out: 60,000 ms. */
  readonly maxMs?: number;
  /** Factor by which the wait grows. Left out: 2. */
  readonly backoff?: number;
  /** Share of the wait that is drawn at random, 0 to 1. Left out: 0.2. */
  readonly jitter?: number;
  /** Names of errors that are final at once. */
  readonly nonRetryable?: readonly string[];
}

export interface ActivityOptions {
  readonly retry?: RetryOptions;
  /** Time that one execution may take. Left out: no limit. */
  readonly startToCloseMs?: number;
  /** Time that all executions and the waits between them may take. Left out: no limit. */
  readonly scheduleToCloseMs?: number;
  /** An execution that gives no sign of life for so long counts as failed. Left out: none is expected. */
  readonly heartbeatMs?: number;
  /**
   * Calls of this activity with this key, in all runs of the namespace, are one execution, whose result all of them are
   * given; a success is kept for seven days. Another input with the same key is an `IdempotencyKeyReusedError`. It is
   * handed to every attempt, for the receiving service to recognise repetitions by. Left out: each call is its own.
   */
  readonly idempotencyKey?: string;
}

/** Used for each field that an activity call leaves out. `attempts: 0` means no limit. */
export const retryDefaults = { attempts: 0, initialMs: 100, maxMs: 60_000, backoff: 2, jitter: 0.2 } as const;

/**
 * Runs activity `name` and waits for its result.
 *
 * `input` travels as JSON (at most 32 MiB, else `PayloadTooLargeError` at the call); `undefined`
 * is no payload. A failed execution is repeated as `options.retry` says; without it, for ever,
 * after 100 ms, 200 ms, … up to a minute. Rejects with `ActivityError` when the activity failed
 * for good and with `CancelledError` when the run is cancelled meanwhile.
 */
export function activity<O = unknown>(name: string, input?: unknown, options?: ActivityOptions): Promise<O> {
  checkName("Activity", name);
  if (options !== undefined) checkOptions(name, options);
  return engine("activity()").activity(name, input, options) as Promise<O>;
}

type AnyActivity = (input: never, ...more: never[]) => unknown;

/** The activities of a module, as a workflow calls them. */
export type Activities<A> = {
  readonly [K in keyof A as A[K] extends AnyActivity ? K : never]: A[K] extends () => infer O
    ? (input?: undefined, options?: ActivityOptions) => Promise<Awaited<O>>
    : A[K] extends (input: infer I, ...more: never[]) => infer O
      ? (input: I, options?: ActivityOptions) => Promise<Awaited<O>>
      : never;
};

/**
 * Typed calls of the activities in a module, which is imported as a type only:
 *
 * ```ts
 * import type * as mail from "./activities.ts";
 * const { sendEmail } = activities<typeof mail>({ startToCloseMs: 10_000 });
 * await sendEmail({ to: "a@example.com" });
 * ```
 *
 * `defaults` apply to each call; the options of a call replace them field by field.
 */
export function activities<A>(defaults: ActivityOptions = {}): Activities<A> {
  checkOptions("activities()", defaults);
  const calls = new Map<string, unknown>();
  return new Proxy(Object.create(null), {
    get(_target, name) {
      // A promise check or a printer must not look like an activity.
      if (typeof name !== "string" || name === "then" || name === "toJSON") return undefined;
      let call = calls.get(name);
      if (call === undefined) {
        call = (input?: unknown, options?: ActivityOptions) =>
          activity(name, input, options === undefined ? defaults : { ...defaults, ...options });
        calls.set(name, call);
      }
      return call;
    },
  }) as Activities<A>;
}

const optionNames: readonly string[] = ["retry", "startToCloseMs", "scheduleToCloseMs", "heartbeatMs", "idempotencyKey"];
const retryNames: readonly string[] = ["attempts", "initialMs", "maxMs", "backoff", "jitter", "nonRetryable"];
const idempotencyKeyMax = 255;
/** Longest wait between two executions. */
const retryMsMax = 24 * 3600 * 1000;

/** Throws `TypeError` or `RangeError` unless these are options of activity `activity`. */
export function checkOptions(activity: string, options: ActivityOptions): void {
  const what = `Option of activity "${activity}"`;
  if (options === null || typeof options !== "object")
    throw new TypeError(`Options of activity "${activity}" must be an object, got ${describe(options)}`);
  checkFields(what, options, optionNames);
  for (const name of ["startToCloseMs", "scheduleToCloseMs", "heartbeatMs"] as const) {
    if (options[name] !== undefined) checkDuration(`${what}: ${name}`, options[name]);
  }
  const key = options.idempotencyKey;
  if (key !== undefined && (typeof key !== "string" || key.length > idempotencyKeyMax || !key.isWellFormed())) {
    throw new TypeError(`${what}: idempotencyKey must be a string of at most ${idempotencyKeyMax} characters`);
  }
  if (options.retry !== undefined) checkRetry(`${what}: retry`, options.retry);
}

function checkRetry(what: string, retry: RetryOptions): void {
  checkFields(what, retry, retryNames);
  const { attempts, initialMs, maxMs, backoff, jitter, nonRetryable } = retry;
  if (attempts !== undefined && !(Number.isInteger(attempts) && attempts >= 1 && attempts <= 0xffffffff)) {
    throw new RangeError(`${what}.attempts must be a whole number from 1 on, got ${describe(attempts)}`);
  }
  for (const [name, ms] of [
    ["initialMs", initialMs],
    ["maxMs", maxMs],
  ] as const) {
    if (ms !== undefined && checkDuration(`${what}.${name}`, ms) > retryMsMax)
      throw new RangeError(`${what}.${name} is ${ms} ms, at most 24 hours (${retryMsMax} ms) are allowed`);
  }
  if (backoff !== undefined && !(backoff >= 1 && backoff <= 1000))
    throw new RangeError(`${what}.backoff must be from 1 to 1000, got ${describe(backoff)}`);
  if (jitter !== undefined && !(jitter >= 0 && jitter <= 1))
    throw new RangeError(`${what}.jitter must be from 0 to 1, got ${describe(jitter)}`);
  if (nonRetryable !== undefined && !(Array.isArray(nonRetryable) && nonRetryable.every((name) => typeof name === "string"))) {
    throw new TypeError(`${what}.nonRetryable must be an array of error names`);
  }
}
