/** Activities: scheduled, tried again by policy, completed, failed for good, withdrawn. */
import { limits, type Rejection } from "#core/base";
import { defaultRetry, mayRetry, retryDelayMs } from "#core/policy";
import {
  type ActivityOptions,
  type ActivityRetried,
  type ActivityScheduled,
  EventKind,
  type Failure,
  type KeyClaim,
  type Payload,
} from "#proto";
import { letterAfter, replayed } from "./dead-letter.ts";
import type { RunEvent } from "./event.ts";
import { failureOf } from "./failure.ts";
import { applyClaim, toldNumber } from "./idempotency.ts";
import { type EventPlace, generationOf, isTask, kept, type Operation, openOperation, type Run } from "./state.ts";

export interface ScheduleRequest {
  readonly op: number;
  readonly name: string;
  readonly input: Payload | undefined;
  readonly options: ActivityOptions | undefined;
  /** Its idempotency key's; undefined = it has none. */
  readonly claim: KeyClaim | undefined;
}

export function decideSchedule(request: ScheduleRequest): RunEvent {
  const { op, name, input, options, claim } = request;
  return { kind: EventKind.activityScheduled, body: { op, name, input, options, claim } };
}

export function applyScheduled(run: Run, body: ActivityScheduled, at: EventPlace): void {
  const { op, name, options, claim } = body;
  const key = (claim?.to ?? "") as Operation["key"];
  const kind = EventKind.activityScheduled;
  const o = openOperation(run, at, { op, kind, name, input: kept(body.input), options, attempt: 1, delivery: 1, key });
  if (claim !== undefined) applyClaim(run, o, claim);
}

/** One delivery of one attempt, as a worker names it. */
export interface Claim {
  readonly generation: number;
  readonly op: number;
  readonly attempt: number;
  readonly delivery: number;
}

/** The operation that a claim is for, or why it may not commit. */
export function claimed(run: Run, claim: Claim): Operation | Rejection {
  const o = run.pending.get(claim.op);
  if (o === undefined || claim.generation !== generationOf(run, claim.op) || !isTask(o)) {
    return { reject: "FENCED", message: `Cannot take a result for ${run.run}: operation ${claim.op} is not open` };
  }
  if (claim.attempt !== o.attempt || claim.delivery !== o.delivery) {
    const got = `${claim.attempt}.${claim.delivery}`;
    return {
      reject: "FENCED",
      message: `Cannot take a result for ${run.run} operation ${claim.op}: attempt ${got}, want ${o.attempt}.${o.delivery}`,
    };
  }
  return o;
}

export function decideCompleted(run: Run, o: Operation, result: Payload | undefined, worker: string): RunEvent {
  const body = { op: o.op, attempt: o.attempt, result, worker };
  if (o.kind === EventKind.activityScheduled) {
    const key = { told: toldNumber(run, o), from: "", number: 0, by: undefined };
    return { kind: EventKind.activityCompleted, body: { ...body, ...key } };
  }
  return { kind: EventKind.compensationCompleted, body: { ...body, ...letterAfter(run, o.op, false) } };
}

export interface FailedAttempt {
  readonly failure: Failure;
  readonly worker: string;
  /** Progress that the attempt reported; undefined = none beyond what it began with. */
  readonly progress: Payload | undefined;
  readonly timeMs: number;
}

/** What follows a failed attempt: another attempt later, or failure for good. */
export function decideFailed(run: Run, o: Operation, attempt: FailedAttempt): RunEvent {
  const { failure, worker, timeMs } = attempt;
  const policy = o.options?.retry ?? defaultRetry;
  const wait = retryDelayMs(policy, o.attempt, run.seed ^ Math.imul(o.op, 0x9e3779b1) ^ o.attempt);
  const closeBy = o.options?.scheduleToCloseMs ? o.scheduledMs + o.options.scheduleToCloseMs : Number.POSITIVE_INFINITY;
  if (mayRetry(policy, o.attempt, failure) && timeMs + wait < closeBy) {
    const body = { op: o.op, attempt: o.attempt, failure, nextMs: timeMs + wait, worker, heartbeat: attempt.progress ?? o.heartbeat };
    if (o.kind === EventKind.activityScheduled) return { kind: EventKind.activityRetried, body };
    return { kind: EventKind.compensationRetried, body: { ...body, letter: replayed(run, o.op).letter } };
  }
  const body = { op: o.op, attempt: o.attempt, failure, worker };
  if (o.kind === EventKind.activityScheduled) return { kind: EventKind.activityFailed, body: { ...body, refused: false } };
  return { kind: EventKind.compensationFailed, body: { ...body, ...letterAfter(run, o.op, true) } };
}

export type Timeout = "start-to-close" | "schedule-to-close" | "heartbeat";

export function timeoutFailure(o: Operation, timeout: Timeout): Failure {
  const bound =
    timeout === "heartbeat"
      ? o.options?.heartbeatMs
      : timeout === "start-to-close"
        ? o.options?.startToCloseMs
        : o.options?.scheduleToCloseMs;
  const message = `Activity ${o.name} passed its ${timeout} limit of ${bound ?? 0} ms in attempt ${o.attempt}`;
  // Nothing can follow once the whole time is over.
  return failureOf("TimeoutError", message, { nonRetryable: timeout === "schedule-to-close" });
}

export function applyRetried(run: Run, body: Omit<ActivityRetried, "worker">): void {
  const o = run.pending.get(body.op);
  if (o === undefined) return;
  o.attempt = body.attempt + 1;
  o.delivery = 1;
  o.dueMs = Math.max(body.nextMs, 1);
  o.heartbeat = kept(body.heartbeat);
  o.lastFailure = body.failure?.message.slice(0, limits.nameBytesMax) ?? "";
}
