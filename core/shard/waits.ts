/**
 * Clients that wait for a run's end. Those that consume its stream do so too, and for as long as they wait the
 * stream is connected; how it stands is recorded, so that a run's code sees the same under every leader.
 */
import { limits, type RequestId } from "#core/base";
import { findStart, isClosed, isConnected, isOpen, refuseUnknown, type Target } from "#core/run";
import { EventKind, type Identity, RunStatus } from "#proto";
import { forgetCaller } from "./calls.ts";
import type { ShardContext } from "./context.ts";
import type { CommandOf } from "./input.ts";
import type { LiveRun, Waiter } from "./live-run.ts";
import { answer, tellEnding } from "./outcome.ts";
import { remind } from "./reminders.ts";
import { refuseBlocked, reject } from "./replies.ts";

export function awaitResult(ctx: ShardContext, request: RequestId, live: LiveRun, command: CommandOf<"await-result">): void {
  const target = { ticket: command.ticket ?? 0, generation: command.generation ?? 0 };
  const found = findStart(live.run, target);
  wait(ctx, live, { request, start: false, attached: true, ticket: target.ticket }, { target, found });
}

/** Tells the waiter at once, or has it wait. */
export function wait(
  ctx: ShardContext,
  live: LiveRun,
  waiter: Waiter,
  { target, found }: { readonly target: Target; readonly found: ReturnType<typeof findStart> },
): void {
  if (found === undefined) return reject(ctx, waiter.request, refuseUnknown(live.run, "wait for", target), live);
  if (found.kind === "ended") return tellEnding(ctx, live, waiter, found.ending);
  if (found.kind === "newest") {
    if (isClosed(live.run)) return answer(ctx, live, waiter);
    if (live.run.status === RunStatus.blocked) return reject(ctx, waiter.request, refuseBlocked(live), live);
  }
  live.waiters.push(waiter);
  ctx.waiting.set(waiter.request, live);
}

export function onConsume(
  ctx: ShardContext,
  request: RequestId,
  identity: Identity,
  live: LiveRun,
  { generation }: CommandOf<"consume">,
): void {
  if (consumersOf(live) >= limits.consumersMax) {
    const message = `Cannot consume the stream of ${live.id}: ${limits.consumersMax} consumers are connected, more are not allowed`;
    return reject(ctx, request, { reject: "BUFFER_FULL", message, retryAfterMs: 1000 }, live);
  }
  const target = { ticket: 0, generation };
  wait(ctx, live, { request, start: false, attached: true, ticket: 0, consumes: true }, { target, found: findStart(live.run, target) });
  if (consumersOf(live) > 0 && isOpen(live.run) && !isConnected(live.run))
    ctx.append(live, { kind: EventKind.streamConnected, body: {} }, identity);
}

const consumersOf = (live: LiveRun): number => live.waiters.reduce((count, { consumes }) => (consumes === true ? count + 1 : count), 0);

/** The client does not wait any more. */
export function onRequestGone(ctx: ShardContext, request: RequestId): void {
  const live = ctx.waiting.get(request);
  ctx.waiting.delete(request);
  if (live === undefined) return;
  live.waiters = live.waiters.filter((w) => w.request !== request);
  forgetCaller(live, request);
  awaitConsumers(ctx, live);
}

/** Where nobody consumes a connected stream any more, or its consumers are not known to a new leader: they have time to come back. */
export function awaitConsumers(ctx: ShardContext, live: LiveRun): void {
  live.consumedMs = ctx.nowMs;
  const dueMs = disconnectMs(live);
  if (dueMs < Number.POSITIVE_INFINITY) remind(ctx, live, "stream", dueMs);
}

export function onStreamDue(ctx: ShardContext, live: LiveRun): void {
  if (disconnectMs(live) > ctx.nowMs) return;
  const body = { afterMs: ctx.nowMs - live.consumedMs };
  ctx.append(live, { kind: EventKind.streamDisconnected, body }, ctx.core(live.chain.size - 1));
}

/** When the stream will be disconnected if nobody comes; Infinity: it is not to be. */
export function disconnectMs(live: LiveRun): number {
  const isLeft = isOpen(live.run) && isConnected(live.run) && consumersOf(live) === 0;
  return isLeft ? live.consumedMs + limits.streamGraceMs : Number.POSITIVE_INFINITY;
}
