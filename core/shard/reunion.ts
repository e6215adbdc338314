/**
 * Makes the messages between two partitions whole that were restored to different moments, before
 * anybody leads their shards: nothing is on its way then, and both sides are at hand.
 *
 * What is put right is recorded in the new logs, by facts and events as of any other message:
 * - Numbers that the receiver took and the sender does not know to have given are given as settled, so
 *   that what is sent from now on is no repetition.
 * - Signals and starts that the sender saw taken and the receiver lacks are taken again, out of the sender's history.
 * - A wait that the receiver does not know is asked again, or refused where there is nobody to answer.
 */
import { assert, isKey, type Partition, type RunId, runPartition } from "#core/base";
import {
  blankMessage,
  channelOf,
  decideAnswerLost,
  decideWaitRefused,
  decodeBody,
  differenceOf,
  isOrder,
  knowsStart,
  type RunEvent,
  refuseWait,
  settledThrough,
} from "#core/run";
import { decodeEvent, EventKind, fromBytes, type Message, MessageKind } from "#proto";
import { openFirst, takePublishedAgain } from "./channels.ts";
import type { ShardContext } from "./context.ts";
import { senderIdentity } from "./identity.ts";
import { decideFor } from "./inbox.ts";
import { reclaim } from "./keys.ts";
import type { LiveRun } from "./live-run.ts";
import { forgetFact, recordTaken, settleFact } from "./message-facts.ts";
import { takeOrder } from "./orders.ts";
import { settle } from "./outbox.ts";

/** A sender and a receiver, each in its shard. */
export interface Met {
  readonly sender: ShardContext;
  readonly receiver: ShardContext;
  readonly from: LiveRun;
  readonly to: LiveRun;
}

/** What became of messages that were not the same on both sides. */
export interface Reunited {
  /** Signals that were taken again. */
  readonly given: number;
  /** Signals that nobody can take any more. */
  readonly lost: number;
  /** Waits that are asked again. */
  readonly asked: number;
  /** Waits that end with a failure: there is nobody to ask. */
  readonly refused: number;
}

/**
 * Reads a partition's history, from its first event on and in as many pieces as one likes: what its events say to `to`
 * once and for all, that is signals, messages for channels, method calls, starts of children, and what activities tell an
 * idempotency key.
 */
export function signalsTo(to: Partition): (events: readonly Uint8Array[]) => Message[] {
  let generation = 0;
  const kinds = isKey(to) ? claimKinds : sentKinds;
  /** Operations of the generation that claimed the key that `to` is. */
  const claiming = new Set<number>();
  return (events) =>
    events.flatMap((bytes) => {
      const { kind, payload } = fromBytes(decodeEvent, bytes);
      const event = kinds.has(kind) ? decodeBody(kind, payload) : undefined;
      if (event?.kind === EventKind.runStarted || event?.kind === EventKind.scheduleCreated) {
        generation = event.body.generation;
        claiming.clear();
      }
      const message = event === undefined ? undefined : (messageOf(event, to) ?? keyMessageOf(event, to, claiming));
      return message === undefined ? [] : [{ ...blankMessage, ...message, generation }];
    });
}

const sentKinds: ReadonlySet<number> = new Set([
  EventKind.runStarted,
  EventKind.signalSent,
  EventKind.childSpawned,
  EventKind.methodCallSent,
  EventKind.channelSent,
  EventKind.scheduleCreated,
]);

/** As `sentKinds`, of what is said to an idempotency key. */
const claimKinds: ReadonlySet<number> = new Set([EventKind.runStarted, EventKind.activityScheduled, EventKind.activityCompleted]);

function messageOf(event: RunEvent, to: Partition): Partial<Message> | undefined {
  const isTo = (address: string) => runPartition(address as RunId) === to;
  if (event.kind === EventKind.signalSent && isTo(event.body.to)) {
    const { number, op, name, payload, child } = event.body;
    return { kind: MessageKind.signal, number, op, name, payload, child };
  }
  if (event.kind === EventKind.channelSent && channelOf(event.body.to) === to) {
    const { number, op, payload } = event.body;
    return { kind: MessageKind.publish, number, op, payload };
  }
  if (event.kind === EventKind.childSpawned && isTo(event.body.to)) {
    const { number, op, start, input } = event.body;
    return { kind: MessageKind.start, number, op, start, payload: input };
  }
  if (event.kind === EventKind.methodCallSent && event.body.number > 0 && isTo(event.body.to)) {
    const { number, op, name, input, path } = event.body;
    return { kind: MessageKind.call, number, op, name, payload: input, path };
  }
  return undefined;
}

/** What an activity tells its key that is never told again: that it claims it, and its result. */
function keyMessageOf(event: RunEvent, to: Partition, claiming: Set<number>): Partial<Message> | undefined {
  if (event.kind === EventKind.activityScheduled && event.body.claim?.to === to) {
    const { op, name: activity, options, claim } = event.body;
    claiming.add(op);
    const order = { activity, key: options?.idempotencyKey ?? "", inputHash: claim.inputHash };
    return { kind: MessageKind.claim, number: claim.number, op, claim: order };
  }
  if (event.kind === EventKind.activityCompleted && event.body.told > 0 && claiming.has(event.body.op)) {
    const { op, told: number, result: payload } = event.body;
    return { kind: MessageKind.keyDone, number, op, payload };
  }
  return undefined;
}

/** Nothing that the sender sends from now on has a number that the receiver took. Comes before `reunite`, for all pairs. */
export function renumber(met: Met): void {
  const { sender, from, to } = met;
  const { unsent, taken } = differenceOf(from, to);
  if (unsent === 0) return;
  settleTaken(met);
  settleFact(sender, from, { partition: from.partition, receiver: to.partition, through: taken });
  sender.seal();
}

/** `signals` are those of the sender's history to the receiver, in order. */
export function reunite(met: Met, signals: readonly Message[]): Reunited {
  const { missing, taken } = differenceOf(met.from, met.to);
  const { given, lost } = missing === 0 ? { given: 0, lost: 0 } : takeMissing(met, signals, taken);
  const lostCalls = endLostCalls(met);
  const waits = askAgain(met);
  const claims = reclaim(met);
  return { given, lost, asked: waits.asked + claims.asked, refused: waits.refused + lostCalls + claims.refused };
}

/** What the receiver has taken and remembers is told to the sender, as a reply would. */
function settleTaken({ sender, from, to }: Met): void {
  const known = to.run.inbox.get(from.partition);
  settle(sender, from, to.partition, { taken: known?.taken ?? 0, refusal: known?.refused ?? [] });
  sender.seal();
}

/** Those behind the number that the receiver took. */
function takeMissing({ receiver, from, to }: Met, signals: readonly Message[], taken: number): Pick<Reunited, "given" | "lost"> {
  const settled = settledThrough(from.run, to.partition);
  const missing = signals.filter(({ number }) => number > taken && number <= settled);
  let given = 0;
  for (const message of missing) {
    if (takeAgain(receiver, to, from.partition, message)) given++;
    receiver.seal();
  }
  // The rest were waits and results: those are asked for again. Numbers go on behind them.
  take(receiver, { from, to }, { number: settled, settled, kind: MessageKind.waitCancelled, op: 0, generation: 0 });
  receiver.seal();
  return { given, lost: missing.length - given };
}

function takeAgain(receiver: ShardContext, to: LiveRun, from: Partition, message: Message): boolean {
  if (message.kind === MessageKind.publish) return takePublishedAgain(receiver, to, from, message);
  if (isOrder(message.kind)) return takeOrder(receiver, to, from, message) === "event";
  const decision = decideFor(receiver, to, from, message);
  if (decision === undefined || !("kind" in decision)) return false;
  receiver.append(to, decision, senderIdentity(from));
  return true;
}

/** A call is not made twice: where its answer is lost, that is what the caller is told. */
function endLostCalls(met: Met): number {
  const { sender, from, to } = met;
  const { lostCalls } = differenceOf(from, to);
  if (lostCalls.length === 0) return 0;
  // What the receiver refused is told as such.
  settleTaken(met);
  let ended = 0;
  for (const o of lostCalls) {
    if (!from.run.pending.has(o.op)) continue;
    sender.append(from, decideAnswerLost(o), sender.core(o.scheduledSeq));
    ended++;
  }
  sender.seal();
  return ended;
}

function askAgain(met: Met): Pick<Reunited, "asked" | "refused"> {
  const { sender, receiver, from, to } = met;
  const { unanswered } = differenceOf(from, to);
  if (unanswered.length === 0) return { asked: 0, refused: 0 };
  // What the receiver refused is told before it forgets it.
  settleTaken(met);
  const through = Math.max(to.run.inbox.get(from.partition)?.taken ?? 0, settledThrough(from.run, to.partition));
  let number = through - unanswered.length;
  assert(number >= 0, `${from.partition} sent ${unanswered.length} waits to ${to.partition}, which took numbers through ${through}`);
  if (to.run.inbox.has(from.partition)) {
    // It takes them under numbers that it took before: those of the waits themselves, or near them.
    forgetFact(receiver, to, { partition: to.partition, sender: from.partition, taken: through, timeMs: receiver.nowMs });
    receiver.seal();
  }
  let refused = 0;
  for (const o of unanswered) {
    number++;
    if (o.kind === EventKind.channelAwaited) {
      openFirst(receiver, to, senderIdentity(from.partition));
      const { reads, generation } = from.run;
      const read = { kind: MessageKind.read, op: o.op, generation, offset: reads.get(o.to) ?? 0 };
      take(receiver, { from, to }, { number, settled: number - 1, ...read });
      continue;
    }
    // Another run than the child may have its name: how that one ends is none of the parent's business.
    const isStrange =
      o.kind === EventKind.childSpawned && !knowsStart(to.run.startedBy, from.partition, { generation: from.run.generation, op: o.op });
    const refusal = isStrange ? "RUN_NOT_FOUND" : refuseWait(to.run);
    const kind = refusal === undefined ? MessageKind.wait : MessageKind.waitCancelled;
    take(receiver, { from, to }, { number, settled: number - 1, kind, op: o.op, generation: from.run.generation });
    if (refusal === undefined) continue;
    sender.append(from, decideWaitRefused(o, to.partition, refusal), sender.core(o.scheduledSeq));
    refused++;
  }
  sender.seal();
  receiver.seal();
  return { asked: unanswered.length - refused, refused };
}

type Number = Pick<Message, "number" | "kind" | "op" | "generation"> & { readonly settled: number; readonly offset?: number };

function take(receiver: ShardContext, { from, to }: Pick<Met, "from" | "to">, { settled, offset = 0, ...message }: Number): void {
  recordTaken(receiver, to, { from: from.partition, settled }, message, { refusal: "", offset });
}
