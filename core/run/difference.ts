/**
 * What two runs have of the messages from one to the other, where each was restored to a moment of its
 * own: numbers that one gave and the other one does not know of, and waits that nobody will answer.
 *
 * Both are of one past: the earlier one of the two is what the later one was then.
 */
import { limits, type Partition, runPartition } from "#core/base";
import { EventKind, type Message, MessageKind } from "#proto";
import { knowsStart } from "./child.ts";
import { nextNumber, settledThrough, waiterKey } from "./outbox.ts";
import { isOpen, type Operation, ownPartition, type Run } from "./state.ts";

export interface Difference {
  /** Messages that the receiver took and the sender does not know to have sent. */
  readonly unsent: number;
  /** Messages that the sender saw taken and the receiver lacks: those behind `taken`. */
  readonly missing: number;
  /** Highest number that the receiver took. */
  readonly taken: number;
  /** Whether something is missing can't be told: one of the two forgot the other one long ago, or did not meet it yet. */
  readonly isUnsure: boolean;
  /** Method calls of the sender that the receiver took, has no more, and does not answer. */
  readonly lostCalls: readonly Operation[];
  /** Waits of the sender for the receiver's result, those for children among them, that the receiver has not, and has not answered. */
  readonly unanswered: readonly Operation[];
}

export function differenceOf(sender: Run, receiver: Run): Difference {
  const [from, to] = [ownPartition(sender), ownPartition(receiver)];
  const taken = receiver.inbox.get(from)?.taken ?? 0;
  const settled = settledThrough(sender, to);
  // A receiver forgets senders above a number of them, and a sender the numbers of receivers.
  const mayHaveForgotten = !receiver.inbox.has(from) && receiver.inbox.size >= limits.sendersKept;
  const isCounted = sender.outbox.has(to) || sender.settledTo.has(to);
  const isBehind = taken < settled;
  return {
    unsent: Math.max(0, taken - nextNumber(sender, to) + 1),
    missing: isBehind && isCounted && !mayHaveForgotten ? settled - taken : 0,
    taken,
    isUnsure: isBehind && (isCounted ? mayHaveForgotten : receiver.inbox.has(from)),
    unanswered: unansweredOf(sender, receiver, taken),
    lostCalls: lostCallsOf(sender, receiver, taken),
  };
}

function lostCallsOf(sender: Run, receiver: Run, taken: number): Operation[] {
  if (!isOpen(sender)) return [];
  const [from, to] = [runPartition(sender.run), runPartition(receiver.run)];
  const { generation } = sender;
  const answers = unread(receiver, from, sender.inbox.get(to)?.taken ?? 0);
  const asked = sender.outbox.get(to)?.messages ?? [];
  const refused = receiver.inbox.get(from)?.refused ?? [];
  const open = [...receiver.calls.values()].filter((call) => call.from === from && call.generation === generation);
  return [...sender.pending.values()].filter((o) => {
    if (o.kind !== EventKind.methodCallSent || o.to !== receiver.run) return false;
    const isOf = (kind: MessageKind) => (m: Message) => m.kind === kind && m.op === o.op && m.generation === generation;
    const ask = asked.find(isOf(MessageKind.call));
    const willBeTaken = ask !== undefined && (ask.number > taken || refused.some(({ number }) => number === ask.number));
    return !willBeTaken && !open.some((call) => call.op === o.op) && !answers.some(isOf(MessageKind.callAnswered));
  });
}

function unansweredOf(sender: Run, receiver: Run, taken: number): Operation[] {
  if (!isOpen(sender)) return [];
  const [from, to] = [ownPartition(sender), ownPartition(receiver)];
  const { generation } = sender;
  const answers = unread(receiver, from, sender.inbox.get(to)?.taken ?? 0);
  const asked = sender.outbox.get(to)?.messages ?? [];
  const refused = receiver.inbox.get(from)?.refused ?? [];
  return [...sender.pending.values()].filter((o) => {
    const isChild = o.kind === EventKind.childSpawned;
    if ((!isChild && o.kind !== EventKind.resultAwaited) || o.to !== receiver.run) return false;
    const isOf = (kind: MessageKind) => (m: Message) => m.kind === kind && m.op === o.op && m.generation === generation;
    const ask = asked.find(isOf(isChild ? MessageKind.start : MessageKind.wait));
    const willBeTaken = ask !== undefined && (ask.number > taken || refused.some(({ number }) => number === ask.number));
    const isQueued = isChild && receiver.queue.some(({ startedBy }) => knowsStart(startedBy, from, { generation, op: o.op }));
    const isKnown = isQueued || receiver.awaiters.has(waiterKey({ partition: from, generation, op: o.op }));
    return !willBeTaken && !isKnown && !answers.some(isOf(MessageKind.result));
  });
}

/** What the receiver is still to take. */
function unread(sender: Run, to: Partition, taken: number): Message[] {
  return (sender.outbox.get(to)?.messages ?? []).filter(({ number }) => number > taken);
}

/** Partitions that the run has sent something to, or taken something of, as far as it remembers them. */
export function acquaintances(run: Run): { readonly receivers: Set<Partition>; readonly senders: Iterable<Partition> } {
  const receivers = new Set([...run.outbox.keys(), ...run.settledTo.keys()]);
  for (const o of run.pending.values()) {
    const isAsked = o.kind === EventKind.resultAwaited || o.kind === EventKind.childSpawned || o.kind === EventKind.methodCallSent;
    if (isAsked) receivers.add(runPartition(o.to as Run["run"]));
  }
  return { receivers, senders: run.inbox.keys() };
}
