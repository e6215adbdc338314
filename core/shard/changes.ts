/**
 * Changes of the shard itself: a leader begins, the range is split, the shard is frozen and
 * absorbed by its neighbour. Each is a record of its own, applied by the leader as it appends it
 * and by every other replica when it is committed.
 */
import {
  asIndex,
  assert,
  type Effect,
  type Index,
  type KeyRange,
  keyText,
  limits,
  logicalMax,
  type NodeId,
  type Rejection,
  rangeText,
  type ShardId,
  type Term,
} from "#core/base";
import { decodeRecord, fromBytes, type ShardAbsorbed, type ShardChange, type ShardSealed, type ShardSplit } from "#proto";
import type { ShardContext } from "./context.ts";
import { depart } from "./departure.ts";
import { applyToHeader, childBirth, encodeHeader } from "./header.ts";
import { resume, wake } from "./reading.ts";
import { adoptHeld } from "./tasks.ts";
import { arm } from "./timers.ts";

export interface Leadership {
  readonly term: Term;
  /** Of the leadership lease that placement gave. */
  readonly epoch: number;
  readonly node: NodeId;
  /** Not below the time of any event that was ever appended. */
  readonly nowMs: number;
  /** Last index of the log: all of it is applied. */
  readonly appliedIndex: number;
}

/** This replica decides from here on: the log is applied, and what was under way goes on. */
export function lead(ctx: ShardContext, leadership: Leadership): Effect[] {
  const { term, epoch, node, nowMs, appliedIndex } = leadership;
  assert(!ctx.isLeading, `Cannot lead shard ${ctx.options.shard} in term ${term}: it is led in term ${ctx.term}`);
  assert(epoch >= ctx.header.epoch, `Cannot lead shard ${ctx.options.shard}: epoch is ${epoch}, want ${ctx.header.epoch} or later`);
  if (appliedIndex > ctx.lastIndex) ctx.lastIndex = asIndex(appliedIndex);
  ctx.begin(nowMs);
  ctx.term = term;
  // Where the checkpoint has all, the log's last time is known to the millisecond only: start above it.
  ctx.clock.witness({ timeMs: ctx.nowMs, logical: logicalMax });
  ctx.horizonMs = ctx.nowMs + limits.timerHorizonMs;
  for (const live of ctx.runs.values()) resume(ctx, live);
  wake(ctx);
  change(ctx, { kind: "led", value: { node, epoch } });
  arm(ctx);
  return ctx.effects;
}

/** Gives the keys from `at` on to the shard `child`. */
export function split(ctx: ShardContext, { at, child }: ShardSplit, nowMs: number): Effect[] | Rejection {
  const { first, last } = ctx.header;
  const refused = refuse(ctx, "split");
  if (refused !== undefined) return refused;
  if (!Number.isSafeInteger(at) || at <= first || at > last) {
    const message = `Cannot split shard ${ctx.options.shard} at ${keyText(at)}: want a key above the first of its ${rangeText(ctx.header)}`;
    return { reject: "BAD_REQUEST", message };
  }
  if (child === 0 || child === ctx.options.shard)
    return { reject: "BAD_REQUEST", message: `Cannot split shard ${ctx.options.shard}: its child can't be shard ${child}` };
  ctx.begin(nowMs);
  change(ctx, { kind: "split", value: { at, child } });
  arm(ctx);
  return ctx.effects;
}

/** Decides nothing more until it is thawed: `into` is about to absorb the shard. */
export function freeze(ctx: ShardContext, { into }: { readonly into: ShardId }, nowMs: number): Effect[] | Rejection {
  const refused = refuse(ctx, "freeze");
  if (refused !== undefined) return refused;
  if (into === 0 || into === ctx.options.shard)
    return { reject: "BAD_REQUEST", message: `Cannot freeze shard ${ctx.options.shard}: shard ${into} can't absorb it` };
  ctx.begin(nowMs);
  change(ctx, { kind: "frozen", value: { into } });
  return ctx.effects;
}

/** Makes the right neighbour, frozen and saved on this node, part of the shard. */
export function absorb(ctx: ShardContext, absorption: ShardAbsorbed, nowMs: number): Effect[] | Rejection {
  const refused = refuse(ctx, "widen");
  if (refused !== undefined) return refused;
  const { shard, last } = absorption;
  if (shard === ctx.options.shard || !Number.isSafeInteger(last) || last <= ctx.header.last) {
    const message = `Cannot widen shard ${ctx.options.shard} to ${keyText(last, "f")} by shard ${shard}: its last key is ${keyText(ctx.header.last, "f")} already`;
    return { reject: "BAD_REQUEST", message };
  }
  ctx.begin(nowMs);
  change(ctx, { kind: "absorbed", value: absorption });
  arm(ctx);
  return ctx.effects;
}

/** Records that the log through an index lies in object storage, so that every replica may forget it. */
export function seal(ctx: ShardContext, sealed: ShardSealed, nowMs: number): Effect[] | Rejection {
  const refused = refuse(ctx, "seal");
  if (refused !== undefined) return refused;
  const { header, options } = ctx;
  const { through, manifest, sha256, statesThrough } = sealed;
  assert(sha256.length === 32, `a manifest's hash has 32 bytes, got ${sha256.length}`);
  assert(statesThrough <= through, `states are uploaded as of ${statesThrough}, which is behind ${through}`);
  // A manifest that says the same of fewer segments leads no further.
  if (through < header.sealedThrough || through > ctx.lastIndex || manifest <= header.manifest) {
    const message =
      `Cannot seal shard ${options.shard} through index ${through} by manifest ${manifest}: ` +
      `it is sealed through ${header.sealedThrough} by manifest ${header.manifest}, and its log ends at ${ctx.lastIndex}`;
    return { reject: "BAD_REQUEST", message };
  }
  ctx.begin(nowMs);
  change(ctx, { kind: "sealed", value: sealed });
  arm(ctx);
  return ctx.effects;
}

/** Leads on under a newer lease of the same term: placement gives one when it decides a merge. */
export function renew(ctx: ShardContext, epoch: number, nowMs: number): Effect[] | Rejection {
  const refused = refuse(ctx, "renew the lease of");
  if (refused !== undefined) return refused;
  const { header } = ctx;
  if (epoch < header.epoch)
    return {
      reject: "STALE_EPOCH",
      message: `Cannot lead shard ${ctx.options.shard} under epoch ${epoch}: it is led under ${header.epoch}`,
    };
  ctx.begin(nowMs);
  if (epoch > header.epoch) change(ctx, { kind: "led", value: { node: header.leader, epoch } });
  return ctx.effects;
}

/** Decides again; what workers said meanwhile is to be stepped by the caller. */
export function thaw(ctx: ShardContext, nowMs: number): Rejection | undefined {
  assert(ctx.isLeading, `only a leader can thaw shard ${ctx.options.shard}`);
  if (!ctx.isFrozen) return { reject: "BAD_REQUEST", message: `Cannot thaw shard ${ctx.options.shard}: it is not frozen` };
  ctx.begin(nowMs);
  change(ctx, { kind: "thawed", value: {} });
  return undefined;
}

function refuse(ctx: ShardContext, doing: string): Rejection | undefined {
  assert(ctx.isLeading, `only a leader can ${doing} shard ${ctx.options.shard}`);
  if (!ctx.isFrozen) return undefined;
  const message = `Cannot ${doing} shard ${ctx.options.shard}: it is frozen, to be absorbed by shard ${ctx.header.frozenInto}`;
  return { reject: "SHARD_BUSY", message };
}

function change(ctx: ShardContext, made: ShardChange): void {
  ctx.appendChange(made);
  applyChange(ctx, ctx.lastIndex, made);
}

/** Applies a change that is at `index` of the log, on any replica. */
export function applyChange(ctx: ShardContext, index: Index, made: ShardChange): void {
  if (made.kind === "split") return applySplit(ctx, index, made);
  const from = ctx.header.last + 1;
  ctx.header = applyToHeader(ctx.header, index, made);
  ctx.changes.push({ index, change: made });
  if (made.kind !== "absorbed") return;
  ctx.clock.witness({ timeMs: made.value.clockMs, logical: logicalMax });
  if (ctx.isLeading) takeOver(ctx, made.value.shard as ShardId, { first: from, last: ctx.header.last });
}

function applySplit(ctx: ShardContext, index: Index, made: Extract<ShardChange, { kind: "split" }>): void {
  const { header } = ctx;
  const { at, child } = made.value;
  const { shard } = ctx.options;
  const birth = childBirth(header, { at, shard, clockMs: ctx.clock.timeMs });
  ctx.header = applyToHeader(header, index, made);
  ctx.changes.push({ index, change: made, child: birth });
  depart(ctx, child as ShardId);
  ctx.headerBefore ??= { header: encodeHeader(header), headerIndex: index - 1 };
  ctx.splitIndex = index;
}

/** What is under way in the new part goes on here. */
function takeOver(ctx: ShardContext, from: ShardId, range: KeyRange): void {
  wake(ctx, range);
  for (const session of ctx.pool.sessions.values()) adoptHeld(ctx, session, from);
}

/** The change that a record holds, if it holds one: it holds nothing else then. */
export function changeOf(body: Uint8Array): ShardChange | undefined {
  return body[0] === changeTag ? fromBytes(decodeRecord, body).change : undefined;
}

/** Of `Record.change`. */
const changeTag = 58;
