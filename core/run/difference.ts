/**
 * What two runs have of the messages from one to the other, where each was restored to a moment of its
 * own: numbers that one gave and the other one does not know of, and waits that nobody will answer.
 *
 * Both are of one past: the earlier one of the two is what the later one was then.
 */
import { isKey, limits, type Partition } from "#core/base";
import { EventKind, type Message, MessageKind, type RunState } from "#proto";
import { isReading } from "./channel-state.ts";
import { knowsStart } from "./child.ts";
import { strayClaims, unheardClaims } from "./idempotency.ts";
import { nextNumber, type ResultWaiter, settledThrough, waiterKey } from "./outbox.ts";
import { receiverOf } from "./remote.ts";
import { isOpen, type Operation, type Run } from "./state.ts";

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
  /** Claims of the sender that the receiver, an idempotency key, does not know of; and those that it has and the sender does not. */
  readonly claims: number;
}

/** One of the two, as it was restored. */
export interface Side {
  readonly partition: Partition;
  readonly run: Run;
}

/** Operations that ask another run for something, by what they send and what answers it. */
const asks: ReadonlyMap<EventKind, { readonly ask: MessageKind; readonly answer: MessageKind }> = new Map([
  [EventKind.resultAwaited, { ask: MessageKind.wait, answer: MessageKind.result }],
  [EventKind.childSpawned, { ask: MessageKind.start, answer: MessageKind.result }],
  [EventKind.methodCallSent, { ask: MessageKind.call, answer: MessageKind.callAnswered }],
  [EventKind.channelAwaited, { ask: MessageKind.read, answer: MessageKind.delivered }],
]);

export function differenceOf(sender: Side, receiver: Side): Difference {
  const { inbox } = receiver.run;
  const known = inbox.get(sender.partition);
  const taken = known?.taken ?? 0;
  const settled = settledThrough(sender.run, receiver.partition);
  // A receiver forgets senders above a number of them, and a sender the numbers of receivers.
  const mayHaveForgotten = known === undefined && inbox.size >= limits.sendersKept;
  const isCounted = sender.run.outbox.has(receiver.partition) || sender.run.settledTo.has(receiver.partition);
  const isBehind = taken < settled;
  const unheard = unheardOf(sender, receiver);
  const isCall = ({ kind }: Operation) => kind === EventKind.methodCallSent;
  return {
    unsent: Math.max(0, taken - nextNumber(sender.run, receiver.partition) + 1),
    missing: isBehind && isCounted && !mayHaveForgotten ? settled - taken : 0,
    taken,
    isUnsure: isBehind && (isCounted ? mayHaveForgotten : known !== undefined),
    lostCalls: unheard.filter(isCall),
    unanswered: unheard.filter((o) => !isCall(o)),
    claims: claimsBetween(sender, receiver),
  };
}

function claimsBetween(sender: Side, receiver: Side): number {
  const { partition } = sender;
  return isKey(receiver.partition)
    ? unheardClaims(sender.run, receiver, partition).length + strayClaims(sender.run, receiver, partition).length
    : 0;
}

/** Operations of the sender that ask the receiver for something, and that it will not take, has not, and does not answer. */
function unheardOf(sender: Side, receiver: Side): Operation[] {
  const { generation, pending } = sender.run;
  if (!isOpen(sender.run)) return [];
  const asked = messagesTo(receiver, sender);
  const { taken = 0, refused = [] } = receiver.run.inbox.get(sender.partition) ?? {};
  const seen = sender.run.inbox.get(receiver.partition)?.taken ?? 0;
  const coming = messagesTo(sender, receiver).filter(({ number }) => number > seen);
  return [...pending.values()].filter((o) => {
    const kinds = asks.get(o.kind);
    if (kinds === undefined || receiverOf(o) !== receiver.partition) return false;
    const isOf = (kind: MessageKind) => (m: Message) => m.kind === kind && m.op === o.op && m.generation === generation;
    const ask = asked.find(isOf(kinds.ask));
    const willBeTaken = ask !== undefined && (ask.number > taken || refused.some(({ number }) => number === ask.number));
    return (
      !willBeTaken && !isHeld(receiver.run, o, { partition: sender.partition, generation, op: o.op }) && !coming.some(isOf(kinds.answer))
    );
  });
}

const messagesTo = (to: Side, { run }: Side): readonly Message[] => run.outbox.get(to.partition)?.messages ?? [];

/** Whether the receiver has what the operation asks for in hand. */
function isHeld({ calls, queue, awaiters, channel }: Run, { kind }: Operation, asker: ResultWaiter): boolean {
  if (kind === EventKind.channelAwaited) return channel !== undefined && isReading(channel, asker);
  if (kind === EventKind.methodCallSent)
    return [...calls.values()].some(
      (call) => call.from === asker.partition && call.generation === asker.generation && call.op === asker.op,
    );
  const isQueued = kind === EventKind.childSpawned && queue.some(({ startedBy }) => knowsStart(startedBy, asker.partition, asker));
  return isQueued || awaiters.has(waiterKey(asker));
}

/** Whether a saved run has acquaintances: cheaper than to load it. */
export const hasAcquaintances = ({ outbox, inbox, pending, key }: RunState) =>
  key !== undefined || outbox.length + inbox.length > 0 || pending.some(({ kind, key }) => key !== "" || asks.has(kind as EventKind));

/** Partitions that the run has sent something to, or taken something of, as far as it remembers them. */
export function acquaintances(run: Run): { readonly receivers: Set<Partition>; readonly senders: Iterable<Partition> } {
  const receivers = new Set([...run.outbox.keys(), ...run.settledTo.keys()]);
  for (const o of run.pending.values()) {
    if (asks.has(o.kind)) receivers.add(receiverOf(o));
    else if (o.key !== "") receivers.add(o.key);
  }
  const claimants = run.key === undefined ? [] : [run.key.holder, ...run.key.waiting];
  const senders = new Set([...run.inbox.keys(), ...claimants.flatMap((one) => (one === undefined ? [] : [one.partition as Partition]))]);
  return { receivers, senders };
}
