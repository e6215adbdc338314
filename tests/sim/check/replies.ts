/** What must hold of everything that leaves a leader, at the moment it leaves: it rests on what is committed. */
import type { Reply } from "#core/base";
import { bytesEqual } from "#core/base";
import { type Command, ticketOf } from "#core/shard";
import { encodeOutcome, EventKind as Kind, type Outcome, RunStatus, type TaskToken, toBytes } from "#proto";
import type { Journal } from "../journal.ts";
import type { JournalEvent } from "../model.ts";
import { claim } from "../violation.ts";

/** An event that somebody was told of. It may never be lost, changed or moved. */
export interface Acked {
  readonly partition: string;
  readonly seq: number;
  readonly hash: Uint8Array;
}

export interface ReplyContext {
  readonly journal: Journal;
  readonly acked: Acked[];
}

const rule = "dispatchImpliesCommitted";

/** The reply rests on durable events only, and says what they say. */
export function checkReply(ctx: ReplyContext, command: Command, reply: Reply): void {
  if (reply.kind === "channelled") return channelTakes(ctx, command, reply.answer.offset);
  const partition = `run/${command.run}`;
  const at = ctx.journal.of(partition);
  switch (reply.kind) {
    case "started": {
      const { ticket = 0 } = reply;
      if (ticket > 0) ack(ctx, partition, queuedAt(at.events, ticket), `ticket ${ticket}`);
      if (reply.generation === 0) return endedInQueue(ctx, partition, ticket, reply.outcome);
      const started = at.events.find((e) => e.event.kind === Kind.runStarted && e.event.body.generation === reply.generation);
      ack(ctx, partition, started, `generation ${reply.generation}`);
      if (reply.outcome !== undefined) resultsDelivered(ctx, partition, reply.generation, reply.outcome);
      return;
    }
    case "signalled": {
      const found = command.kind === "signal" && command.id !== "" ? signalOf(at.events, command.id) : at.events[reply.seq];
      ack(ctx, partition, found, `signal at ${reply.seq}`);
      claim(
        rule,
        found?.kind === Kind.signalReceived || found?.kind === Kind.signalQueued,
        () => `${partition} acknowledges a signal at ${reply.seq}, which is kind ${found?.kind}`,
      );
      return;
    }
    case "outcome":
      if (reply.generation === 0) return endedInQueue(ctx, partition, ticketOf(command), reply.outcome);
      return resultsDelivered(ctx, partition, reply.generation, reply.outcome);
    case "called": {
      const found = at.events[reply.seq];
      ack(ctx, partition, found, `answer at ${reply.seq}`);
      return claim(
        rule,
        found?.kind === Kind.methodAnswered,
        () => `${partition} answers a call by its event ${reply.seq}, of kind ${found?.kind}`,
      );
    }
    case "resumed":
    case "done":
      return ack(ctx, partition, causeOf(ctx.journal, command, reply), command.kind);
    case "queried":
      return queryRestsOnCommitted(ctx, partition, reply.result?.data);
    case "rejected":
      return refusalRestsOnCommitted(ctx, command, reply);
    case "scheduled":
    case "enveloped":
      return;
  }
}

/** A sending that is acknowledged is in the log, at the offset that was told. */
function channelTakes(ctx: ReplyContext, command: Command, offset: number): void {
  if (command.kind !== "channel" || command.ask.kind !== "send") return;
  const partition = `chan/${command.run}`;
  const { id } = command.ask.value;
  const found = ctx.journal.of(partition).events.find(({ event }) => event.kind === Kind.messagesAppended && event.body.id === id);
  ack(ctx, partition, found, `sending ${id}`);
  const isThere = found?.event.kind === Kind.messagesAppended && found.event.body.offset === offset;
  claim("channelMessagesOnce", isThere, () => `${partition} acknowledges sending ${id} at ${offset}, its log has another place`);
}

const signalOf = (events: readonly JournalEvent[], id: string) =>
  events.find((e) => (e.event.kind === Kind.signalReceived || e.event.kind === Kind.signalQueued) && e.event.body.id === id);

const queuedAt = (events: readonly JournalEvent[], ticket: number) =>
  events[ticket]?.kind === Kind.startQueued ? events[ticket] : undefined;
const leftAt = (events: readonly JournalEvent[], kind: typeof Kind.startCancelled | typeof Kind.startExpired, ticket: number) =>
  events.find((e) => e.event.kind === kind && e.event.body.ticket === ticket);

/** A start that waits, or one that was cancelled while it did. */
function endedInQueue(ctx: ReplyContext, partition: string, ticket: number, outcome: Outcome | undefined): void {
  if (outcome === undefined) return;
  const cancelled = outcome.status === RunStatus.cancelled;
  claim("resultsDelivered", cancelled, () => `${partition} start ${ticket} ends with status ${outcome.status}, and never began`);
  ack(ctx, partition, leftAt(ctx.journal.of(partition).events, Kind.startCancelled, ticket), `the end of start ${ticket}`);
}

function ack(ctx: ReplyContext, partition: string, e: JournalEvent | undefined, what: string): void {
  claim(rule, e !== undefined, () => `${partition} acknowledges ${what}, which is not committed`);
  ctx.acked.push({ partition, seq: e.seq, hash: e.hash });
}

const endKinds: Readonly<Record<number, number>> = {
  [RunStatus.completed]: Kind.runCompleted,
  [RunStatus.failed]: Kind.runFailed,
  [RunStatus.cancelled]: Kind.runCancelled,
  [RunStatus.terminated]: Kind.runTerminated,
  [RunStatus.timedOut]: Kind.runTimedOut,
};

/** An outcome that is told is the one in the log, and durable. */
export function resultsDelivered(ctx: ReplyContext, partition: string, generation: number, outcome: Outcome): void {
  const { events } = ctx.journal.of(partition);
  const from = events.findIndex((e) => e.event.kind === Kind.runStarted && e.event.body.generation === generation);
  const end = events.find((e, i) => i >= from && e.kind === endKinds[outcome.status]);
  ack(ctx, partition, end, `the end of generation ${generation}`);
  const { event } = end as JournalEvent;
  const logged = event.kind === Kind.runCompleted ? event.body.result : undefined;
  const failure = event.kind === Kind.runFailed ? event.body.failure : outcome.failure;
  const want = toBytes(encodeOutcome, { status: outcome.status, result: logged, failure });
  claim(
    "resultsDelivered",
    bytesEqual(want, toBytes(encodeOutcome, outcome)),
    () => `${partition} generation ${generation} is told another outcome than the log's`,
  );
}

/** An answer shows nothing that could still be lost. */
export function queryRestsOnCommitted(ctx: ReplyContext, partition: string, data: Uint8Array | undefined): void {
  const { seen } = JSON.parse(new TextDecoder().decode(data)) as { seen: number };
  const e = ctx.journal.of(partition).events[seen];
  claim(rule, e !== undefined, () => `${partition} answers a query as of seq ${seen}, which is not committed`);
}

const endings: ReadonlySet<number> = new Set(Object.values(endKinds));

/** What may have been done. A run that is not paused was never paused, or began since. */
const doneBy: Partial<Record<Command["kind"], number[]>> = {
  cancel: [Kind.cancelRequested],
  terminate: [Kind.runTerminated, Kind.unwindStarted],
  pause: [Kind.runPaused],
  unpause: [Kind.runUnpaused, Kind.runStarted],
};

/** The committed event that a reply rests on; undefined = none, or it is found by what the reply says. */
export function causeOf(journal: Journal, command: Command, reply: Reply): JournalEvent | undefined {
  const { events } = journal.of(`run/${command.run}`);
  const latest = (...kinds: number[]) => events.findLast((e) => kinds.includes(e.kind));
  if (reply.kind === "resumed") return latest(Kind.runResumed);
  const left = reply.kind === "done" ? leftAt(events, Kind.startCancelled, ticketOf(command)) : undefined;
  if (left !== undefined) return left;
  return reply.kind === "done" ? latest(...(doneBy[command.kind] ?? [])) : undefined;
}

/** A refusal for what a run has become is true of the committed log. */
export function refusalRestsOnCommitted(ctx: ReplyContext, command: Command, reply: Extract<Reply, { kind: "rejected" }>): void {
  if (command.kind === "schedule" || command.kind === "channel") return;
  const { events, model } = ctx.journal.of(`run/${command.run}`);
  const { reject } = reply.rejection;
  const rests = (holds: boolean) => claim(rule, holds, () => `${command.run} is refused with ${reject}, for which nothing is committed`);
  if (reject === "RUN_CLOSED")
    rests(
      events.some(
        (e) => endings.has(e.kind) || e.kind === Kind.unwindStarted || e.kind === Kind.startCancelled || e.kind === Kind.startExpired,
      ),
    );
  if (reject === "BUDGET_EXPIRED") rests(events.some((e) => e.kind === Kind.startExpired));
  if (reject === "RUN_QUEUED") rests(queuedAt(events, ticketOf(command)) !== undefined);
  if (reject === "INSTANCE_LIVE" || reject === "IDEMPOTENCY_CONFLICT") rests(events.some((e) => e.kind === Kind.runStarted));
  if (reject === "RUN_BLOCKED") rests(events.some((e) => e.kind === Kind.runBlocked));
  // How the oldest of the queued starts ended is forgotten.
  if (reject === "RUN_NOT_FOUND" && ticketOf(command) === 0)
    claim("noAckedEventLost", model.generation === 0, () => `${command.run} is not found, though it has generation ${model.generation}`);
}

/** I4, as seen by workers: under one epoch each token leaves once, they only grow, and their events are committed. */
export class TokenLedger {
  private readonly newest = new Map<string, TaskToken>();

  /** A task leaves a leader. `clockBoundMs`: no clock of the cluster is above. Returns whether a later leader has offered it already. */
  check(ctx: ReplyContext, token: TaskToken, clockBoundMs: number): boolean {
    const key = `${token.run}#${token.generation}.${token.op}`;
    const before = this.newest.get(key);
    // Who was deposed and does not know it yet: its workers, or the fence, refuse it.
    if (before !== undefined && before.epoch > token.epoch) return true;
    const isNewer =
      before === undefined || token.attempt > before.attempt || (token.attempt === before.attempt && token.delivery > before.delivery);
    claim(
      "staleTokenNeverCommits",
      isNewer,
      () =>
        `${key} is given out as ${token.attempt}.${token.delivery} under epoch ${token.epoch} after ${before?.attempt}.${before?.delivery} under ${before?.epoch}`,
    );
    this.newest.set(key, token);
    const { model } = ctx.journal.of(`run/${token.run}`);
    const o = model.ops.get(token.op);
    if (model.generation !== token.generation || o === undefined) {
      claim(rule, model.generation > token.generation, () => `${key} is given out, but the log holds no such operation`);
      return false;
    }
    claim(rule, !o.isUngranted, () => `${key} is given out before its idempotency key granted it`);
    const isOld = o.attempt > token.attempt || (o.attempt === token.attempt && o.delivery >= token.delivery);
    claim(rule, isOld, () => `${key} is given out as ${token.attempt}.${token.delivery}, committed is ${o.attempt}.${o.delivery}`);
    if (token.attempt > 1 && o.attempt === token.attempt)
      claim(
        "retriesFollowPolicy",
        clockBoundMs >= o.dueMs,
        () => `${key} attempt ${token.attempt} leaves at ${clockBoundMs}, due at ${o.dueMs}`,
      );
    return false;
  }
}
