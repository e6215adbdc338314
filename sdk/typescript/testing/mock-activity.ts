/** One execution of a mock activity: its context, its naps in virtual time, and how it ended. */
import type { TaskEffect, Token } from "#core/base";
import type { FailureInit, PayloadInit } from "#proto";
import type { ActivityLog } from "#sdk/activity";
import { failureOf } from "#worker/guest";
import { durationMs } from "./duration.ts";
import type { MockActivity, MockContext } from "./options.ts";

export interface MockParts {
  now(): number;
  heartbeat(token: Token, details: PayloadInit | undefined): void;
  /** It has ended, or naps, or goes on: the environment looks again. */
  changed(): void;
}

export type Ended = { readonly result: PayloadInit | undefined } | { readonly failure: FailureInit };

const encoder = new TextEncoder();
const decoder = new TextDecoder();

export class Execution {
  /** Of the newest delivery. */
  token: Token;
  readonly task: TaskEffect;
  readonly input: unknown;
  /** Undefined while it is under way. */
  ended: Ended | undefined;
  /** When its nap is over; undefined while it is awake. Infinity = it hangs. */
  wakeMs: number | undefined;
  private readonly parts: MockParts;
  private readonly abort = new AbortController();
  private goOn: () => void = () => {};

  /** Its own time: where it has napped to. */
  private ownMs: number;

  /** `dueMs`: when it was to begin; its naps count from there. */
  constructor(task: TaskEffect, dueMs: number, parts: MockParts) {
    this.task = task;
    this.ownMs = dueMs;
    this.token = task.token;
    this.parts = parts;
    this.input = parse(task.input?.data);
  }

  /** It is neither over nor napping: only the test's own code can say how long it takes. */
  get isAwake(): boolean {
    return this.ended === undefined && this.wakeMs === undefined;
  }

  start(mock: MockActivity): void {
    let returned: unknown;
    try {
      returned = mock(this.input, this.context());
    } catch (error) {
      return this.fail(error);
    }
    if (isPromise(returned)) {
      returned.then(
        (value) => this.succeed(value),
        (error: unknown) => this.fail(error),
      );
    } else this.succeed(returned);
  }

  wake(): void {
    this.ownMs = this.wakeMs ?? this.ownMs;
    this.wakeMs = undefined;
    this.goOn();
  }

  cancel(reason: Error): void {
    this.abort.abort(reason);
  }

  private succeed(value: unknown): void {
    try {
      const text = value === undefined ? undefined : JSON.stringify(value);
      this.end({ result: text === undefined ? undefined : { data: encoder.encode(text) } });
    } catch (error) {
      this.fail(new TypeError(`The result of mock activity ${this.task.name} is no JSON value: ${String(error)}`));
    }
  }

  private fail(error: unknown): void {
    const failure = failureOf(error);
    for (let at: FailureInit | undefined = failure; at !== undefined; at = at.cause) if (at.stack) at.stack = place(at.stack);
    this.end({ failure });
  }

  private end(ended: Ended): void {
    this.ended = ended;
    this.wakeMs = undefined;
    this.parts.changed();
  }

  private nap(ms: number): Promise<void> {
    const { signal } = this.abort;
    if (signal.aborted) return Promise.reject(signal.reason as Error);
    this.wakeMs = this.ownMs + ms;
    this.parts.changed();
    return new Promise((resolve, reject) => {
      const onAbort = () => {
        this.wakeMs = undefined;
        reject(signal.reason as Error);
      };
      signal.addEventListener("abort", onAbort, { once: true });
      this.goOn = () => {
        signal.removeEventListener("abort", onAbort);
        resolve();
      };
    });
  }

  private context(): MockContext {
    const { task, parts } = this;
    const { run, generation, op, attempt } = task.token;
    return {
      run,
      workflowType: task.workflowType,
      activity: task.name,
      attempt,
      idempotencyKey: task.options?.idempotencyKey || `${run}/${generation}/${op}`,
      signal: this.abort.signal,
      lastHeartbeat: parse(task.heartbeat?.data),
      heartbeat: (details) =>
        parts.heartbeat(this.token, details === undefined ? undefined : { data: encoder.encode(JSON.stringify(details)) }),
      log: silent,
      sleep: (duration) => this.nap(durationMs(duration)),
      hang: () => this.nap(Number.POSITIVE_INFINITY) as Promise<never>,
      now: () => parts.now(),
    };
  }
}

const none = () => {};
const silent: ActivityLog = { debug: none, info: none, warn: none, error: none };

const parse = (data: Uint8Array | undefined): unknown =>
  data === undefined || data.length === 0 ? undefined : JSON.parse(decoder.decode(data));

const isPromise = (value: unknown): value is PromiseLike<unknown> =>
  typeof value === "object" && value !== null && "then" in value && typeof value.then === "function";

/** Message and the place of the throw: what lies below is the environment, and differs from one execution to the next. */
function place(stack: string): string {
  const lines = stack.split("\n");
  const first = lines.findIndex((line) => /^\s+at /.test(line));
  return first < 0 ? stack : lines.slice(0, first + 1).join("\n");
}
