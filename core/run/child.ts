/**
 * Runs that a run starts, its children: both halves.
 *
 * A start is a message. The operation stays open until the child has ended, whose end comes as a
 * message too: the child knows who started it, and tells. What a parent wants of a child names the
 * operation that spawned it, so it never reaches another run that has the name meanwhile.
 *
 * However a parent ends, the event of it makes the messages by which its children end or are asked
 * to: they are as durable as that event. Children of earlier generations are none of its business.
 */
import type { Partition } from "#core/base";
import {
  type CancelSent,
  type ChildSpawned,
  type ChildStarted,
  type Contender,
  EventKind,
  type Failure,
  type Message,
  MessageKind,
  type Outcome,
  ParentClosePolicy,
  type Payload,
  RunStatus,
  type StartedBy,
  type StartOrder,
} from "#proto";
import type { EventOf, RunEvent } from "./event.ts";
import { enqueue, nextNumber, partitionOf, type ResultWaiter, waiterKey } from "./outbox.ts";
import { closeOperation, markAsker, markTaken } from "./sender.ts";
import { kept, type Operation, openOperation, type Run } from "./state.ts";

export interface SpawnRequest {
  readonly op: number;
  /** `namespace:instance`. */
  readonly to: string;
  /** Without a bundle where the newest deployed is meant. */
  readonly start: StartOrder | undefined;
  readonly input: Payload | undefined;
  /** 0 = terminate. */
  readonly closePolicy: number;
}

export function decideSpawn(run: Run, { op, to, start, input, closePolicy }: SpawnRequest): RunEvent {
  const policy = closePolicy === 0 ? ParentClosePolicy.terminate : closePolicy;
  return { kind: EventKind.childSpawned, body: { op, to, start, input, closePolicy: policy, number: nextNumber(run, partitionOf(to)) } };
}

export interface CancelOrder {
  readonly op: number;
  readonly to: string;
  readonly reason: string;
  /** The run that this operation spawned; 0 = the newest of its name. */
  readonly child: number;
}

export function decideSendCancel(run: Run, { op, to, reason, child }: CancelOrder): RunEvent {
  return { kind: EventKind.cancelSent, body: { op, to, reason, child, number: nextNumber(run, partitionOf(to)) } };
}

/** The child was not started, and why is told to the run's code. */
export function startRefused({ op }: Operation, from: Partition, failure: Failure): RunEvent {
  return { kind: EventKind.childStarted, body: { op, from, number: 0, generation: 0, ticket: 0, attached: false, failure } };
}

/** How the child ends will never be told. */
export function childLost({ op }: Operation, from: Partition, failure: Failure): RunEvent {
  return { kind: EventKind.childEnded, body: { op, from, number: 0, generation: 0, status: 0, result: undefined, failure } };
}

type ChildEvent = EventOf<"childSpawned" | "childStarted" | "childEnded" | "cancelSent">;

export function applyToChild(run: Run, event: ChildEvent, at: { seq: number; timeMs: number }): void {
  switch (event.kind) {
    case EventKind.childSpawned:
      return applySpawned(run, event.body, at);
    case EventKind.childStarted:
      return applyStarted(run, event.body);
    case EventKind.childEnded:
      return closeOperation(run, event.body);
    case EventKind.cancelSent:
      return applyCancelSent(run, event.body, at);
  }
}

function applySpawned(run: Run, body: ChildSpawned, at: { seq: number; timeMs: number }): void {
  const { op, to, start, input, closePolicy } = body;
  openOperation(run, at, { op, kind: EventKind.childSpawned, name: start?.type ?? "", to, closePolicy });
  const { generation } = run;
  // The bundle would hold the whole message that it arrived in.
  const order = start && { ...start, bundle: start.bundle.slice() };
  enqueue(run, partitionOf(to), { kind: MessageKind.start, op, generation, payload: kept(input), start: order });
}

function applyStarted(run: Run, { op, from, number, generation, attached, failure }: ChildStarted): void {
  markAsker(run, { from, number });
  const o = run.pending.get(op);
  if (o === undefined) return;
  if (failure !== undefined) run.pending.delete(op);
  else run.pending.set(op, { ...o, of: generation, started: true, closePolicy: attached ? ParentClosePolicy.abandon : o.closePolicy });
}

function applyCancelSent(run: Run, { op, to, reason, child }: CancelSent, at: { seq: number; timeMs: number }): void {
  openOperation(run, at, { op, kind: EventKind.cancelSent, to });
  enqueue(run, partitionOf(to), { kind: MessageKind.cancel, op, generation: run.generation, child, reason });
}

/** The run ends with that status, be it that it is only decided: what its children were to do then is told to them. */
export function closeChildren(run: Run, status: number): void {
  for (const o of run.pending.values()) {
    if (o.kind !== EventKind.childSpawned || o.closePolicy === ParentClosePolicy.abandon) continue;
    const how = endWords[status] ?? "ended";
    const reason = `its parent, generation ${run.generation} of ${run.run}, ${how}`;
    const kind = o.closePolicy === ParentClosePolicy.cancel ? MessageKind.cancel : MessageKind.terminate;
    askToEnd(run, o, { kind, reason });
  }
}

/** Cancels or terminates, as `kind` says, the run that the operation spawned. */
export function askToEnd(run: Run, { op, to }: Operation, how: { readonly kind: MessageKind; readonly reason: string }): void {
  enqueue(run, partitionOf(to), { ...how, op, generation: run.generation, child: op });
}

const endWords: Partial<Record<number, string>> = {
  [RunStatus.completed]: "completed",
  [RunStatus.failed]: "failed",
  [RunStatus.cancelled]: "was cancelled",
  [RunStatus.terminated]: "was terminated",
  [RunStatus.timedOut]: "passed its deadline",
};

interface Begun {
  readonly startedBy: StartedBy | undefined;
  readonly ticket: number;
  readonly isQueued: boolean;
}

/** The start of another partition has come to something: it is told, and of the run's end too. */
export function tellStarter(run: Run, { startedBy, ticket, isQueued }: Begun): void {
  if (startedBy === undefined) return;
  const { partition, generation, op, number } = startedBy;
  const starter = partition as Partition;
  if (!isQueued) {
    const waiter: ResultWaiter = { partition: starter, generation, op };
    run.awaiters.set(waiterKey(waiter), waiter);
  }
  // Of a start that waited it was told when it began to wait.
  if (!isQueued && ticket > 0) return;
  markTaken(run, starter, number);
  enqueue(run, starter, { kind: MessageKind.started, op, generation, of: isQueued ? 0 : run.generation, ticket });
}

/** A start of another partition has left the queue without a run. */
export function tellLeft(run: Run, { startedBy }: Contender, { status, failure }: Outcome): void {
  if (startedBy === undefined) return;
  const { partition, generation, op } = startedBy;
  enqueue(run, partition as Partition, { kind: MessageKind.result, op, generation, status, failure });
}

/** Whether it was that operation of `from` that started it. */
export const knowsStart = (by: StartedBy | undefined, from: Partition, start: { readonly generation: number; readonly op: number }) =>
  by !== undefined && by.partition === from && by.generation === start.generation && by.op === start.op;

/** What a message of `from` is for: the newest run, a start that waits, or (undefined) a run that was here before, or never. */
export function meantBy(run: Run, from: Partition, { generation, child }: Message): "newest" | Contender | undefined {
  const start = { generation, op: child };
  if (child === 0 || knowsStart(run.startedBy, from, start)) return "newest";
  return run.queue.find(({ startedBy }) => knowsStart(startedBy, from, start));
}
