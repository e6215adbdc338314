/** JSON forms of what the server says, for `-o json` and `-o jsonl`: these names are a contract. */
import { toHex } from "#core/base";
import {
  CompensationTrigger,
  type DescribeReply,
  type Failure,
  type Outcome,
  type PendingSummary,
  type QueuedStart,
  RunStatus,
  type RunSummary,
  type StartedBy,
} from "#proto";
import { runText, timeText } from "./event-text.ts";
import { kindName } from "./history.ts";
import { statusWord } from "./status.ts";

export function runJson(run: RunSummary) {
  return {
    run: run.run,
    generation: run.generation,
    type: run.type,
    status: statusWord(run.status),
    startedAt: run.startedMs === 0 ? null : timeText(run.startedMs),
    closedAt: run.closedMs === 0 ? null : timeText(run.closedMs),
    bundle: toHex(run.bundle),
    note: run.note,
    searchable: searchableOf(run),
    deadLetters: run.deadLetters,
    historyExpiredAt: run.expiredMs === 0 ? null : timeText(run.expiredMs),
  };
}

/** Times as texts. */
export function searchableOf({ searchable }: RunSummary): Record<string, unknown> {
  if (searchable === "") return {};
  const found = Object.entries(JSON.parse(searchable) as Record<string, unknown>);
  return Object.fromEntries(
    found.map(([name, value]) => [
      name,
      typeof value === "object" && value !== null ? timeText((value as { readonly time: number }).time) : value,
    ]),
  );
}

export function pendingJson(pending: PendingSummary) {
  return {
    op: pending.op,
    kind: kindName(pending.kind),
    name: pending.name,
    run: pending.to === "" ? null : pending.to,
    attempt: pending.attempt,
    dueAt: pending.dueMs === 0 ? null : timeText(pending.dueMs),
    waitsFor: pending.waitsFor,
    lastFailure: pending.lastFailure,
  };
}

function queuedJson({ ticket, type, queuedMs, expiresAtMs, signals }: QueuedStart) {
  return { ticket, type, queuedAt: timeText(queuedMs), expiresAt: expiresAtMs === 0 ? null : timeText(expiresAtMs), signals };
}

function parentJson({ partition, generation, op }: StartedBy) {
  return { run: runText(partition), generation, op };
}

export const triggerWord = (trigger: number) => (trigger === CompensationTrigger.always ? "always" : "on-failure");

export function describeJson(reply: DescribeReply, outcome: object | null) {
  return {
    ...(reply.summary === undefined ? {} : runJson(reply.summary)),
    size: reply.size,
    expiredEvents: reply.expiredEnd,
    root: toHex(reply.root),
    lastHash: toHex(reply.lastHash),
    parent: reply.startedBy === undefined ? null : parentJson(reply.startedBy),
    cancelRequested: reply.cancelRequested,
    deadlineAt: reply.deadlineAtMs === 0 ? null : timeText(reply.deadlineAtMs),
    pending: reply.pending.map(pendingJson),
    queue: reply.queue.map(queuedJson),
    compensations: reply.compensation.map(({ op, name, trigger }) => ({ op, name, trigger: triggerWord(trigger) })),
    decidedStatus: reply.decidedStatus === 0 ? null : statusWord(reply.decidedStatus),
    outcome,
  };
}

export function failureJson(failure: Failure): object {
  return {
    type: failure.type,
    message: failure.message,
    ...(failure.stack === "" ? {} : { stack: failure.stack }),
    nonRetryable: failure.nonRetryable,
    ...(failure.cause === undefined ? {} : { cause: failureJson(failure.cause) }),
  };
}

/** A payload whose bytes are here: its JSON value, or base64 where it holds none. */
export function payloadJson(bytes: Uint8Array): unknown {
  if (bytes.length === 0) return null;
  try {
    return JSON.parse(new TextDecoder("utf-8", { fatal: true }).decode(bytes));
  } catch {
    return { base64: Buffer.from(bytes).toString("base64") };
  }
}

/** How a run ended; `result` are the bytes of its result. */
export function outcomeJson(outcome: Outcome, result: Uint8Array | undefined): object {
  return {
    status: statusWord(outcome.status),
    ...(outcome.status === RunStatus.completed ? { result: payloadJson(result ?? new Uint8Array(0)) } : {}),
    ...(outcome.failure === undefined ? {} : { failure: failureJson(outcome.failure) }),
  };
}
