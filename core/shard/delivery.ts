/**
 * Telling runs what happened: to the worker that holds the run, or by rebuilding it on one.
 *
 * One activation of a run is in flight at a time; what arrives meanwhile goes into the next. An
 * activation may rest on uncommitted events, since nothing it causes leaves before they commit.
 */
import { asIndex, asSeq } from "#core/base";
import { isPaused, isSettled } from "#core/run";
import { RunStatus } from "#proto";
import type { ShardContext } from "./context.ts";
import type { LiveRun } from "./live-run.ts";

/** Sends the run what it has not been told, as far as it can be told now. */
export function pump(ctx: ShardContext, live: LiveRun): void {
  const { run } = live;
  // A paused run that was built for a query is told what happens, so that the next one shows it; what it asks for is dropped.
  if (run.status !== RunStatus.running && !(isPaused(run) && live.session !== undefined)) {
    live.fresh = [];
    live.undelivered = [];
    return;
  }
  if (live.inFlight) {
    // The log's buffer is written over after the flush.
    for (const bytes of live.fresh) live.undelivered.push(bytes.slice());
    live.fresh = [];
    return;
  }
  const session = live.session;
  if (session === undefined) return begin(ctx, live);
  const events = live.undelivered.length === 0 ? live.fresh : [...live.undelivered, ...live.fresh];
  if (events.length === 0) return;
  live.fresh = [];
  live.undelivered = [];
  fly(live);
  ctx.emit({ kind: "activate", session: session.id, handle: live.handle, activation: live.activation, events, after: { until: "now" } });
}

function fly(live: LiveRun): void {
  live.inFlight = true;
  live.activation++;
  live.throughSeq = live.chain.size;
}

/** Gives the run to a worker: a new one with its first event, any other by replay. */
export function begin(ctx: ShardContext, live: LiveRun): void {
  if (isSettled(live.run)) return;
  const session = ctx.pool.forRun(live.namespace);
  if (session === undefined) {
    live.fresh = [];
    live.undelivered = [];
    ctx.unassigned.add(live);
    return;
  }
  const { run, chain } = live;
  const first = live.fresh[0];
  const isNew = first !== undefined && live.fresh.length === 1 && chain.size === run.firstSeq + 1;
  seat(ctx, live, session);
  if (!isNew) return replay(ctx, live, false);
  live.fresh = [];
  fly(live);
  ctx.emit({
    kind: "activate",
    session: session.id,
    handle: live.handle,
    activation: live.activation,
    events: [first],
    start: { run: live.id, bundle: run.bundle, type: run.type },
    after: { until: "now" },
  });
}

function seat(ctx: ShardContext, live: LiveRun, session: NonNullable<LiveRun["session"]>): void {
  ctx.unassigned.delete(live);
  live.session = session;
  live.handle = session.capacity.nextHandle();
  session.runs.set(live.handle, live);
  session.capacity.countRun(ctx.options.shard, 1);
}

/** The run has no worker any more: whatever was under way there counts for nothing. */
export function unseat(ctx: ShardContext, live: LiveRun): void {
  ctx.unassigned.delete(live);
  if (live.session?.runs.delete(live.handle)) live.session.capacity.countRun(ctx.options.shard, -1);
  live.session = undefined;
  live.inFlight = false;
  live.building = false;
  live.undelivered = [];
}

/** Rebuilds the run on its session from the log. */
export function replay(ctx: ShardContext, live: LiveRun, readOnly: boolean): void {
  const session = live.session;
  if (session === undefined) return;
  live.fresh = [];
  live.undelivered = [];
  fly(live);
  live.building = true;
  ctx.emit({
    kind: "replay",
    session: session.id,
    handle: live.handle,
    activation: live.activation,
    partition: live.partition,
    bundle: live.run.bundle,
    type: live.run.type,
    firstSeq: asSeq(live.run.firstSeq),
    endSeq: asSeq(live.chain.size),
    lastIndex: asIndex(live.chain.lastIndex),
    lastShard: ctx.shardOfLast(live),
    readOnly,
    after: ctx.committed(live),
  });
}

/** Makes a run that no worker holds readable by queries; false when there is no worker. */
export function rebuildForQuery(ctx: ShardContext, live: LiveRun): boolean {
  const session = ctx.pool.forRun(live.namespace);
  if (session === undefined) return false;
  seat(ctx, live, session);
  replay(ctx, live, live.run.status !== RunStatus.running);
  return true;
}

/** A replay that could not be done is due again. */
export function retryReplay(ctx: ShardContext, live: LiveRun, activation: number): void {
  if (live.activation !== activation || live.inFlight) return;
  const isRunning = live.run.status === RunStatus.running;
  if (live.session !== undefined) replay(ctx, live, !isRunning);
  else if (isRunning) begin(ctx, live);
}
