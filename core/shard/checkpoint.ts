/**
 * States out of memory and back: what a checkpoint saves, what may leave memory, and the rebuild
 * of a shard from checkpoint and log tail.
 *
 * A checkpoint is fuzzy: each run is saved with the index that its state is the fold of, and the
 * shard's low-water mark is the index below which every run is saved. Recovery starts above the
 * mark and skips, for each run, what its saved state has.
 */
import { asIndex, assert, bytesEqual, InvariantError, inRange, type Key, noBytes, type Partition } from "#core/base";
import { followEvent } from "#core/merkle";
import { applyEvent, attentionMs, decodeBody, isLive, isSettled, saveRun } from "#core/run";
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
import { applyChange } from "./changes.ts";
import type { ShardContext } from "./context.ts";
import { encodeHeader } from "./header.ts";
import { isInUse, type LiveRun } from "./live-run.ts";
import { recoverFacts } from "./message-facts.ts";
import { leaveWorker } from "./outcome.ts";
import { disconnectMs } from "./waits.ts";

export interface CheckpointRow {
  readonly partition: Partition;
  readonly key: Key;
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
  /**
   * May be saved once the log is committed through this index, and what splits up to there gave
   * birth to (`takeChanges`) is durable on this node.
   */
  readonly durableIndex: number;
  /** The shard's header as of `headerIndex`, to be saved with the rows. */
  readonly header: Uint8Array;
  readonly headerIndex: number;
}

/** Takes up to `limit` changed runs: those that are another shard's now, then the longest changed. */
export function capture(ctx: ShardContext, limit: number): Checkpoint {
  const rows: CheckpointRow[] = [];
  ctx.saving.clear();
  for (const changed of [ctx.departing, ctx.dirty]) {
    for (const [live, changedFrom] of changed) {
      if (rows.length >= limit) break;
      changed.delete(live);
      ctx.saving.set(live.partition, live);
      const { partition, key, appliedIndex: index } = live;
      rows.push({ partition, key, state: encodeState(live), dueMs: attentionMs(live.run), index, changedFrom });
    }
  }
  const oldest = Math.min(oldestOf(ctx.departing), oldestOf(ctx.dirty));
  // While a state of a departing run is unsaved, a restart must come by the split again.
  const whole = { header: encodeHeader(ctx.header), headerIndex: Math.max(ctx.lastIndex, ctx.headerIndex) };
  ctx.captured = ctx.departing.size === 0 ? whole : undefined;
  const { header, headerIndex } = ctx.captured ?? ctx.headerBefore ?? whole;
  return { rows, appliedIndex: Math.min(ctx.lastIndex, oldest - 1), durableIndex: ctx.lastIndex, header, headerIndex };
}

/** In a map that is ordered by index. */
function oldestOf(changed: ReadonlyMap<LiveRun, number>): number {
  const [oldest] = changed.values();
  return oldest ?? Number.POSITIVE_INFINITY;
}

/** What was captured is saved: it may leave memory. Until then what is saved of it is older than it is. */
export function saved(ctx: ShardContext): void {
  ctx.saving.clear();
  const { captured } = ctx;
  ctx.captured = undefined;
  if (captured !== undefined) ctx.headerBefore = ctx.splitIndex > captured.headerIndex ? captured : undefined;
}

/** What was captured could not be saved: it counts as changed again. */
export function putBack(ctx: ShardContext, checkpoint: Checkpoint): void {
  for (const { partition, changedFrom } of checkpoint.rows) {
    const live = ctx.saving.get(partition);
    if (live !== undefined) (inRange(ctx.header, live.key) ? ctx.dirty : ctx.departing).set(live, changedFrom);
  }
  ctx.saving.clear();
  ctx.captured = undefined;
  // The oldest change comes first again: the low-water mark is read there.
  sort(ctx.dirty);
  sort(ctx.departing);
}

function sort(changed: Map<LiveRun, number>): void {
  const sorted = [...changed].sort((a, b) => a[1] - b[1]);
  changed.clear();
  for (const [live, index] of sorted) changed.set(live, index);
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
    lastShard: head.lastShard,
    appliedIndex: live.appliedIndex,
  });
}

/**
 * Drops saved runs that nothing happens to from memory; workers forget them too. Some live ones
 * stay at hand where the shard is led; a follower needs none.
 */
export function evictIdle(ctx: ShardContext): void {
  let spare = ctx.isLeading ? ctx.runs.size - ctx.residentKept : Number.POSITIVE_INFINITY;
  let settled = 0;
  for (const live of ctx.runs.values()) {
    if (ctx.nowMs - live.touchedMs < ctx.idleMs || ctx.dirty.has(live) || ctx.saving.has(live.partition)) continue;
    if (!ctx.isLeading) {
      ctx.runs.delete(live.partition);
      continue;
    }
    if (ctx.isFrozen) continue;
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
  if (isInUse(live) || live.undelivered.length > 0 || ctx.unassigned.has(live)) return false;
  // Whether its consumers come back is soon known.
  if (disconnectMs(live) < Number.POSITIVE_INFINITY) return false;
  return attentionMs(live.run) >= ctx.horizonMs;
}

/** An entry of the log without a record, which was put behind the last one. */
export function skip(ctx: ShardContext, index: number): void {
  const isNext = index === ctx.lastIndex + 1 || (ctx.lastIndex === 0 && !ctx.isLeading);
  if (!isNext) throw new InvariantError(`Cannot take entry ${index} of shard ${ctx.options.shard}: want ${ctx.lastIndex + 1}`);
  ctx.lastIndex = asIndex(index);
}

/** Folds one record of the log in. Throws `InvariantError` where it does not follow what is there. */
export function recover(ctx: ShardContext, index: number, body: Uint8Array): void {
  assert(!ctx.isLeading, "a leader has what it appended");
  const record = fromBytes(decodeRecord, body);
  skip(ctx, index);
  for (const live of recoverFacts(ctx, index, record)) recovered(ctx, live, index);
  const [first] = record.event.map((bytes) => recoverEvent(ctx, index, bytes));
  for (const lease of record.lease) recoverLease(ctx, index, lease);
  for (const delivered of record.delivered) recoverDelivered(ctx, index, delivered);
  if (first !== undefined && record.deliveredSeq > 0) first.run.deliveredSeq = Math.max(first.run.deliveredSeq, record.deliveredSeq);
  if (record.change !== undefined && index > ctx.headerIndex) applyChange(ctx, ctx.lastIndex, record.change);
}

function recoverEvent(ctx: ShardContext, index: number, bytes: Uint8Array): LiveRun | undefined {
  const event = fromBytes(decodeEvent, bytes);
  ctx.clock.witness(event);
  const partition = event.partition as Partition;
  if (!ctx.owns(partition)) {
    // A header from behind a split meets records from before it: what they did is saved, or another shard's.
    if (index <= ctx.headerIndex) return undefined;
    throw new InvariantError(`Cannot take record ${index} of shard ${ctx.options.shard}: ${ctx.elsewhere(partition).message}`);
  }
  const live = ctx.findOrCreate(partition);
  if (event.seq < live.chain.size) return undefined;
  const peaks = event.kind === EventKind.historyExpired ? live.chain.head().peaks : noBytes;
  const fault = followEvent(live.chain, { bytes, event, index: asIndex(index) }, ctx.options.hasher);
  if (fault !== undefined) throw new InvariantError(`${fault.message} (log index ${index})`);
  const decoded = decodeBody(event.kind, event.payload);
  if (decoded?.kind === EventKind.historyExpired) {
    const isOfRange = bytesEqual(decoded.body.peaks, peaks);
    assert(isOfRange, `event ${event.seq} of ${partition} has the peaks of all before it (log index ${index})`);
  }
  if (decoded !== undefined) {
    const isStart = decoded.kind === EventKind.runStarted || decoded.kind === EventKind.startQueued;
    const hash = isStart ? ctx.inputHash(decoded.body) : noBytes;
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
  live.touchedMs = ctx.nowMs;
  if (!ctx.dirty.has(live)) ctx.dirty.set(live, index);
}
