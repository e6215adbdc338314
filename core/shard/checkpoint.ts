/**
 * States out of memory and back: what a checkpoint saves, what may leave memory, and the rebuild
 * of a shard from checkpoint and log tail.
 *
 * A checkpoint is fuzzy: each run is saved with the index that its state is the fold of, and the
 * shard's low-water mark is the index below which every run is saved. Recovery starts above the
 * mark and skips, for each run, what its saved state has.
 */
import { asIndex, type Effect, InvariantError, logicalMax, noBytes, type Partition } from "#core/base";
import { followEvent } from "#core/merkle";
import { applyEvent, attentionMs, decodeBody, isLive, isSettled, mayBeOffered, saveRun } from "#core/run";
import {
  decodeEvent,
  decodeRecord,
  EventKind,
  encodeRunState,
  fromBytes,
  type LeaseGranted,
  type RunDelivered,
  RunStatus,
  toBytes,
} from "#proto";
import type { ShardContext } from "./context.ts";
import type { LiveRun } from "./live-run.ts";
import { leaveWorker } from "./outcome.ts";
import { remindAll } from "./reminders.ts";
import { orphanOperation } from "./tasks.ts";
import { arm, extendHorizon } from "./timers.ts";

export interface CheckpointRow {
  readonly partition: Partition;
  readonly state: Uint8Array;
  /** When the run needs attention: 0 = at once after a restart, Infinity = only on a command. */
  readonly dueMs: number;
  readonly index: number;
  /** Index of the first change that this row saves. */
  readonly changedFrom: number;
}

/** One is taken at a time: it is saved or put back before the next. */
export interface Checkpoint {
  readonly rows: CheckpointRow[];
  /** With these rows saved, every run is saved as of this index or later. */
  readonly appliedIndex: number;
  /** May be saved once the log is durable through this index. */
  readonly durableIndex: number;
}

/** Takes up to `limit` changed runs, the longest changed first. */
export function capture(ctx: ShardContext, limit: number): Checkpoint {
  const rows: CheckpointRow[] = [];
  ctx.saving.clear();
  for (const [live, changedFrom] of ctx.dirty) {
    if (rows.length >= limit) break;
    ctx.dirty.delete(live);
    ctx.saving.add(live);
    rows.push({ partition: live.partition, state: encodeState(live), dueMs: attentionMs(live.run), index: live.appliedIndex, changedFrom });
  }
  const [oldest] = ctx.dirty.values();
  return { rows, appliedIndex: oldest === undefined ? ctx.lastIndex : oldest - 1, durableIndex: ctx.lastIndex };
}

/** What was captured is saved: it may leave memory. Until then what is saved of it is older than it is. */
export function saved(ctx: ShardContext): void {
  ctx.saving.clear();
}

/** What was captured could not be saved: it counts as changed again. */
export function putBack(ctx: ShardContext, checkpoint: Checkpoint): void {
  const changed = new Map(ctx.dirty);
  for (const row of checkpoint.rows) {
    const live = ctx.runs.get(row.partition);
    if (live !== undefined) changed.set(live, row.changedFrom);
  }
  // The oldest change comes first again: the low-water mark is read there.
  ctx.saving.clear();
  ctx.dirty.clear();
  for (const [live, index] of [...changed].sort((a, b) => a[1] - b[1])) ctx.dirty.set(live, index);
}

export function encodeState(live: LiveRun): Uint8Array {
  const head = live.chain.head();
  return toBytes(encodeRunState, {
    ...saveRun(live.run),
    partition: live.partition,
    size: head.size,
    lastHash: head.lastHash,
    peaks: head.peaks,
    lastIndex: head.lastIndex,
    appliedIndex: live.appliedIndex,
  });
}

/** Drops saved runs that nothing happens to from memory; workers forget them too. Some live ones stay at hand. */
export function evictIdle(ctx: ShardContext): void {
  let spare = ctx.runs.size - ctx.residentKept;
  let settled = 0;
  for (const live of ctx.runs.values()) {
    if (ctx.nowMs - live.touchedMs < ctx.idleMs || ctx.dirty.has(live) || ctx.saving.has(live)) continue;
    if (settlesSilently(live)) {
      // It is saved so first, and leaves the next time.
      if (settled++ < settledMax) ctx.appendDelivered(live, live.seenSeq);
      continue;
    }
    if (!mayLeave(ctx, live)) continue;
    if (spare <= 0 && isLive(live.run)) continue;
    spare--;
    leaveWorker(ctx, live);
    ctx.runs.delete(live.partition);
  }
}

/** Runs that one pass records as having seen everything. */
const settledMax = 256;

/** The guest has seen everything, but asked for nothing by which the log would show it. */
function settlesSilently(live: LiveRun): boolean {
  return live.run.status === RunStatus.running && !isSettled(live.run) && !live.inFlight && live.seenSeq >= live.run.deliverableEnd;
}

function mayLeave(ctx: ShardContext, live: LiveRun): boolean {
  if (live.inFlight || live.tasks.size > 0 || live.waiters.length > 0 || live.queries.length > 0) return false;
  if (live.undelivered.length > 0 || ctx.unassigned.has(live)) return false;
  return attentionMs(live.run) >= ctx.horizonMs;
}

/** Folds one record of the log in. Throws `InvariantError` where it does not follow what is there. */
export function recover(ctx: ShardContext, index: number, body: Uint8Array): void {
  const record = fromBytes(decodeRecord, body);
  ctx.lastIndex = asIndex(index);
  let first: LiveRun | undefined;
  for (const bytes of record.event) {
    const live = recoverEvent(ctx, index, bytes);
    first ??= live;
  }
  for (const lease of record.lease) recoverLease(ctx, index, lease);
  for (const delivered of record.delivered) recoverDelivered(ctx, index, delivered);
  if (first !== undefined && record.deliveredSeq > 0) first.run.deliveredSeq = Math.max(first.run.deliveredSeq, record.deliveredSeq);
}

function recoverEvent(ctx: ShardContext, index: number, bytes: Uint8Array): LiveRun | undefined {
  const event = fromBytes(decodeEvent, bytes);
  ctx.clock.witness(event);
  const live = ctx.findOrCreate(event.partition as Partition);
  if (event.seq < live.chain.size) return undefined;
  const fault = followEvent(live.chain, { bytes, event, index: asIndex(index) }, ctx.options.hasher);
  if (fault !== undefined) throw new InvariantError(`${fault.message} (log index ${index})`);
  const decoded = decodeBody(event.kind, event.payload);
  if (decoded !== undefined) {
    const isKeyed = decoded.kind === EventKind.runStarted && decoded.body.idempotencyKey !== "";
    const hash = isKeyed ? ctx.inputHash(decoded.body.type, decoded.body.input) : noBytes;
    applyEvent(live.run, decoded, { seq: event.seq, timeMs: event.timeMs }, hash);
  }
  recovered(ctx, live, index);
  return live;
}

function recoverLease(ctx: ShardContext, index: number, lease: LeaseGranted): void {
  const live = ctx.find(lease.partition as Partition);
  if (live === undefined || live.appliedIndex > index) return;
  const o = live.run.pending.get(lease.op);
  if (o !== undefined && o.attempt === lease.attempt) o.delivery = Math.max(o.delivery, lease.delivery);
  recovered(ctx, live, index);
}

function recoverDelivered(ctx: ShardContext, index: number, delivered: RunDelivered): void {
  const live = ctx.find(delivered.partition as Partition);
  if (live === undefined || live.appliedIndex > index) return;
  live.run.deliveredSeq = Math.max(live.run.deliveredSeq, delivered.seq);
  recovered(ctx, live, index);
}

function recovered(ctx: ShardContext, live: LiveRun, index: number): void {
  live.appliedIndex = index;
  if (!ctx.dirty.has(live)) ctx.dirty.set(live, index);
}

/** The log is read: what was under way goes on. `nowMs` is not below the time of any event that was ever appended. */
export function finishRecovery(ctx: ShardContext, nowMs: number): Effect[] {
  ctx.begin(nowMs);
  // Where the checkpoint has all, the log's last time is known to the millisecond only: start above it.
  ctx.clock.witness({ timeMs: ctx.nowMs, logical: logicalMax });
  ctx.horizonMs = ctx.nowMs;
  extendHorizon(ctx);
  for (const live of ctx.runs.values()) resume(ctx, live);
  arm(ctx);
  return ctx.effects;
}

function resume(ctx: ShardContext, live: LiveRun): void {
  live.touchedMs = ctx.nowMs;
  if (!isLive(live.run)) return;
  remindAll(ctx, live);
  for (const o of live.run.pending.values()) if (mayBeOffered(o, ctx.nowMs)) orphanOperation(ctx, live, o);
  if (live.run.status === RunStatus.running && !isSettled(live.run)) ctx.unassigned.add(live);
}
