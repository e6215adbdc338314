/**
 * What activity code is written against.
 *
 * An activity is an ordinary async function that runs in a worker's process: it may do anything,
 * and may be executed more than once, so it should use `idempotencyKey` towards the outside. What it
 * throws is a plain error, or an `ActivityFailure` of `@hopskip/runtime` where there is more to say.
 */

/** Reason of an aborted `signal`: the result of this attempt is not wanted any more. */
export class ActivityCancelledError extends Error {
  override name = "ActivityCancelledError";
}

/** Reason of an aborted `signal`: the attempt's start-to-close limit has passed. */
export class ActivityTimeoutError extends Error {
  override name = "TimeoutError";
}

/** Reason of an aborted `signal`: the worker shuts down and can't wait any longer. */
export class WorkerShutdownError extends Error {
  override name = "WorkerShutdownError";
}

export type LogFields = Readonly<Record<string, unknown>>;

export interface ActivityLog {
  debug(message: string, fields?: LogFields): void;
  info(message: string, fields?: LogFields): void;
  warn(message: string, fields?: LogFields): void;
  error(message: string, fields?: LogFields): void;
}

export interface ActivityContext {
  /** `namespace:instance` of the run that asked for this. */
  readonly run: string;
  readonly workflowType: string;
  /** Name of the activity. */
  readonly activity: string;
  /** Which execution this is, from 1. */
  readonly attempt: number;
  /** The call's own key, or one that is unique to it: the same for all its attempts. */
  readonly idempotencyKey: string;
  /** Aborted, with one of the errors above as reason, when the result is no longer wanted. */
  readonly signal: AbortSignal;
  /** Details of the last heartbeat of the attempt before this one, or undefined. */
  readonly lastHeartbeat: unknown;
  /**
   * Reports that the activity lives, and how far it came: `details` is handed to the next attempt.
   * May be called as often as is convenient; what is sent is limited.
   */
  heartbeat(details?: unknown): void;
  readonly log: ActivityLog;
}

interface Shape {
  // A method, so that an activity may name a type of its own for what the workflow's JSON holds.
  run(input: unknown, context: ActivityContext): unknown;
}
export type Activity = Shape["run"];

/** Activities by the name under which workflows call them. */
export type Activities = Readonly<Record<string, Activity>>;
