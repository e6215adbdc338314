/**
 * Sends what runs of this shard have to tell other partitions, until it was taken.
 *
 * One envelope is under way for each pair of partitions, with all that is unsettled between them
 * as far as it fits. It leaves when what it tells is committed; without an answer it is sent again,
 * after a wait that doubles. What is under way is not recorded: a new leader sends everything that
 * is unsettled once more, and the receiver knows what it has.
 */
import { limits, type Partition } from "#core/base";
import { decideSettled, outgoing, type Pair, settledThrough } from "#core/run";
import type { EnvelopeReply, Message } from "#proto";
import type { ShardContext } from "./context.ts";
import { noteSettled } from "./inbox.ts";
import type { Input } from "./input.ts";
import type { LiveRun } from "./live-run.ts";
import { settleFact } from "./message-facts.ts";

/** An envelope that was sent and not answered. */
export interface Flight {
  waitMs: number;
  /** It is sent again then. */
  dueMs: number;
}

/** Sends to every receiver that has something to be told and nothing under way. */
export function post(ctx: ShardContext, live: LiveRun): void {
  live.postedCount = live.run.messagesSent;
  for (const [to, pair] of live.run.outbox) if (!live.flights.has(to)) send(ctx, live, to, pair, limits.resendMsMin);
}

/** Messages that events of this step made. */
export function postNew(ctx: ShardContext, live: LiveRun): void {
  if (live.run.messagesSent !== live.postedCount) post(ctx, live);
}

function send(ctx: ShardContext, live: LiveRun, to: Partition, pair: Pair, waitMs: number): void {
  rest(ctx, live, to, { waitMs, dueMs: ctx.nowMs + waitMs });
  const message = cut(pair).map((one) => outgoing(live.run, one));
  const envelope = { from: live.partition, to, settled: settledThrough(live.run, to), offeredMs: ctx.nowMs, message };
  ctx.emit({ kind: "send", to, envelope, after: ctx.committed(live) });
}

/** The beginning of what is unsettled, so that it fits an envelope. */
function cut({ messages }: Pair): readonly Message[] {
  let bytes = 0;
  let count = 0;
  for (const message of messages.slice(0, limits.envelopeMessagesMax)) {
    bytes += (message.payload?.data.length ?? 0) + message.name.length * 3 + 64;
    if (count > 0 && bytes > limits.envelopeBytesMax) break;
    count++;
  }
  return messages.slice(0, count);
}

function rest(ctx: ShardContext, live: LiveRun, to: Partition, flight: Flight): void {
  live.flights.set(to, flight);
  const { partition } = live;
  const { generation } = live.run;
  ctx.timers.push({ atMs: flight.dueMs, what: "resend", partition, peer: to, generation, op: 0, attempt: 0, delivery: 0 });
}

export function onResendDue(ctx: ShardContext, from: Partition, to: Partition): void {
  // What is under way is known of runs in memory only.
  const live = ctx.runs.get(from);
  const flight = live?.flights.get(to);
  // An answer came, or it was put off.
  if (live === undefined || flight === undefined || flight.dueMs > ctx.nowMs) return;
  const pair = live.run.outbox.get(to);
  if (pair !== undefined) send(ctx, live, to, pair, Math.min(flight.waitMs * 2, limits.resendMsMax));
}

export function onEnvelopeAnswered(ctx: ShardContext, { from, to, answer }: Extract<Input, { kind: "envelope-answered" }>): void {
  // Nothing is recorded while the shard is frozen: whoever has the run next sends again.
  const live = ctx.isFrozen ? undefined : ctx.find(from);
  if (live === undefined) return;
  if ("rejection" in answer) return putOff(ctx, live, to, answer.rejection.retryAfterMs ?? 0);
  noteSettled(ctx, live, to, answer.settled);
  const isNews = settle(ctx, live, to, answer);
  const pair = live.run.outbox.get(to);
  if (pair === undefined) live.flights.delete(to);
  else if (!isNews || answer.retryAfterMs > 0) putOff(ctx, live, to, answer.retryAfterMs);
  else send(ctx, live, to, pair, limits.resendMsMin);
}

/** The receiver can't be asked now: the same again, a little later. */
function putOff(ctx: ShardContext, live: LiveRun, to: Partition, waitMs: number): void {
  const flight = live.flights.get(to);
  if (flight === undefined) return;
  rest(ctx, live, to, { waitMs: flight.waitMs, dueMs: ctx.nowMs + Math.max(waitMs, flight.waitMs) });
}

/** Records what the reply tells, and tells the run; false where it was known. */
export function settle(ctx: ShardContext, live: LiveRun, to: Partition, reply: Pick<EnvelopeReply, "taken" | "refusal">): boolean {
  const pair = live.run.outbox.get(to);
  const through = Math.min(reply.taken, (pair?.next ?? 1) - 1);
  if (pair === undefined || through <= settledThrough(live.run, to)) return false;
  for (const message of pair.messages) {
    if (message.number > through) break;
    const refusal = reply.refusal.find(({ number }) => number === message.number)?.reason;
    const o = live.run.pending.get(message.op);
    const event = decideSettled(live.run, to, message, refusal);
    if (event !== undefined) ctx.append(live, event, ctx.core(o?.scheduledSeq ?? 0));
  }
  settleFact(ctx, live, { partition: live.partition, receiver: to, through });
  return true;
}
