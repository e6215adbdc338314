/**
 * States that memory does not hold, read from the checkpoint while that can be.
 *
 * A leader reads what an input is about before it decides anything, so a read that fails changes
 * nothing and the input can be stepped again. What time makes due does not wait for a state that
 * can't be read: that one is looked for again a little later.
 */
import { ifAvailable, isUnavailable, type KeyRange, limits, type Partition } from "#core/base";
import { isLive, isSettled, mayBeOffered } from "#core/run";
import { RunStatus } from "#proto";
import type { ShardContext } from "./context.ts";
import { pump } from "./delivery.ts";
import { type Input, partitionOfCommand } from "./input.ts";
import type { LiveRun } from "./live-run.ts";
import { post } from "./outbox.ts";
import { remindAll } from "./reminders.ts";
import { orphanOperation } from "./tasks.ts";
import { partitionOfToken } from "./token.ts";
import { awaitStopping } from "./unwind.ts";
import { awaitConsumers } from "./waits.ts";

/** Loads what the input is about. Throws `HopError` STORE_UNAVAILABLE where that can't be read now. */
export function fetchFor(ctx: ShardContext, input: Input): void {
  const partition = partitionOf(input);
  ctx.absent = undefined;
  if (partition === undefined) return;
  const live = ctx.find(partition);
  if (live !== undefined && ctx.unwoken.has(live)) goOn(ctx, live);
  if (live === undefined && !ctx.runs.has(partition)) ctx.absent = partition;
}

function partitionOf(input: Input): Partition | undefined {
  switch (input.kind) {
    case "command":
      return partitionOfCommand(input.command);
    case "task-done":
    case "heartbeat":
      return input.message.token === undefined ? undefined : partitionOfToken(input.message.token);
    case "envelope-answered":
      return input.from;
    case "envelope":
      return input.envelope.to as Partition;
    default:
      return undefined;
  }
}

/** As `ShardContext.find`; "unreadable" while that can't be known. */
export function findNow(ctx: ShardContext, partition: Partition): LiveRun | "unreadable" | undefined {
  try {
    return ctx.find(partition);
  } catch (error) {
    if (isUnavailable(error)) return "unreadable";
    throw error;
  }
}

/** What is under way goes on here: nothing of it is known but the state. */
export function resume(ctx: ShardContext, live: LiveRun): void {
  live.touchedMs = ctx.nowMs;
  post(ctx, live);
  if (!isLive(live.run) && live.run.pending.size === 0 && live.run.channel === undefined) return;
  remindAll(ctx, live);
  awaitStopping(ctx, live);
  awaitConsumers(ctx, live);
  for (const o of live.run.pending.values()) if (mayBeOffered(o, ctx.nowMs)) orphanOperation(ctx, live, o);
  if (live.run.status === RunStatus.running && !isSettled(live.run)) ctx.unassigned.add(live);
}

/** Loads what needs attention before the horizon and memory does not hold, and lets it go on. */
export function wake(ctx: ShardContext, range: KeyRange = ctx.header): void {
  for (const partition of dueNow(ctx, range)) {
    if (ctx.runs.has(partition)) continue;
    const live = findNow(ctx, partition);
    if (live === "unreadable") ctx.rereadAtMs = ctx.nowMs + limits.rereadMs;
    else if (live !== undefined) goOn(ctx, live);
  }
}

function goOn(ctx: ShardContext, live: LiveRun): void {
  ctx.unwoken.delete(live);
  resume(ctx, live);
  if (ctx.unassigned.has(live)) pump(ctx, live);
}

function dueNow(ctx: ShardContext, range: KeyRange): readonly Partition[] {
  const due = ifAvailable(() => ctx.options.states.dueBefore(ctx.horizonMs, Number.MAX_SAFE_INTEGER, range));
  if (due === undefined) ctx.rereadAtMs = ctx.nowMs + limits.rereadMs;
  return due ?? [];
}

/** Wakes what could not be read before, when its time has come. */
export function reread(ctx: ShardContext): void {
  if (ctx.nowMs < ctx.rereadAtMs) return;
  ctx.rereadAtMs = Number.POSITIVE_INFINITY;
  for (const live of [...ctx.unwoken]) if (ctx.runs.get(live.partition) === live) goOn(ctx, live);
  ctx.unwoken.clear();
  wake(ctx);
}
