/**
 * Starts, cancellations and terminations that other partitions ask for: decided as a client's are,
 * and answered by messages.
 */
import { limits, type Partition, type Reason } from "#core/base";
import { decideEnd, decideStart, findStart, startOf } from "#core/run";
import { type Message, MessageKind } from "#proto";
import { beginStart, startNext } from "./contention.ts";
import type { ShardContext } from "./context.ts";
import { senderIdentity } from "./identity.ts";
import type { LiveRun } from "./live-run.ts";
import { closeRun, leaveQueue } from "./outcome.ts";

/** It has its effect as an event; or has it as what is said here; or is to be offered again. */
export type OrderTaken =
  | "event"
  /** `of`: the generation that a start attached to; 0 = none. */
  | { readonly refusal: Reason | undefined; readonly of: number }
  | { readonly retryMs: number };

const busyRetryMs = 1000;

export function takeOrder(ctx: ShardContext, live: LiveRun, from: Partition, message: Message): OrderTaken {
  return message.kind === MessageKind.start ? takeStart(ctx, live, from, message) : takeEnd(ctx, live, from, message);
}

function takeStart(ctx: ShardContext, live: LiveRun, from: Partition, message: Message): OrderTaken {
  if (ctx.ready.size >= limits.readyTasksMax) return { retryMs: busyRetryMs };
  const request = startOf(from, message);
  if (typeof request === "string") return { refusal: request, of: 0 };
  const inputHash = ctx.inputHash(request);
  const decision = decideStart(live.run, request, inputHash);
  if ("reject" in decision) return { refusal: decision.reject, of: 0 };
  if ("attach" in decision) return attached(live, decision);
  beginStart(ctx, live, decision, { request, identity: senderIdentity(from), inputHash });
  return "event";
}

/** Only the newest run can still tell how it ends. */
function attached({ run }: LiveRun, { attach, ticket }: { readonly attach: number; readonly ticket: number }): OrderTaken {
  const found = findStart(run, { ticket, generation: attach })?.kind;
  if (found === "queued") return { refusal: "RUN_QUEUED", of: 0 };
  if (found !== "newest") return { refusal: "RUN_CLOSED", of: 0 };
  return run.awaiters.size >= limits.awaitersMax ? { refusal: "BUFFER_FULL", of: 0 } : { refusal: undefined, of: attach };
}

function takeEnd(ctx: ShardContext, live: LiveRun, from: Partition, message: Message): OrderTaken {
  const end = decideEnd(live.run, from, message);
  if (!("event" in end)) return { refusal: end.refusal, of: 0 };
  const { event, leaves } = end;
  const identity = senderIdentity(from);
  if (leaves !== undefined) leaveQueue(ctx, live, leaves, event, identity);
  else if (message.kind === MessageKind.cancel) ctx.append(live, event, identity);
  else {
    closeRun(ctx, live, event, identity);
    // The next message is for whoever follows.
    startNext(ctx, live);
  }
  return "event";
}
