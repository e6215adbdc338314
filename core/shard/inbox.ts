/**
 * Takes messages of other partitions, each exactly once and in the sender's order, and forgets
 * senders that have nothing to send again.
 *
 * **Why nothing is taken twice.** Let n be a number that receiver R took of sender S. As long as R
 * remembers S, `taken` ≥ n and n is not taken again. R forgets S only by a fact in its log, decided
 * at R's time f, after S said at R's time c ≤ f − retention − skew that all numbers up to `taken`
 * are settled in its committed log. From that moment on S never offers n again (envelopes leave
 * only under a valid leader lease, so no deposed leader of S does), and every envelope with n that
 * is still on its way was stamped by S before R's c; clocks are at most `skew` apart, so its stamp
 * is at most c + skew < f − retention. Without memory of S, R takes only what was
 * stamped within the last `retention` of its own time, and that time never falls below f (the fact
 * carries f, and later leaders start above it). So no such envelope is ever taken.
 *
 * **Why nothing is lost.** S drops a message only once R said, from committed state, that it took
 * it. R skips a number without taking it only where the envelope's `settled` covers it, which S
 * derives from its own log: then it was taken before. A gap above `taken` is not taken at all.
 */
import {
  isCarriedByCore,
  isChannel,
  isKey,
  limits,
  now,
  type Partition,
  parseRunId,
  type Rejection,
  type Reply,
  type RequestId,
  runOf,
} from "#core/base";
import { decideTake, decideTakeOfKey, isOrder, type RunEvent, settledThrough, type Taken } from "#core/run";
import { type Envelope, type EnvelopeReply, type Message, MessageKind } from "#proto";
import { takeForChannel } from "./channels.ts";
import type { ShardContext } from "./context.ts";
import { senderIdentity } from "./identity.ts";
import { afterKey } from "./keys.ts";
import type { LiveRun } from "./live-run.ts";
import { forgetFact, recordTaken } from "./message-facts.ts";
import { takeOrder } from "./orders.ts";

/** What a sender said of its acks, at this node's time. Not recorded: a new leader asks again. */
export interface Confirmation {
  /** Settled at the sender up to here. */
  settled: number;
  atMs: number;
  askedMs: number;
}

/** Senders that one envelope makes the receiver look at, and asks that it may send. */
const sweptMax = 256;
const asksMax = 4;
/** An ask without answer is not repeated before. */
const askAgainMs = 10_000;
/** A message that only a later version understands. */
const unknownRetryMs = 10_000;
const fullRetryMs = 200;

export function onEnvelope(ctx: ShardContext, request: RequestId, envelope: Envelope): void {
  const to = envelope.to as Partition;
  const problem = envelopeProblem(envelope);
  if (problem !== undefined) return refuse(ctx, request, { reject: "BAD_REQUEST", message: `Cannot take an envelope: ${problem}` });
  if (ctx.isFrozen || !ctx.owns(to)) return refuse(ctx, request, ctx.elsewhere(to));
  const live = ctx.findOrCreate(to);
  const reply = envelope.message.length === 0 ? replyOf(live, envelope) : take(ctx, live, envelope);
  respond(ctx, request, live, "reject" in reply ? { kind: "rejected", rejection: reply } : { kind: "enveloped", answer: reply });
}

function envelopeProblem({ from, to }: Envelope): string | undefined {
  for (const partition of [from, to]) {
    const isKnown = partition.startsWith("run/") || isCarriedByCore(partition);
    if (!isKnown || typeof parseRunId(runOf(partition as Partition)) !== "string") return `${partition} is no run's partition`;
  }
  return undefined;
}

function refuse(ctx: ShardContext, request: RequestId, rejection: Rejection): void {
  ctx.emit({ kind: "reply", request, reply: { kind: "rejected", rejection }, after: now });
}

function respond(ctx: ShardContext, request: RequestId, live: LiveRun, reply: Reply): void {
  ctx.emit({ kind: "reply", request, reply, after: ctx.committed(live) });
}

/** What the sender may know: repeated for whoever did not get it the first time. */
function replyOf({ run }: LiveRun, { from, settled }: Envelope, rest: Partial<EnvelopeReply> = {}): EnvelopeReply {
  const known = run.inbox.get(from as Partition);
  return {
    taken: Math.max(known?.taken ?? 0, settled),
    refusal: known?.refused.filter(({ number }) => number > settled) ?? [],
    settled: settledThrough(run, from as Partition),
    stale: false,
    retryAfterMs: 0,
    ...rest,
  };
}

function take(ctx: ShardContext, live: LiveRun, envelope: Envelope): EnvelopeReply | Rejection {
  const from = envelope.from as Partition;
  const { inbox } = live.run;
  if (!inbox.has(from)) {
    if (envelope.offeredMs < ctx.nowMs - limits.dedupRetentionMs) return replyOf(live, envelope, { stale: true });
    if (inbox.size >= limits.sendersMax) {
      const message = `Cannot take messages of ${from}: ${live.partition} remembers ${inbox.size} senders, at most ${limits.sendersMax} may be`;
      return { reject: "BUFFER_FULL", message, retryAfterMs: limits.resendMsMax };
    }
  }
  const waitMs = isChannel(live.partition) ? takeForChannel(ctx, live, envelope, nextOf(live, envelope)) : takeEach(ctx, live, envelope);
  if (waitMs > 0) return replyOf(live, envelope, { retryAfterMs: waitMs });
  sweep(ctx, live);
  return replyOf(live, envelope);
}

/** What follows in order on what was taken of the sender. */
function nextOf({ run: { inbox } }: LiveRun, { from, settled, message }: Envelope): readonly Message[] {
  let taken = Math.max(inbox.get(from as Partition)?.taken ?? 0, settled);
  return message.filter(({ number }) => number === taken + 1 && ++taken > 0);
}

/** Takes what it can; else says in how many milliseconds to try again. */
function takeEach(ctx: ShardContext, live: LiveRun, envelope: Envelope): number {
  const from = envelope.from as Partition;
  const { inbox } = live.run;
  for (const message of envelope.message) {
    const taken = Math.max(inbox.get(from)?.taken ?? 0, envelope.settled);
    if (message.number <= taken) continue;
    if (message.number > taken + 1) break;
    const waitMs = takeNext(ctx, live, envelope, message);
    if (waitMs > 0) return waitMs;
  }
  return 0;
}

/** Takes the next message of its sender; else says in how many milliseconds to try again. */
function takeNext(ctx: ShardContext, live: LiveRun, envelope: Envelope, message: Message): number {
  const from = envelope.from as Partition;
  if (live.undelivered.length >= limits.undeliveredMax) return fullRetryMs;
  if (isOrder(message.kind)) {
    const taken = takeOrder(ctx, live, from, message);
    // A replica folds a record's facts before its events: what is taken next may be about who runs now.
    if (taken === "event") ctx.seal();
    else if ("retryMs" in taken) return taken.retryMs;
    else recordTaken(ctx, live, envelope, message, { ...taken, refusal: taken.refusal ?? "" });
    return 0;
  }
  const decision = decideFor(ctx, live, from, message);
  if (decision === undefined) return unknownRetryMs;
  if ("kind" in decision) takeEvent(ctx, live, from, decision);
  else {
    // A grant that is given back is a message of its own, after those of the events before and before those of what follows.
    const isGrant = message.kind === MessageKind.granted;
    if (isGrant) ctx.seal();
    recordTaken(ctx, live, envelope, message, { refusal: decision.refusal ?? "" });
    if (isGrant) ctx.seal();
  }
  return 0;
}

function takeEvent(ctx: ShardContext, live: LiveRun, from: Partition, event: RunEvent): void {
  ctx.append(live, event, senderIdentity(from));
  afterKey(ctx, live, event);
}

/** What the message becomes: a run's, or a key's. */
export function decideFor(ctx: ShardContext, live: LiveRun, from: Partition, message: Message): RunEvent | Taken | undefined {
  if (isKey(live.partition)) return decideTakeOfKey(live.run, from, message, ctx.keyRetentionMs);
  return decideTake(live.run, from, message);
}

/** Whoever replies says how far it has settled what it was sent. */
export function noteSettled(ctx: ShardContext, live: LiveRun, sender: Partition, settled: number): void {
  if (!live.run.inbox.has(sender)) return;
  const before = live.confirmations.get(sender);
  if (before !== undefined && before.settled >= settled) return;
  live.confirmations.set(sender, { settled, atMs: ctx.nowMs, askedMs: ctx.nowMs });
}

/** Above a number of senders, the oldest are asked whether all is settled, and after the retention forgotten. */
function sweep(ctx: ShardContext, live: LiveRun): void {
  const { inbox } = live.run;
  let looked = 0;
  let asks = 0;
  for (const [sender, { taken }] of inbox) {
    if (inbox.size <= limits.sendersKept || looked++ >= sweptMax || asks >= asksMax) return;
    const confirmed = live.confirmations.get(sender);
    if (confirmed !== undefined && confirmed.settled >= taken) {
      if (ctx.nowMs - confirmed.atMs > limits.dedupRetentionMs + limits.clockSkewMsMax) forget(ctx, live, sender, taken);
    } else if (confirmed === undefined || ctx.nowMs - confirmed.askedMs >= askAgainMs) {
      ask(ctx, live, sender, confirmed?.settled ?? 0);
      asks++;
    }
  }
}

function ask(ctx: ShardContext, live: LiveRun, sender: Partition, settled: number): void {
  live.confirmations.set(sender, { settled, atMs: ctx.nowMs, askedMs: ctx.nowMs });
  const envelope = { from: live.partition, to: sender, settled: settledThrough(live.run, sender), offeredMs: ctx.nowMs, message: [] };
  ctx.emit({ kind: "send", to: sender, envelope, after: ctx.committed(live) });
}

function forget(ctx: ShardContext, live: LiveRun, sender: Partition, taken: number): void {
  forgetFact(ctx, live, { partition: live.partition, sender, taken, timeMs: ctx.nowMs });
  live.confirmations.delete(sender);
}
