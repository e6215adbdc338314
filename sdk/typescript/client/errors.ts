/** What a caller of the client may catch. Each error says what was attempted and keeps its cause. */
import type { Failure } from "#proto";

/** A refusal. `reason` is stable and has a page in the documentation; `message` is for people. */
export class HopError extends Error {
  override name = "HopError";
  readonly reason: string;
  /** Wait this long before trying again, in milliseconds; 0 = the server names no time. */
  readonly retryAfterMs: number;

  constructor(reason: string, message: string, options: { retryAfterMs?: number; cause?: unknown } = {}) {
    super(message, options.cause === undefined ? undefined : { cause: options.cause });
    this.reason = reason;
    this.retryAfterMs = options.retryAfterMs ?? 0;
  }
}

export class RunNotFoundError extends HopError {
  override name = "RunNotFoundError";
}

export class WorkflowNotDeployedError extends HopError {
  override name = "WorkflowNotDeployedError";
}

/** A run of this instance is live, and the start asked not to attach. */
export class InstanceLiveError extends HopError {
  override name = "InstanceLiveError";
}

/** The server can't be reached, or can't serve now. What was asked may have happened. */
export class UnavailableError extends HopError {
  override name = "UnavailableError";
}

type ErrorClass = new (reason: string, message: string, options?: { retryAfterMs?: number; cause?: unknown }) => HopError;

const classes: Readonly<Record<string, ErrorClass>> = {
  RUN_NOT_FOUND: RunNotFoundError,
  WORKFLOW_NOT_DEPLOYED: WorkflowNotDeployedError,
  INSTANCE_LIVE: InstanceLiveError,
  STORE_UNAVAILABLE: UnavailableError,
  NOT_LEADER: UnavailableError,
};

/** The error of the class that belongs to `reason`. */
export function errorOf(reason: string, message: string, options: { retryAfterMs?: number; cause?: unknown } = {}): HopError {
  const Class = classes[reason] ?? HopError;
  return new Class(reason, message, options);
}

/** How a run ended that did not complete. */
export type FailedStatus = "failed" | "cancelled" | "terminated" | "timed_out" | "blocked";

/** The run did not complete. `cause` is the failure of its code, with the causes that it had. */
export class WorkflowFailedError extends Error {
  override name = "WorkflowFailedError";
  /** namespace:instance */
  readonly run: string;
  readonly status: FailedStatus;
  readonly failure: Failure | undefined;

  constructor(run: string, status: FailedStatus, failure: Failure | undefined) {
    const why = failure === undefined ? "" : `: ${failure.type === "" ? "" : `${failure.type}: `}${failure.message}`;
    super(`Run ${run} ${words[status]}${why}`, failure === undefined ? undefined : { cause: remoteError(failure) });
    this.run = run;
    this.status = status;
    this.failure = failure;
  }
}

/** A method that was called did not give a result. `cause` is the failure of its code. */
export class MethodFailedError extends Error {
  override name = "MethodFailedError";
  /** namespace:instance */
  readonly run: string;
  readonly method: string;
  /** Its input did not pass: the method's code did not begin. */
  readonly isRejected: boolean;
  readonly failure: Failure;

  constructor(run: string, failed: { readonly method: string; readonly failure: Failure; readonly isRejected: boolean }) {
    const { method, failure, isRejected } = failed;
    const how = isRejected ? "did not take its input" : "failed";
    super(`Method ${JSON.stringify(method)} of ${run} ${how}: ${failure.type === "" ? "" : `${failure.type}: `}${failure.message}`, {
      cause: remoteError(failure),
    });
    this.run = run;
    this.method = method;
    this.isRejected = isRejected;
    this.failure = failure;
  }
}

const words: Readonly<Record<FailedStatus, string>> = {
  failed: "failed",
  cancelled: "was cancelled",
  terminated: "was terminated",
  timed_out: "exceeded its deadline",
  blocked: "is stopped at a fault of its code",
};

/** An error that was thrown elsewhere: in workflow code or an activity. */
export class RemoteError extends Error {
  /** Name of the error's class there. */
  readonly type: string;
  readonly isRetryable: boolean;

  constructor(failure: Failure, cause: RemoteError | undefined) {
    super(failure.message, cause === undefined ? undefined : { cause });
    this.name = failure.type === "" ? "RemoteError" : failure.type;
    this.type = failure.type;
    this.isRetryable = !failure.nonRetryable;
    if (failure.stack !== "") this.stack = failure.stack;
  }
}

const causesMax = 16;

function remoteError(failure: Failure, depth = 0): RemoteError {
  const { cause } = failure;
  return new RemoteError(failure, cause === undefined || depth >= causesMax ? undefined : remoteError(cause, depth + 1));
}
