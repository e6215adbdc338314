/** Reading a run's state where its code runs. Nothing is appended. */
import type { SessionId } from "#core/base";
import { expiredText, isOpen } from "#core/run";
import { type QueryAnswer, RunStatus } from "#proto";
import type { ShardContext } from "./context.ts";
import { rebuildForQuery, unseat } from "./delivery.ts";
import type { LiveRun, WaitingQuery } from "./live-run.ts";
import { leaveWorker } from "./outcome.ts";

/** A worker that loses the run while it is asked is asked so many times. */
const triesMax = 3;

export function askQuery(ctx: ShardContext, live: LiveRun, query: WaitingQuery): void {
  if (live.run.status === RunStatus.blocked) {
    return refuse(ctx, live, query, "RUN_BLOCKED", `Cannot query ${live.id}: it is blocked: ${live.run.note}`);
  }
  // Its code is run again over its history, which is gone.
  if (live.run.expiredEnd > live.run.firstSeq) {
    return refuse(ctx, live, query, "HISTORY_EXPIRED", `Cannot query ${live.id}: ${expiredText(live.run)}`);
  }
  live.queries.push(query);
  pumpQueries(ctx, live);
}

/** Sends what can be asked now: behind all events that happened before, so that a query shows what its asker knows of. */
export function pumpQueries(ctx: ShardContext, live: LiveRun): void {
  if (live.queries.length === 0) return;
  if (live.session === undefined && !rebuildForQuery(ctx, live)) {
    return refuseQueries(ctx, live, "STORE_UNAVAILABLE", `Cannot query ${live.id}: no worker that runs workflows is connected`);
  }
  const { session } = live;
  if (session === undefined || live.building || live.undelivered.length > 0) return;
  for (const query of live.queries) {
    if (query.asked !== 0) continue;
    const number = session.capacity.nextQuery();
    query.asked = queryKey(session.id, number);
    ctx.queries.set(query.asked, { live, query, session: session.id, after: ctx.committed(live) });
    const { name, input } = query;
    ctx.emit({ kind: "query", session: session.id, query: number, handle: live.handle, name, input, after: { until: "now" } });
  }
}

/** Numbers of queries are a stream's own. */
const queryKey = (session: SessionId, number: number) => session * 2 ** 32 + number;

export function onQueryAnswered(ctx: ShardContext, sessionId: SessionId, message: QueryAnswer): void {
  const key = queryKey(sessionId, message.query);
  const asked = ctx.queries.get(key);
  if (asked === undefined) return;
  ctx.queries.delete(key);
  const { live, query, after } = asked;
  if (message.notCached) return askAgain(ctx, live, query);
  live.queries = live.queries.filter((q) => q !== query);
  const { failure } = message;
  if (failure === undefined) ctx.emit({ kind: "reply", request: query.request, reply: { kind: "queried", result: message.result }, after });
  else {
    const reject = failure.type === "QueryNotFoundError" ? "QUERY_NOT_FOUND" : "QUERY_FAILED";
    const rejection = { reject, message: `Cannot query ${live.id}: ${failure.message}` } as const;
    ctx.emit({ kind: "reply", request: query.request, reply: { kind: "rejected", rejection }, after });
  }
  if (live.queries.length === 0 && !isOpen(live.run)) leaveWorker(ctx, live);
}

function askAgain(ctx: ShardContext, live: LiveRun, query: WaitingQuery): void {
  query.asked = 0;
  if (++query.tries >= triesMax) {
    live.queries = live.queries.filter((q) => q !== query);
    return refuse(ctx, live, query, "STORE_UNAVAILABLE", `Cannot query ${live.id}: its worker lost it ${triesMax} times`);
  }
  if (!live.inFlight && live.session !== undefined) unseat(ctx, live);
  pumpQueries(ctx, live);
}

/** The session is gone: what it was asked is asked elsewhere, also of runs that it had dropped already. */
export function requeueQueries(ctx: ShardContext, session: SessionId): void {
  const lost = new Set<LiveRun>();
  for (const [id, asked] of ctx.queries) {
    if (asked.session !== session) continue;
    ctx.queries.delete(id);
    asked.query.asked = 0;
    lost.add(asked.live);
  }
  for (const live of lost) pumpQueries(ctx, live);
}

/** None of the run's queries can be answered. */
export function refuseQueries(ctx: ShardContext, live: LiveRun, reject: Refused, message: string): void {
  for (const query of live.queries) {
    ctx.queries.delete(query.asked);
    refuse(ctx, live, query, reject, message);
  }
  live.queries = [];
}

type Refused = "RUN_BLOCKED" | "HISTORY_EXPIRED" | "STORE_UNAVAILABLE" | "QUERY_FAILED";

function refuse(ctx: ShardContext, live: LiveRun, query: WaitingQuery, reject: Refused, message: string): void {
  const reply = { kind: "rejected", rejection: { reject, message } } as const;
  ctx.emit({ kind: "reply", request: query.request, reply, after: ctx.committed(live) });
}
