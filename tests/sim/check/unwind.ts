/** What must hold of compensations, given everything before them in a run's history. */
import { EventKind as Kind } from "#proto";
import { type JournalEvent, type RunModel, terminalKinds } from "../model.ts";
import { claim } from "../violation.ts";

/** What may happen to a run between its decided end and its last event. */
const unwinding: ReadonlySet<number> = new Set([
  Kind.compensationStarted,
  Kind.compensationCompleted,
  Kind.compensationRetried,
  Kind.compensationFailed,
  Kind.unwindEnded,
  Kind.startQueued,
  Kind.startExpired,
  Kind.startCancelled,
  Kind.supersedeRequested,
  Kind.signalQueued,
]);

export function checkUnwind(model: RunModel, e: JournalEvent): void {
  undoOnceNewestFirst(model, e);
  endComesLast(model, e);
}

/** An entry is executed after the decided end only, the newest of those that are owed, and each once. */
export function undoOnceNewestFirst(model: RunModel, e: JournalEvent): void {
  const name = "undoOnceNewestFirst";
  const { event } = e;
  const newest = model.stack.at(-1);
  const place = () => `${e.partition} seq ${e.seq} of kind ${e.kind}`;
  if (event.kind === Kind.compensationStarted) {
    claim(name, model.decided !== undefined, () => `${place()} executes an undo of a run whose end is not decided`);
    claim(name, newest?.op === event.body.op, () => `${place()} executes undo ${event.body.op}, the newest is ${newest?.op}`);
    claim(name, model.undoing === 0, () => `${place()} executes undo ${event.body.op} beside ${model.undoing}`);
  }
  if (event.kind === Kind.compensationCompleted || event.kind === Kind.compensationFailed)
    claim(name, model.undoing === event.body.op, () => `${place()} ends undo ${event.body.op}, executing is ${model.undoing}`);
}

/** Nothing of the run goes on behind its decided end, and the event that ends it comes when nothing is owed any more. */
export function endComesLast(model: RunModel, e: JournalEvent): void {
  const name = "endComesLast";
  const { decided, stack } = model;
  if (terminalKinds.has(e.kind)) {
    const owed = decided === undefined ? stack.filter(({ always }) => always || e.kind !== Kind.runCompleted) : stack;
    claim(name, owed.length === 0, () => `${e.partition} ends at seq ${e.seq} and owes ${owed.map(({ op }) => op).join(", ")}`);
    const body = decided?.event.kind === Kind.unwindStarted ? decided.event.body : undefined;
    // An end's kind and its status have the same number.
    claim(name, body === undefined || e.kind === body.status, () => `${e.partition} ends with kind ${e.kind}, decided was ${body?.status}`);
  } else if (decided !== undefined) {
    claim(
      name,
      unwinding.has(e.kind),
      () => `${e.partition} seq ${e.seq} of kind ${e.kind} comes behind the end decided at ${decided.seq}`,
    );
  }
}
