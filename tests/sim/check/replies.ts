/** What must hold of everything that leaves the server, at the moment it leaves. */
import type { Reply } from "#core/base";
import { bytesEqual } from "#core/base";
import type { Command } from "#core/shard";
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
  readonly durableIndex: number;
  readonly acked: Acked[];
}

const rule = "dispatchImpliesCommitted";

/** The reply rests on durable events only, and says what they say. */
export function checkReply(ctx: ReplyContext, command: Command, reply: Reply, cause: JournalEvent | undefined): void {
  const partition = `run/${command.run}`;
  const at = ctx.journal.of(partition);
  switch (reply.kind) {
    case "started": {
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
        found?.kind === Kind.signalReceived,
        () => `${partition} acknowledges a signal at ${reply.seq}, which is kind ${found?.kind}`,
      );
      return;
    }
    case "outcome":
      return resultsDelivered(ctx, partition, reply.generation, reply.outcome);
    case "resumed":
    case "done":
      return ack(ctx, partition, cause, command.kind);
    case "queried":
      return queryRestsOnDurable(ctx, partition, reply.result?.data);
    case "rejected":
      return refusalRestsOnDurable(ctx, command, reply.rejection.reject, cause);
  }
}

const signalOf = (events: readonly JournalEvent[], id: string) =>
  events.find((e) => e.event.kind === Kind.signalReceived && e.event.body.id === id);

function ack(ctx: ReplyContext, partition: string, e: JournalEvent | undefined, what: string): void {
  claim(
    rule,
    e !== undefined && e.index <= ctx.durableIndex,
    () => `${partition} acknowledges ${what} at index ${e?.index}, durable is ${ctx.durableIndex}`,
  );
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
export function queryRestsOnDurable(ctx: ReplyContext, partition: string, data: Uint8Array | undefined): void {
  const { seen } = JSON.parse(new TextDecoder().decode(data)) as { seen: number };
  const e = ctx.journal.of(partition).events[seen];
  claim(rule, e !== undefined && e.index <= ctx.durableIndex, () => `${partition} answers a query as of seq ${seen}, which is not durable`);
}

const endings: ReadonlySet<number> = new Set(Object.values(endKinds));

/** The event that a reply rests on, looked up when it is decided; undefined = none, or it is found by what the reply says. */
export function causeOf(journal: Journal, command: Command, reply: Reply): JournalEvent | undefined {
  const { events } = journal.of(`run/${command.run}`);
  const latest = (...kinds: number[]) => events.findLast((e) => kinds.includes(e.kind));
  if (reply.kind === "resumed") return latest(Kind.runResumed);
  if (reply.kind === "done") return latest(command.kind === "cancel" ? Kind.cancelRequested : Kind.runTerminated);
  if (reply.kind !== "rejected") return undefined;
  const { reject } = reply.rejection;
  if (reject === "RUN_CLOSED") return events.findLast((e) => endings.has(e.kind));
  if (reject === "INSTANCE_LIVE" || reject === "IDEMPOTENCY_CONFLICT") return latest(Kind.runStarted);
  return reject === "RUN_BLOCKED" ? latest(Kind.runBlocked) : undefined;
}

/** A refusal for what a run has become is true of the durable log. */
export function refusalRestsOnDurable(ctx: ReplyContext, command: Command, reject: string, cause: JournalEvent | undefined): void {
  const told = () => `${command.run} is refused with ${reject} for the event at index ${cause?.index}, durable is ${ctx.durableIndex}`;
  if (cause !== undefined) claim(rule, cause.index <= ctx.durableIndex, told);
  const { model } = ctx.journal.of(`run/${command.run}`);
  if (reject === "RUN_NOT_FOUND")
    claim("noAckedEventLost", model.generation === 0, () => `${command.run} is not found, though it has generation ${model.generation}`);
}

/** I4, as seen by workers: each token leaves once, they only grow, and its events are durable. */
export class TokenLedger {
  private readonly newest = new Map<string, { readonly attempt: number; readonly delivery: number }>();

  /** A task leaves the server at `nowMs` of the node's clock. */
  check(ctx: ReplyContext, token: TaskToken, nowMs: number): void {
    const key = `${token.run}#${token.generation}.${token.op}`;
    const before = this.newest.get(key);
    const isNewer =
      before === undefined || token.attempt > before.attempt || (token.attempt === before.attempt && token.delivery > before.delivery);
    claim(
      "staleTokenNeverCommits",
      isNewer,
      () => `${key} is given out as ${token.attempt}.${token.delivery} after ${before?.attempt}.${before?.delivery}`,
    );
    this.newest.set(key, token);
    const { model } = ctx.journal.of(`run/${token.run}`);
    const o = model.ops.get(token.op);
    if (model.generation !== token.generation || o === undefined) {
      claim(rule, model.generation > token.generation, () => `${key} is given out, but the log holds no such operation`);
      return;
    }
    if (o.attempt !== token.attempt || o.delivery !== token.delivery) {
      const isOld = o.attempt > token.attempt || (o.attempt === token.attempt && o.delivery > token.delivery);
      claim(rule, isOld, () => `${key} is given out as ${token.attempt}.${token.delivery}, the log has ${o.attempt}.${o.delivery}`);
      return;
    }
    claim(
      rule,
      o.sinceIndex <= ctx.durableIndex,
      () => `${key} is given out before index ${o.sinceIndex} is durable (${ctx.durableIndex})`,
    );
    if (token.attempt > 1)
      claim("retriesFollowPolicy", nowMs >= o.dueMs, () => `${key} attempt ${token.attempt} leaves at ${nowMs}, due at ${o.dueMs}`);
  }
}
