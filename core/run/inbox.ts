/**
 * What a run has taken of other partitions: the receiver's half of messages between partitions.
 *
 * Of each sender the highest number taken is kept, and only the next one is taken, so every
 * message has its effect once. The effect is an event where the run is told of it (a signal, a
 * result), else an `InboxTaken` beside the history. A message that can't have its effect is taken
 * too, with a refusal that is remembered until the sender has recorded it: whatever is lost on the
 * way, the sender is told the same each time.
 */
import { limits, type Partition, type Reason, type Rejection, runOf } from "#core/base";
import { EventKind, type Failure, type InboxForgotten, type InboxTaken, type Message, MessageKind, type ResultReceived } from "#proto";
import { outcomeOf } from "./close.ts";
import type { RunEvent } from "./event.ts";
import { failureOf } from "./failure.ts";
import { owe, type ResultWaiter } from "./outbox.ts";
import { markTaken } from "./sender.ts";
import { decideSignal } from "./signal.ts";
import { isClosed, isLive, type Run } from "./state.ts";

/** Taken without an event: with a refusal, or with an effect that the run is not told of. */
export interface Taken {
  readonly refusal: Reason | undefined;
}

/** What the next message of `from` becomes. Undefined: a later version knows what it means. */
export function decideTake(run: Run, from: Partition, message: Message): RunEvent | Taken | undefined {
  switch (message.kind) {
    case MessageKind.signal:
      return takeSignal(run, from, message);
    case MessageKind.wait:
      return { refusal: refuseWait(run) };
    case MessageKind.waitCancelled:
      return { refusal: undefined };
    case MessageKind.result:
      return takeResult(run, from, message);
    default:
      return undefined;
  }
}

function takeSignal(run: Run, from: Partition, { name, payload, number }: Message): RunEvent | Taken {
  const decision = decideSignal(run, { name, payload, id: "", from, number });
  // Without an id there are no duplicates.
  if (decision === "duplicate") return { refusal: undefined };
  return "reject" in decision ? { refusal: decision.reject } : decision;
}

export function refuseWait(run: Run): Reason | undefined {
  if (run.generation === 0) return "RUN_NOT_FOUND";
  return isLive(run) && run.awaiters.size >= limits.awaitersMax ? "BUFFER_FULL" : undefined;
}

function takeResult(run: Run, from: Partition, message: Message): RunEvent | Taken {
  const { op, number, of, status, payload, failure } = message;
  const o = run.pending.get(op);
  const waits = isLive(run) && run.generation === message.generation && o?.kind === EventKind.resultAwaited && o.to === runOf(from);
  // The wait was withdrawn, or its run has ended: nobody wants it.
  if (!waits) return { refusal: undefined };
  const body: ResultReceived = { op, from, number, generation: of, status, result: payload, failure };
  return { kind: EventKind.resultReceived, body };
}

export const waiterKey = (waiter: ResultWaiter) => `${waiter.partition}#${waiter.generation}.${waiter.op}`;

export function applyTaken(run: Run, fact: InboxTaken): void {
  const from = fact.sender as Partition;
  if (fact.number <= (run.inbox.get(from)?.taken ?? 0)) return;
  const sender = markTaken(run, from, fact.number);
  if (fact.refusal !== "") {
    sender.refused = sender.refused.filter((refusal) => refusal.number > fact.settled);
    sender.refused.push({ number: fact.number, reason: fact.refusal });
    return;
  }
  const waiter: ResultWaiter = { partition: from, generation: fact.generation, op: fact.op };
  if (fact.kind === MessageKind.waitCancelled) run.awaiters.delete(waiterKey(waiter));
  else if (fact.kind !== MessageKind.wait) return;
  else if (isClosed(run)) owe(run, waiter, owedResult(run));
  else run.awaiters.set(waiterKey(waiter), waiter);
}

export function applyForgotten(run: Run, fact: InboxForgotten): void {
  const sender = fact.sender as Partition;
  if ((run.inbox.get(sender)?.taken ?? 0) <= fact.taken) run.inbox.delete(sender);
}

/** The run has ended: everybody who waits for it is owed how. */
export function tellAwaiters(run: Run): void {
  if (run.awaiters.size === 0) return;
  const result = owedResult(run);
  for (const waiter of run.awaiters.values()) owe(run, waiter, result);
  run.awaiters.clear();
}

function owedResult(run: Run) {
  const { status, result, failure } = outcomeOf(run);
  return { generation: run.generation, status, result, failure };
}

export function loadAwaiters(awaiters: readonly { partition: string; generation: number; op: number }[]): Run["awaiters"] {
  return new Map(awaiters.map((one) => [waiterKey(one as ResultWaiter), one as ResultWaiter]));
}

/** What the code of the run that sent the message is told of its refusal. */
export function refusalFailure(kind: MessageKind, to: string, reason: string): Failure {
  const verb = kind === MessageKind.signal ? "signal" : "wait for";
  const [type, why] = refusalTexts[reason] ?? [reason, `it was refused: ${reason}`];
  return failureOf(type, `Cannot ${verb} ${to}: ${why}`, { nonRetryable: true });
}

const refusalTexts: Partial<Record<string, readonly [string, string]>> = {
  RUN_NOT_FOUND: ["RunNotFoundError", "there is no such run"],
  RUN_CLOSED: ["RunClosedError", "it has ended"],
  BUFFER_FULL: ["LimitError", `${limits.awaitersMax} operations wait for it, and no more may`],
} satisfies Partial<Record<Rejection["reject"], readonly [string, string]>>;
