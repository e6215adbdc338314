/**
 * Retention: histories whose time is over are given up by an event of their own, so that every
 * replica, segment and copy says the same of what is gone, and by whose policy.
 *
 * The event stays on the chain that it ends: it holds the peaks of all before it, and its `prev_hash`
 * the last hash, so roots and proofs of later events hold as before. Whoever has the bytes may delete
 * them once that event is where they were.
 */
import { type Effect, limits, type Partition, type Rejection } from "#core/base";
import { decideExpiry, type Expiry } from "#core/run";
import type { ShardContext } from "./context.ts";
import { isInUse } from "./live-run.ts";
import { findNow } from "./reading.ts";
import { arm } from "./timers.ts";

export interface DueHistory extends Expiry {
  readonly partition: Partition;
}

/** Gives up those that may go, in one record. Refused as a whole where nothing is sealed: the log would keep their bytes for ever. */
export function expire(ctx: ShardContext, due: readonly DueHistory[], nowMs: number): Effect[] | Rejection {
  const { shard } = ctx.options;
  if (ctx.isFrozen) {
    const message = `Cannot expire histories of shard ${shard}: it is frozen, to be absorbed by shard ${ctx.header.frozenInto}`;
    return { reject: "SHARD_BUSY", message };
  }
  if (ctx.header.manifest === 0)
    return { reject: "BAD_REQUEST", message: `Cannot expire histories of shard ${shard}: it was never sealed, and its log keeps them` };
  ctx.begin(nowMs);
  for (const { partition, ...expiry } of due.slice(0, limits.expiredRunsMax)) {
    const live = ctx.owns(partition) ? findNow(ctx, partition) : undefined;
    if (live === undefined || live === "unreadable" || live.session !== undefined || isInUse(live)) continue;
    const { size, peaks } = live.chain.head();
    const event = decideExpiry(live.run, expiry, { nowMs: ctx.nowMs, peaks });
    if (event !== undefined) ctx.append(live, event, ctx.core(size - 1));
  }
  ctx.seal();
  arm(ctx);
  return ctx.effects;
}
