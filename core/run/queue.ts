/**
 * Starts that wait for their name, and how earlier starts of it ended.
 *
 * A ticket is the sequence of the event that queued the start: known at once, never given twice, and
 * the start's own whatever becomes of those before it. Invariant: an ended run has an empty queue,
 * since the record that ends a run begins the next one too.
 *
 * Where another run follows at once, whoever asks a little later for the one before would never
 * be told: how the last of those ended is kept, with starts that left the queue without a run.
 */
import { limits, type Rejection } from "#core/base";
import {
  type Contender,
  type Ending,
  EventKind,
  type Outcome,
  RunStatus,
  type SignalQueued,
  type StartCancelled,
  type StartExpired,
  type StartQueued,
  type SupersedeRequested,
} from "#proto";
import { tellLeft, tellStarter } from "./child.ts";
import { type Asker, noAsker, outcomeOf } from "./close.ts";
import type { EventOf, RunEvent } from "./event.ts";
import { failureOf } from "./failure.ts";
import { markAsker } from "./sender.ts";
import { rememberSignal, type SignalRequest } from "./signal.ts";
import { kept, type Run } from "./state.ts";

/** Which run of a name is meant; 0 and 0 = its newest. */
export interface Target {
  readonly ticket: number;
  readonly generation: number;
}

/** What a target has come to. */
export type Found =
  | { readonly kind: "newest" }
  | { readonly kind: "queued"; readonly contender: Contender }
  | { readonly kind: "ended"; readonly ending: Ending };

export function findStart(run: Run, { ticket, generation }: Target): Found | undefined {
  if (ticket === 0 && (generation === 0 || generation === run.generation)) return { kind: "newest" };
  if (ticket !== 0 && ticket === run.ticket) return { kind: "newest" };
  const contender = ticket === 0 ? undefined : run.queue.find((one) => one.ticket === ticket);
  if (contender !== undefined) return { kind: "queued", contender };
  const ending = run.endings.find((one) => (ticket === 0 ? one.generation === generation : one.ticket === ticket));
  return ending === undefined ? undefined : { kind: "ended", ending };
}

/** How a start is written where a message names it. */
export const startText = (run: Pick<Run, "run">, { ticket, generation }: Target) =>
  ticket === 0 ? `generation ${generation} of ${run.run}` : `start ${ticket} of ${run.run}`;

/** Why nothing can be said of a target that is not found. */
export function refuseUnknown(run: Pick<Run, "run" | "generation">, verb: string, target: Target): Rejection {
  const what = `Cannot ${verb} ${startText(run, target)}`;
  if (target.ticket > 0) {
    const message = `${what}: it does not wait, and how it ended is not remembered; the history of ${run.run} tells of it, if there was one`;
    return { reject: "RUN_NOT_FOUND", message };
  }
  if (target.generation > run.generation)
    return { reject: "RUN_NOT_FOUND", message: `${what}: the newest is generation ${run.generation}` };
  return {
    reject: "RUN_CLOSED",
    message: `${what}: it has ended, and generation ${run.generation} came after it; its history has its result`,
  };
}

const bytesOf = ({ input, signal }: Contender): number =>
  signal.reduce((sum, { payload }) => sum + (payload?.data.length ?? 0), input?.data.length ?? 0);

/** Why no more starts can wait for the name, or undefined. */
export function refuseFull(run: Run, payloads: readonly Contender["input"][]): Rejection | undefined {
  const { length } = run.queue;
  if (length < limits.queuedStartsMax) return refuseBytes(run, `queue a start of ${run.run}`, payloads);
  const message = `Cannot queue a start of ${run.run}: ${length} wait for it, at most ${limits.queuedStartsMax} may`;
  return { reject: "BUFFER_FULL", message, retryAfterMs: 1000 };
}

function refuseBytes(run: Run, doing: string, more: readonly Contender["input"][]): Rejection | undefined {
  const waiting = run.queue.reduce((sum, one) => sum + bytesOf(one), 0);
  const coming = more.reduce((sum, one) => sum + (one?.data.length ?? 0), 0);
  if (waiting + coming <= limits.queuedBytesMax) return undefined;
  const message = `Cannot ${doing}: what waits in its queue has ${waiting} bytes, at most ${limits.queuedBytesMax} may`;
  return { reject: "BUFFER_FULL", message, retryAfterMs: 1000 };
}

/** Its waiting is over by `timeMs`. */
export const isOverdue = ({ expiresAtMs }: Contender, timeMs: number) => expiresAtMs > 0 && expiresAtMs <= timeMs;

export function decideExpired({ ticket, queuedMs, expiresAtMs }: Contender): RunEvent {
  return { kind: EventKind.startExpired, body: { ticket, budgetMs: expiresAtMs - queuedMs } };
}

export function decideStartCancelled({ ticket }: Contender, reason: string, asker = noAsker): RunEvent {
  return { kind: EventKind.startCancelled, body: { ticket, reason, ...asker } };
}

/** A signal for a start that waits. */
export function decideHeldSignal(
  run: Run,
  { ticket, signal }: Contender,
  held: SignalRequest & Partial<Asker>,
): RunEvent | "duplicate" | Rejection {
  const { name, payload, id, from = "", number = 0 } = held;
  if (id !== "" && run.signalIds.includes(id)) return "duplicate";
  const doing = `signal ${startText(run, { ticket, generation: 0 })}`;
  if (signal.length >= limits.heldSignalsMax) {
    const message = `Cannot ${doing}: ${signal.length} signals wait with it, at most ${limits.heldSignalsMax} may`;
    return { reject: "BUFFER_FULL", message, retryAfterMs: 1000 };
  }
  return refuseBytes(run, doing, [payload]) ?? { kind: EventKind.signalQueued, body: { ticket, name, payload, id, from, number } };
}

type QueueEvent = EventOf<"startQueued" | "startExpired" | "startCancelled" | "supersedeRequested" | "signalQueued">;

/** `inputHash` is that of a start that is queued. */
export function applyToQueue(run: Run, event: QueueEvent, at: { seq: number; timeMs: number }, inputHash: Uint8Array): void {
  switch (event.kind) {
    case EventKind.startQueued:
      return applyQueued(run, event.body, at, inputHash);
    case EventKind.startExpired:
      return applyExpired(run, event.body);
    case EventKind.startCancelled:
      return applyCancelled(run, event.body);
    case EventKind.supersedeRequested:
      return applySupersede(run, event.body);
    case EventKind.signalQueued:
      return applySignalQueued(run, event.body, at.seq);
  }
}

function applyQueued(run: Run, body: StartQueued, at: { seq: number; timeMs: number }, inputHash: Uint8Array): void {
  const { type, bundle, input, deadlineMs, idempotencyKey, budgetMs, startedBy } = body;
  run.queue.push({
    ticket: at.seq,
    type,
    bundle: bundle.slice(),
    input: kept(input),
    deadlineMs,
    idempotencyKey,
    inputHash,
    queuedMs: at.timeMs,
    expiresAtMs: budgetMs > 0 ? at.timeMs + budgetMs : 0,
    signal: [],
    startedBy,
  });
  tellStarter(run, { startedBy, ticket: at.seq, isQueued: true });
}

/** The start goes before all others that wait. */
function applySupersede(run: Run, { ticket }: SupersedeRequested): void {
  const first = takeOut(run, ticket);
  if (first !== undefined) run.queue.unshift(first);
}

function applySignalQueued(run: Run, body: SignalQueued, seq: number): void {
  const { ticket, name, payload, id } = body;
  markAsker(run, body);
  rememberSignal(run, id);
  run.queue.find((one) => one.ticket === ticket)?.signal.push({ seq, name, payload: kept(payload), id });
}

function applyExpired(run: Run, { ticket, budgetMs }: StartExpired): void {
  const message = `Start ${ticket} of ${run.run} waited in the queue for the ${budgetMs} ms that it was to wait at most, and did not begin`;
  leave(run, ticket, RunStatus.timedOut, failureOf("BudgetExpiredError", message, { nonRetryable: true }));
}

function applyCancelled(run: Run, { ticket, reason, from, number }: StartCancelled): void {
  markAsker(run, { from, number });
  const message = `Start ${ticket} of ${run.run} was cancelled in the queue${reason === "" ? "" : `: ${reason}`}`;
  leave(run, ticket, RunStatus.cancelled, failureOf("CancelledError", message, { nonRetryable: true }));
}

function leave(run: Run, ticket: number, status: RunStatus, failure: Outcome["failure"]): void {
  const contender = takeOut(run, ticket);
  if (contender === undefined) return;
  useKey(run, contender, 0);
  const outcome = { status, result: undefined, failure };
  keepEnding(run, { ticket, generation: 0, outcome });
  tellLeft(run, contender, outcome);
}

/** The start waits no more. */
export function takeOut(run: Run, ticket: number): Contender | undefined {
  const contender = run.queue.find((one) => one.ticket === ticket);
  run.queue = run.queue.filter((one) => one !== contender);
  return contender;
}

interface KeyUse {
  readonly idempotencyKey: string;
  readonly inputHash: Uint8Array;
  readonly ticket: number;
}

/** The key stands for that start from here on. */
export function useKey(run: Run, { idempotencyKey, inputHash, ticket }: KeyUse, generation: number): void {
  if (idempotencyKey === "") return;
  run.usedKeys.push({ key: idempotencyKey, inputHash, generation, ticket });
  if (run.usedKeys.length > limits.usedKeysKept) run.usedKeys.shift();
}

/** Another run follows the ended one. Where no start of the two was queued, nobody is owed its outcome. */
export function keepOutcome(run: Run, ticketOfNext: number): void {
  if (run.generation === 0 || (ticketOfNext === 0 && run.ticket === 0)) return;
  keepEnding(run, { ticket: run.ticket, generation: run.generation, outcome: outcomeOf(run) });
}

function keepEnding(run: Run, ending: Ending): void {
  run.endings = [...run.endings, ending].slice(-limits.endingsKept);
  let bytes = 0;
  const from = run.endings.findLastIndex(({ outcome }) => {
    bytes += outcome?.result?.data.length ?? 0;
    return bytes > limits.endingBytesKept;
  });
  run.endings = run.endings.slice(from + 1);
}
