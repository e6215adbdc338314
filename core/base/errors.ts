/**
 * Refusals: what a caller may be told, each with one page in docs/errors.
 *
 * Core returns a `Rejection`; the node's edge turns it into a `HopError`, gRPC gets its status
 * in one place and the command line its exit code in one place.
 */
export const reasons = {
  BAD_REQUEST: "The request breaks a rule that its message names",
  UNAUTHENTICATED: "The caller did not say who it is, or its proof is not valid",
  RUN_NOT_FOUND: "No run has this id",
  SCHEDULE_NOT_FOUND: "No schedule has this id",
  CHANNEL_NOT_FOUND: "No channel has this name",
  CHANNEL_EXISTS: "A channel of this name is open",
  CHANNEL_CLOSED: "The channel is closed, and takes no messages",
  SCHEDULE_EXISTS: "A schedule of this id is there already",
  WORKFLOW_NOT_DEPLOYED: "No deployment holds a workflow of this type",
  QUERY_NOT_FOUND: "The run declares no query of this name",
  QUERY_FAILED: "The query's own code failed",
  ANSWER_NOT_KEPT: "The method call was answered before, and only the history has the answer",
  BLOB_NOT_FOUND: "Content-addressed storage holds no such blob",
  NODE_NOT_FOUND: "No member of the cluster has this number",
  SHARD_NOT_FOUND: "No shard has this number",
  DEAD_LETTER_NOT_FOUND: "The run's name has no dead letter of this number",
  ENTRY_NOT_FOUND: "No entry of this class has this name",
  INSTANCE_LIVE: "A run of this instance is live and the start asked not to attach",
  IDEMPOTENCY_CONFLICT: "The idempotency key was used with other arguments",
  VERSION_CONFLICT: "The entry has another version than the change expects",
  SHARD_BUSY: "Another change of the shard is under way",
  ALREADY_MEMBER: "The node belongs to a cluster",
  RUN_CLOSED: "The run has ended",
  RUN_QUEUED: "The start waits in the queue of its name and has no run yet",
  HISTORY_EXPIRED: "Retention took the run's history away",
  RUN_BLOCKED: "The run is stopped at a fault of its code and waits for a retry",
  PAYLOAD_TOO_LARGE: "A payload is above the limit",
  FENCED: "A newer delivery holds the task",
  BUFFER_FULL: "Too much is waiting; try again later",
  NO_SPACE: "The log's disk is full; reads go on, appends wait for space",
  NOT_A_MEMBER: "The node does not belong to what it wants to take part in",
  FOREIGN_CLUSTER: "The node belongs to another cluster",
  NOT_LEADER: "Another node leads the shard",
  STALE_EPOCH: "The shard map has changed",
  BUDGET_EXPIRED: "The time that the caller allowed is over",
  STORE_UNAVAILABLE: "Storage or a worker can't be reached now; nothing is known to be lost",
  HASH_MISMATCH: "Stored bytes are not the bytes that were recorded",
  INTERNAL: "A bug: the node's log says more",
} as const;

export type Reason = keyof typeof reasons;

/** A refusal as Core returns it. */
export interface Rejection {
  readonly reject: Reason;
  readonly message: string;
  readonly retryAfterMs?: number;
  /** With STALE_EPOCH: the epoch of the current shard map. */
  readonly epoch?: number;
}

/** A refusal on its way out of a process. */
export class HopError extends Error {
  override name = "HopError";
  readonly reason: Reason;
  readonly retryAfterMs: number;
  /** With STALE_EPOCH: the epoch of the current shard map; else 0. */
  readonly epoch: number;

  constructor(reason: Reason, message: string, options: { retryAfterMs?: number; epoch?: number; cause?: unknown } = {}) {
    super(message, options.cause === undefined ? undefined : { cause: options.cause });
    this.reason = reason;
    this.retryAfterMs = options.retryAfterMs ?? 0;
    this.epoch = options.epoch ?? 0;
  }

  static from(rejection: Rejection): HopError {
    return new HopError(rejection.reject, rejection.message, { retryAfterMs: rejection.retryAfterMs ?? 0, epoch: rejection.epoch ?? 0 });
  }
}

/** What was asked can't be known or done now, and nothing of it was: the same may be asked again. */
export const isUnavailable = (thrown: unknown): thrown is HopError => thrown instanceof HopError && thrown.reason === "STORE_UNAVAILABLE";

/** What `ask` gives; undefined where that can't be known or done now. */
export function ifAvailable<T>(ask: () => T): T | undefined {
  try {
    return ask();
  } catch (error) {
    if (isUnavailable(error)) return undefined;
    throw error;
  }
}

/** Does what may not be possible now. Returns whether it was. */
export function doIfAvailable(work: () => void): boolean {
  const done = ifAvailable(() => {
    work();
    return true;
  });
  return done ?? false;
}

/** What a thing that was thrown says. */
export const errorText = (thrown: unknown): string => (thrown instanceof Error ? thrown.message : String(thrown));
