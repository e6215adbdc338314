/**
 * What a run has taken of other partitions: the receiver's half of messages between partitions.
 *
 * Of each sender the highest number taken is kept, and only the next one is taken, so every
 * message has its effect once. The effect is an event where the run is told of it (a signal, a
 * result), else an `InboxTaken` beside the history. A message that can't have its effect is taken
 * too, with a refusal that is remembered until the sender has recorded it: whatever is lost on the
 * way, the sender is told the same each time.
 */
import { isKey, limits, type Partition, type Reason, runOf } from "#core/base";
import { EventKind, type InboxForgotten, type InboxTaken, type Message, MessageKind, type ResultReceived } from "#proto";
import { applyReaderFact } from "./channel.ts";
import { received } from "./channel-use.ts";
import { meantBy } from "./child.ts";
import { outcomeOf } from "./close.ts";
import type { RunEvent } from "./event.ts";
import { applyGrantTaken, takeGranted, takeKeyResult } from "./idempotency.ts";
import { takeCall, takeCallCancelled } from "./method.ts";
import { enqueue, owe, type ResultWaiter, waiterKey } from "./outbox.ts";
import { decideHeldSignal } from "./queue.ts";
import { markTaken } from "./sender.ts";
import { decideSignal } from "./signal.ts";
import { hasGuest, isClosed, isLive, isOpen, type Operation, type Run } from "./state.ts";

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
      return isKey(from) ? takeKeyResult(run, from, message) : takeResult(run, from, message);
    case MessageKind.granted:
      return takeGranted(run, from, message);
    case MessageKind.call: {
      const taken = takeCall(run, from, message);
      return typeof taken === "string" ? { refusal: taken } : taken;
    }
    case MessageKind.callAnswered:
      return takeCallAnswered(run, from, message);
    case MessageKind.callCancelled:
      return takeCallCancelled(run, from, message) ?? { refusal: undefined };
    case MessageKind.started:
      return takeStarted(run, from, message);
    case MessageKind.delivered:
      return waiting(run, from, message)?.kind === EventKind.channelAwaited ? received(from, message) : { refusal: undefined };
    default:
      return undefined;
  }
}

function takeSignal(run: Run, from: Partition, message: Message): RunEvent | Taken {
  const { name, payload, number } = message;
  const meant = meantBy(run, from, message);
  if (meant === undefined) return { refusal: "RUN_CLOSED" };
  const signal = { name, payload, id: "", from, number };
  const decision = meant === "newest" ? decideSignal(run, signal) : decideHeldSignal(run, meant, signal);
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
  const o = waiting(run, from, message);
  const body: ResultReceived = { op, from, number, generation: of, status, result: payload, failure };
  if (o?.kind === EventKind.resultAwaited) return { kind: EventKind.resultReceived, body };
  // A schedule has no use for what its runs return.
  if (o?.kind === EventKind.childSpawned)
    return { kind: EventKind.childEnded, body: hasGuest(run) ? body : { ...body, result: undefined } };
  return { refusal: undefined };
}

function takeCallAnswered(run: Run, from: Partition, message: Message): RunEvent | Taken {
  const { op, number, of: generation, payload: result, failure } = message;
  if (waiting(run, from, message)?.kind !== EventKind.methodCallSent) return { refusal: undefined };
  return { kind: EventKind.methodCallAnswered, body: { op, from, number, generation, result, failure } };
}

function takeStarted(run: Run, from: Partition, message: Message): RunEvent | Taken {
  const { op, number, of: generation, ticket, attached } = message;
  if (waiting(run, from, message)?.kind !== EventKind.childSpawned) return { refusal: undefined };
  return { kind: EventKind.childStarted, body: { op, from, number, generation, ticket, attached, failure: undefined } };
}

/** The operation that a message answers; undefined where it was withdrawn, or its run has ended: nobody wants it. */
function waiting(run: Run, from: Partition, { op, generation }: Message): Operation | undefined {
  const o = run.pending.get(op);
  return isOpen(run) && run.generation === generation && o?.to === runOf(from) ? o : undefined;
}

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
  else if (fact.kind === MessageKind.start) attach(run, waiter, fact.of);
  else if (fact.kind === MessageKind.granted) applyGrantTaken(run, fact);
  else if (fact.kind === MessageKind.wait) awaitEnd(run, waiter);
  else applyReaderFact(run, fact);
}

/** A start found this generation, and waits for its end. */
function attach(run: Run, waiter: ResultWaiter, of: number): void {
  const { partition, generation, op } = waiter;
  enqueue(run, partition, { kind: MessageKind.started, op, generation, of, attached: true });
  awaitEnd(run, waiter);
}

function awaitEnd(run: Run, waiter: ResultWaiter): void {
  if (isClosed(run)) owe(run, waiter, owedResult(run));
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
  return { generation: run.generation, status, result, failure, by: undefined };
}

export function loadAwaiters(awaiters: readonly { partition: string; generation: number; op: number }[]): Run["awaiters"] {
  return new Map(awaiters.map((one) => [waiterKey(one as ResultWaiter), one as ResultWaiter]));
}
