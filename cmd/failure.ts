/**
 * How a command fails: one table from reasons to exit codes and to the advice that follows.
 *
 * Exit codes: 0 ok, 1 failed, 2 usage, 3 auth, 4 not found, 5 conflict, 6 unavailable,
 * 130 interrupted.
 */
import { type Reason, reasons } from "#core/base";

export const exit = { ok: 0, failed: 1, usage: 2, auth: 3, notFound: 4, conflict: 5, unavailable: 6, interrupted: 130 } as const;
export type ExitCode = (typeof exit)[keyof typeof exit];

/** A command that can't go on, for a cause that is no refusal of the server. */
export class CommandError extends Error {
  override name = "CommandError";
  readonly exitCode: ExitCode;
  /** What to do now: a sentence without a full stop. */
  readonly next: string | undefined;

  constructor(exitCode: ExitCode, message: string, options: { next?: string; cause?: unknown } = {}) {
    super(message, options.cause === undefined ? undefined : { cause: options.cause });
    this.exitCode = exitCode;
    this.next = options.next;
  }
}

/** The command was called wrongly. */
export class UsageError extends CommandError {
  override name = "UsageError";

  constructor(message: string, options: { next?: string; cause?: unknown } = {}) {
    super(exit.usage, message, options);
  }
}

const byReason: Record<Reason, ExitCode> = {
  BAD_REQUEST: exit.usage,
  PAYLOAD_TOO_LARGE: exit.usage,
  UNAUTHENTICATED: exit.auth,
  RUN_NOT_FOUND: exit.notFound,
  SCHEDULE_NOT_FOUND: exit.notFound,
  SCHEDULE_EXISTS: exit.conflict,
  CHANNEL_NOT_FOUND: exit.notFound,
  CHANNEL_EXISTS: exit.conflict,
  CHANNEL_CLOSED: exit.conflict,
  WORKFLOW_NOT_DEPLOYED: exit.notFound,
  QUERY_NOT_FOUND: exit.notFound,
  BLOB_NOT_FOUND: exit.notFound,
  NODE_NOT_FOUND: exit.notFound,
  SHARD_NOT_FOUND: exit.notFound,
  DEAD_LETTER_NOT_FOUND: exit.notFound,
  ENTRY_NOT_FOUND: exit.notFound,
  INSTANCE_LIVE: exit.conflict,
  IDEMPOTENCY_CONFLICT: exit.conflict,
  VERSION_CONFLICT: exit.conflict,
  SHARD_BUSY: exit.conflict,
  ALREADY_MEMBER: exit.conflict,
  RUN_CLOSED: exit.conflict,
  ANSWER_NOT_KEPT: exit.conflict,
  HISTORY_EXPIRED: exit.conflict,
  RUN_QUEUED: exit.conflict,
  RUN_BLOCKED: exit.conflict,
  FENCED: exit.conflict,
  NOT_A_MEMBER: exit.conflict,
  FOREIGN_CLUSTER: exit.conflict,
  BUFFER_FULL: exit.unavailable,
  NO_SPACE: exit.unavailable,
  NOT_LEADER: exit.unavailable,
  STALE_EPOCH: exit.unavailable,
  BUDGET_EXPIRED: exit.unavailable,
  STORE_UNAVAILABLE: exit.unavailable,
  QUERY_FAILED: exit.failed,
  HASH_MISMATCH: exit.failed,
  INTERNAL: exit.failed,
};

const nextByReason: Partial<Record<Reason, string>> = {
  UNAUTHENTICATED: "say who you are: set USER, or pass a token where the server asks for one",
  SCHEDULE_NOT_FOUND: "list what there is with `hop schedule list`",
  SCHEDULE_EXISTS: "change it with `hop schedule update`",
  CHANNEL_NOT_FOUND: "list what there is with `hop channel list`; whoever first sends to a name opens it",
  CHANNEL_EXISTS: "see it with `hop channel show`; change it with `hop channel change`, or close it first",
  CHANNEL_CLOSED: "open it anew with `hop channel open`",
  RUN_NOT_FOUND: "list what there is with `hop workflow list`",
  WORKFLOW_NOT_DEPLOYED: "deploy it with `hop deploy FILE`, or let `hop dev` do so",
  QUERY_NOT_FOUND: "see the queries that the workflow declares in its code",
  INSTANCE_LIVE: "wait for it with `hop workflow result`, or start with `--contention attach` or `--contention queue`",
  IDEMPOTENCY_CONFLICT: "use a new key, or send the same arguments again",
  RUN_BLOCKED: "see the fault with `hop workflow show`, fix the code, deploy it, then `hop workflow retry RUN --newest`",
  RUN_QUEUED: "see its place with `hop workflow show`, and wait for it with `hop workflow result`",
  HISTORY_EXPIRED: "see what is kept of it with `hop audit` and `hop workflow show`",
  ANSWER_NOT_KEPT: "read the answer in the run's history with `hop audit`",
  RUN_CLOSED: "see how it ended with `hop workflow show`",
  NODE_NOT_FOUND: "list the nodes with `hop cluster members`",
  SHARD_NOT_FOUND: "list the shards with `hop shard list`",
  ENTRY_NOT_FOUND: "list what there is with the command's `list`",
  VERSION_CONFLICT: "read the entry again, and set it with the version that it has now",
  SHARD_BUSY: "see what is under way with `hop shard show`, and try again when it is done",
  ALREADY_MEMBER: "see its cluster with `hop cluster status`",
  BUFFER_FULL: "try again in a moment; if it stays so, start more workers",
  NO_SPACE: "free space on the server's disk; it goes on by itself",
  BUDGET_EXPIRED: "a run goes on: ask again with a longer --timeout; a start that left its queue has to be made again",
  HASH_MISMATCH: "stop relying on this data and compare it with a copy",
  INTERNAL: "see the server's log",
};

const seeCluster = "try again; see how the node and its cluster stand with `hop cluster status`";
const needsWorker = "try again; a query needs a worker that has the run's code: start one with `hop worker`, or `hop dev`";

/** Commands that are refused by this machine or by object storage: the message says what to do. */
const withoutServer = ["dev", "server start", "sql"];

/** What may help after a refusal of the command of these names, such as "workflow query". */
function nextAfter(reason: Reason, command: string): string | undefined {
  if (reason === "UNAUTHENTICATED" && withoutServer.includes(command)) return undefined;
  if (reason !== "STORE_UNAVAILABLE") return nextByReason[reason];
  if (command === "query" || command === "workflow query") return needsWorker;
  return withoutServer.includes(command) ? undefined : seeCluster;
}

/** The refusal that an error stands for. The client library has a class of its own for it, as has Core. */
export function reasonOf(error: unknown): Reason | undefined {
  const reason = error instanceof Error && "reason" in error ? error.reason : undefined;
  return typeof reason === "string" && Object.hasOwn(reasons, reason) ? (reason as Reason) : undefined;
}

/** Exit code of whatever a command threw. */
export function exitCodeOf(error: unknown): ExitCode {
  if (error instanceof CommandError) return error.exitCode;
  const reason = reasonOf(error);
  return reason === undefined ? exit.failed : exitCodeOfReason(reason);
}

export const exitCodeOfReason = (reason: Reason): ExitCode => byReason[reason];

/** An error as it is shown: message, reason if it has one, and what to do next. */
export interface Shown {
  readonly message: string;
  readonly reason: Reason | undefined;
  readonly next: string | undefined;
  readonly exitCode: ExitCode;
}

/** `command`: names of the command that failed, such as "workflow query". */
export function shown(error: unknown, command: string): Shown {
  const exitCode = exitCodeOf(error);
  const message = error instanceof Error ? error.message : String(error);
  if (error instanceof CommandError) return { message, reason: undefined, next: error.next, exitCode };
  const reason = reasonOf(error);
  return { message, reason, next: reason === undefined ? undefined : nextAfter(reason, command), exitCode };
}
