/** One execution of one activity: its context, its timers, and how it ended. */
import { limits, noBytes } from "#core/base";
import type { DurableRef, FailureInit, PayloadInit, Task, TaskDoneInit, TaskToken } from "#proto";
import { type Activity, type ActivityContext, type ActivityLog, ActivityTimeoutError, type LogFields } from "#sdk/activity";
import type { BlobSource } from "../blob-source.ts";
import type { LogLevel, OnLog } from "../log.ts";
import { failure, failureOf } from "./activity-failure.ts";
import { withoutExit } from "./exit-guard.ts";

export interface TaskParts {
  readonly blobs: BlobSource;
  readonly onLog: OnLog;
  readonly sendHeartbeat: (token: TaskToken, details: PayloadInit | undefined) => void;
}

/** Longest time that the platform's timers take. */
const timerMsMax = 2 ** 31 - 1;
/** How often progress is passed on where no heartbeat limit says so. */
const heartbeatMsDefault = 30_000;
const decoder = new TextDecoder();

export class ActivityTask {
  /** The newest delivery of this attempt: its token is the one that counts. */
  token: TaskToken;
  private readonly task: Task;
  private readonly parts: TaskParts;
  private readonly abort = new AbortController();
  private readonly heartbeats: Heartbeats;

  constructor(task: Task, token: TaskToken, parts: TaskParts) {
    this.task = task;
    this.token = token;
    this.parts = parts;
    this.heartbeats = new Heartbeats(task.heartbeatMs, (details) => parts.sendHeartbeat(this.token, details));
  }

  get name(): string {
    return this.task.name;
  }

  cancel(reason: Error): void {
    this.abort.abort(reason);
  }

  /** Runs the activity to its end. Never rejects. */
  async run(activity: Activity): Promise<TaskDoneInit> {
    const timer = this.armTimeout();
    let failed: FailureInit | undefined;
    let result: PayloadInit | undefined;
    try {
      const stored = this.task.input?.ref;
      const input = this.parse(stored === undefined ? (this.task.input?.data ?? noBytes) : await this.fetch(stored));
      // It may have been cancelled while it waited for a slot or for its input.
      this.abort.signal.throwIfAborted();
      const context = this.context();
      result = this.encodeResult(await withoutExit(`activity ${JSON.stringify(this.name)}`, () => activity(input, context)));
    } catch (error) {
      failed = error instanceof Stated ? error.failure : failureOf(error);
    }
    clearTimeout(timer);
    this.heartbeats.stop(failed !== undefined);
    return failed === undefined ? { token: this.token, result } : { token: this.token, failure: failed };
  }

  private armTimeout(): ReturnType<typeof setTimeout> | undefined {
    const { startToCloseMs, name } = this.task;
    if (startToCloseMs === 0 || startToCloseMs > timerMsMax) return undefined;
    return setTimeout(() => {
      const message = `Activity ${name} passed its start-to-close limit of ${startToCloseMs} ms in attempt ${this.token.attempt}`;
      this.abort.abort(new ActivityTimeoutError(message));
    }, startToCloseMs);
  }

  private parse(bytes: Uint8Array): unknown {
    return parse(bytes, `input of activity ${JSON.stringify(this.name)}`);
  }

  private async fetch(ref: DurableRef): Promise<Uint8Array> {
    try {
      return await this.parts.blobs(ref.sha256);
    } catch (error) {
      const message = `Cannot read the input of activity ${JSON.stringify(this.name)}: ${error instanceof Error ? error.message : String(error)}`;
      throw new Stated(failure("BlobUnavailable", message, { nonRetryable: false }));
    }
  }

  private encodeResult(result: unknown): PayloadInit | undefined {
    const what = `result of activity ${JSON.stringify(this.name)}`;
    if (typeof result === "function" || typeof result === "symbol") {
      throw new Stated(
        failure("ResultNotSerializable", `Cannot record the ${what}: it is a ${typeof result}, want a JSON value`, { nonRetryable: true }),
      );
    }
    return encode(result, what);
  }

  private context(): ActivityContext {
    const { task, token } = this;
    const { heartbeats } = this;
    return {
      run: token.run,
      workflowType: task.workflowType,
      activity: task.name,
      attempt: token.attempt,
      idempotencyKey: task.idempotencyKey || `${token.run}/${token.generation}/${token.op}`,
      signal: this.abort.signal,
      lastHeartbeat: task.heartbeat === undefined ? undefined : parse(task.heartbeat.data, "heartbeat details"),
      heartbeat: (details) => heartbeats.beat(encode(details, `heartbeat details of activity ${JSON.stringify(task.name)}`)),
      log: this.log(),
    };
  }

  private log(): ActivityLog {
    const { onLog } = this.parts;
    const { run, op, attempt } = this.token;
    const own = { run, activity: this.name, op, attempt };
    const at = (level: LogLevel) => (message: string, fields?: LogFields) => onLog({ level, message, fields: { ...fields, ...own } });
    return { debug: at("debug"), info: at("info"), warn: at("warn"), error: at("error") };
  }
}

/** Passes on at most one heartbeat in a third of the limit; the latest details are never lost. */
class Heartbeats {
  private readonly intervalMs: number;
  private readonly send: (details: PayloadInit | undefined) => void;
  private timer: ReturnType<typeof setTimeout> | undefined;
  private waiting: { readonly details: PayloadInit | undefined } | undefined;

  constructor(heartbeatMs: number, send: (details: PayloadInit | undefined) => void) {
    this.intervalMs = Math.min(heartbeatMs === 0 ? heartbeatMsDefault : heartbeatMs, timerMsMax) / 3;
    this.send = send;
  }

  beat(details: PayloadInit | undefined): void {
    if (this.timer !== undefined) {
      this.waiting = { details };
      return;
    }
    this.send(details);
    this.timer = setTimeout(this.onInterval, this.intervalMs);
  }

  /** After a failure the next attempt is to know how far this one came. */
  stop(isFailure: boolean): void {
    clearTimeout(this.timer);
    if (isFailure && this.waiting !== undefined) this.send(this.waiting.details);
    this.waiting = undefined;
  }

  private readonly onInterval = (): void => {
    this.timer = undefined;
    const { waiting } = this;
    this.waiting = undefined;
    if (waiting !== undefined) this.beat(waiting.details);
  };
}

/** Carries a failure that is stated as it is to where the attempt ends. */
class Stated extends Error {
  readonly failure: FailureInit;

  constructor(stated: FailureInit) {
    super(stated.message);
    this.failure = stated;
  }
}

/** No bytes are `undefined`, which JSON has no word for. */
function parse(bytes: Uint8Array, what: string): unknown {
  if (bytes.length === 0) return undefined;
  try {
    return JSON.parse(decoder.decode(bytes));
  } catch (error) {
    throw new Stated(failure("InputNotReadable", `Cannot read the ${what}: it is no JSON: ${String(error)}`, { nonRetryable: true }));
  }
}

function encode(value: unknown, what: string): PayloadInit | undefined {
  if (value === undefined) return undefined;
  let text: string | undefined;
  try {
    text = JSON.stringify(value);
  } catch (error) {
    throw new Stated(
      failure("ResultNotSerializable", `Cannot record the ${what}: it is no JSON value: ${String(error)}`, { nonRetryable: true }),
    );
  }
  if (text === undefined) return undefined;
  const data = Buffer.from(text);
  if (data.length <= limits.payloadBytesMax) return { data };
  const message = `Cannot record the ${what}: it has ${data.length} bytes, at most ${limits.payloadBytesMax} are allowed`;
  throw new Stated(failure("PayloadTooLargeError", message, { nonRetryable: true }));
}
