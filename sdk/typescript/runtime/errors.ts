/**
 * Errors that workflow and activity code meets. `name` is what a failure's `type` says in
 * history; `cause` is kept over process and language borders.
 */

/** The run was asked to end. Let it pass, after cleaning up in `finally`. */
export class CancelledError extends Error {
  override name = "CancelledError";
  /** What the canceller said; may be empty. */
  readonly reason: string;

  constructor(reason = "") {
    super(reason === "" ? "The run was cancelled" : `The run was cancelled: ${reason}`);
    this.reason = reason;
  }
}

/**
 * An activity failed for good: its retries are used up, its error is not retryable, or its time
 * is over. `cause` is the error as the activity threw it.
 */
export class ActivityError extends Error {
  override name = "ActivityError";
  readonly activity: string;
  /** Name of the activity's own error, such as `CardDeclined`; `TimeoutError` when time ran out. */
  readonly type: string;
  /** Data that the activity's error carried in its `details`; undefined when it had none. */
  readonly details: unknown;
  /** Executions made; 0 when that is not known. */
  readonly attempts: number;

  constructor(activity: string, fields: ActivityErrorFields) {
    super(`Activity "${activity}" failed: ${fields.message}`, { cause: fields.cause });
    this.activity = activity;
    this.type = fields.type;
    this.details = fields.details;
    this.attempts = fields.attempts;
  }
}

export interface ActivityErrorFields {
  readonly type: string;
  readonly message: string;
  readonly details: unknown;
  readonly attempts: number;
  readonly cause: unknown;
}

/** Those who consumed the run's stream have left it: nobody is given the chunk. */
export class StreamDisconnectedError extends Error {
  override name = "StreamDisconnectedError";
}

/** A message was not taken by a channel, or a channel could not be read. */
export class ChannelError extends Error {
  override name = "ChannelError";
  /** `namespace:name`. */
  readonly channel: string;
  /** `ChannelClosedError`, `BadRequestError` for a value that it can't reduce, `ChannelBusyError`, `ChannelReadError` (read() where it reduces, reduced() where it does not), `LimitError`. */
  readonly type: string;

  constructor(channel: string, type: string, message: string) {
    super(message);
    this.channel = channel;
    this.type = type;
  }
}

/**
 * Another run could not be signalled, or it ended without a result. `cause` is the error that it
 * ended with.
 */
export class RunError extends Error {
  override name = "RunError";
  /** `namespace:instance`. */
  readonly run: string;
  /**
   * Name of the error that the other run failed with, or `CancelledError`, `TerminatedError`,
   * `DeadlineError`; `RunNotFoundError` when there is none, `RunClosedError` when it can't be
   * signalled any more.
   */
  readonly type: string;
  /** Data that its error carried in its `details`; undefined when it had none. */
  readonly details: unknown;

  constructor(run: string, fields: RunErrorFields) {
    super(fields.message, { cause: fields.cause });
    this.run = run;
    this.type = fields.type;
    this.details = fields.details;
  }
}

export interface RunErrorFields {
  readonly type: string;
  readonly message: string;
  readonly details: unknown;
  readonly cause: unknown;
}

/**
 * What an activity throws to say more than a plain `Error` can: a `type` to match on, data for
 * the workflow, and whether another attempt could succeed.
 */
export class ActivityFailure extends Error {
  readonly details: unknown;
  readonly nonRetryable: boolean;

  constructor(type: string, message: string, options: { details?: unknown; nonRetryable?: boolean; cause?: unknown } = {}) {
    super(message, "cause" in options ? { cause: options.cause } : undefined);
    this.name = type;
    this.details = options.details;
    this.nonRetryable = options.nonRetryable ?? false;
  }
}

/** A payload is above the limit. Never retried: the same data would be refused again. */
export class PayloadTooLargeError extends Error {
  override name = "PayloadTooLargeError";
  readonly nonRetryable = true;
}

/** Workflow code used something that could differ when the run is rebuilt. The message says what to use. */
export class DeterminismError extends Error {
  override name = "DeterminismError";
  readonly nonRetryable = true;
}

/** The time that the workflow allowed is over. */
export class TimeoutError extends Error {
  override name = "TimeoutError";
}
