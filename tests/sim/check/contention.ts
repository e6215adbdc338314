/** What must hold of starts that wait for their name, given everything before them in its history. */
import { EventKind as Kind, RunStatus } from "#proto";
import { type JournalEvent, type RunModel, terminalKinds } from "../model.ts";
import { claim } from "../violation.ts";

export function checkContention(model: RunModel, e: JournalEvent): void {
  queueOrderKept(model, e);
  budgetsHold(model, e);
  supersedeIsReasoned(model, e);
  heldSignalsFollow(model, e);
}

/** The start that waits first begins, in the record that ends the run before it, and nothing else begins while somebody waits. */
export function queueOrderKept(model: RunModel, e: JournalEvent): void {
  const name = "queueOrderKept";
  const { event } = e;
  const [next] = model.queue;
  if (event.kind === Kind.runStarted) {
    const { ticket } = event.body;
    claim(
      name,
      ticket === (next?.ticket ?? 0),
      () => `${e.partition} seq ${e.seq} begins start ${ticket}, next is ${next?.ticket ?? "none"}`,
    );
    const isAtOnce = model.ended?.index === e.index && model.ended.shard === e.shard;
    claim(name, ticket === 0 || isAtOnce, () => `${e.partition} seq ${e.seq} begins start ${ticket} behind record ${model.ended?.index}`);
  } else {
    claim(
      name,
      model.isLive || next === undefined,
      () => `${e.partition} has ended at seq ${e.seq - 1}, and start ${next?.ticket} does not begin`,
    );
  }
  if (event.kind !== Kind.startExpired && event.kind !== Kind.startCancelled && event.kind !== Kind.signalQueued) return;
  const { ticket } = event.body;
  claim(
    name,
    model.contender(ticket) !== undefined,
    () => `${e.partition} seq ${e.seq} of kind ${e.kind} is of start ${ticket}, which does not wait`,
  );
}

/** A start leaves the queue when its budget is over, not before, and does not begin after. */
export function budgetsHold(model: RunModel, e: JournalEvent): void {
  const name = "expiredNeverStarts";
  const { event } = e;
  if (event.kind !== Kind.runStarted && event.kind !== Kind.startExpired) return;
  const contender = model.contender(event.body.ticket);
  if (contender === undefined) return;
  const isOver = e.timeMs >= contender.expiresAtMs;
  const told = () =>
    `${e.partition} seq ${e.seq} of kind ${e.kind} at ${e.timeMs}: the budget of start ${contender.ticket} ends at ${contender.expiresAtMs}`;
  claim(name, isOver === (event.kind === Kind.startExpired), told);
}

/** Who ends a live run by a start, and why, stands before its end; and Core ends none without. */
export function supersedeIsReasoned(model: RunModel, e: JournalEvent): void {
  const name = "supersedeIsReasoned";
  const { event } = e;
  const { superseded, last } = model;
  if (event.kind === Kind.supersedeRequested) {
    const { ticket, reason } = event.body;
    const told = () => `${e.partition} seq ${e.seq} supersedes by start ${ticket} because of "${reason}", by ${e.issuer}`;
    claim(name, reason !== "" && e.issuer !== "core" && last?.kind === Kind.startQueued && last.seq === ticket, told);
    return;
  }
  // Its end was decided before; that says the same.
  if (model.decided !== undefined) return;
  const isTermination =
    event.kind === Kind.runTerminated || (event.kind === Kind.unwindStarted && event.body.status === RunStatus.terminated);
  if (isTermination && e.issuer === "core") {
    const asked = superseded?.event;
    const reason = asked?.kind === Kind.supersedeRequested ? asked.body.reason : undefined;
    claim(
      name,
      reason === event.body.reason,
      () => `${e.partition} seq ${e.seq} is ended by Core because of "${event.body.reason}", asked was "${reason}"`,
    );
  } else if (superseded !== undefined && model.isLive) {
    const isMeanwhile = event.kind === Kind.startExpired && superseded.index === e.index;
    claim(
      name,
      isMeanwhile,
      () => `${e.partition} seq ${e.seq} of kind ${e.kind} comes before the end that seq ${superseded.seq} asked for`,
    );
  }
}

/** A run whose start waited receives what waited with it right after its start, in order and once. */
export function heldSignalsFollow(model: RunModel, e: JournalEvent): void {
  const [next] = model.held;
  if (next === undefined || terminalKinds.has(e.kind)) return;
  const got = e.event.kind === Kind.signalReceived ? e.event.body.id : undefined;
  claim(
    "heldSignalsFollow",
    got === next,
    () => `${e.partition} seq ${e.seq} of kind ${e.kind} (${got}) comes before signal ${next}, which waited`,
  );
}
