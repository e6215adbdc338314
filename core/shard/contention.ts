/**
 * Starts of a name whose run is live: they wait in its queue, or end it.
 *
 * The record that ends a run begins the start that waits next, so there are never two, never none,
 * and nothing has to be found again after a crash. Who is overdue leaves first, in that record
 * too: a budget that passed while no leader was there counts as well.
 */
import { asSeq, assert, type RequestId, unreachable } from "#core/base";
import {
  decideHeldSignal,
  decideNext,
  decideStartCancelled,
  findStart,
  isClosed,
  noAsker,
  type RunEvent,
  refuseUnknown,
  type StartRequest,
  startText,
} from "#core/run";
import { type Contender, EventKind, type Identity, type IdentityInit } from "#proto";
import type { ShardContext } from "./context.ts";
import type { Command, LetterCommand } from "./input.ts";
import type { LiveRun } from "./live-run.ts";
import { closeRun, leaveQueue, leaveWorker } from "./outcome.ts";
import { remind, remindBudgets } from "./reminders.ts";
import { reject, respond } from "./replies.ts";

/** Who asks for a start. */
interface Starter {
  readonly request: StartRequest;
  readonly identity: IdentityInit;
  readonly inputHash: Uint8Array;
}

/** Begins a run or queues its start, as was decided. Returns its ticket; 0 = it runs. */
export function beginStart(ctx: ShardContext, live: LiveRun, decision: RunEvent, starter: Starter): number {
  if (decision.kind === EventKind.startQueued) return queueStart(ctx, live, decision, starter);
  begin(ctx, live, decision, starter);
  return 0;
}

/** A generation begins. */
function begin(ctx: ShardContext, live: LiveRun, event: RunEvent, { identity, inputHash }: Omit<Starter, "request">): void {
  // A query may still hold the generation before at a worker, and what that was to be told is over.
  leaveWorker(ctx, live);
  live.fresh = [];
  live.strikes = 0;
  ctx.append(live, event, identity, inputHash);
  if (live.run.deadlineAtMs > 0) remind(ctx, live, "deadline", live.run.deadlineAtMs);
}

/** Puts a start into the queue, before all others and with the live run's end where it supersedes. Returns its ticket. */
function queueStart(ctx: ShardContext, live: LiveRun, event: RunEvent, { request, identity, inputHash }: Starter): number {
  const ticket = ctx.append(live, event, identity, inputHash);
  if (request.contention === "supersede") supersede(ctx, live, { ticket, reason: request.overrideReason ?? "" }, identity);
  else remindBudgets(ctx, live, (contender) => contender.ticket === ticket);
  return ticket;
}

/** Who ends the run and why is in its history before it ends. */
function supersede(
  ctx: ShardContext,
  live: LiveRun,
  by: { readonly ticket: number; readonly reason: string },
  identity: IdentityInit,
): void {
  assert(by.reason !== "", `a start supersedes generation ${live.run.generation} of ${live.id} only with a reason`);
  const seq = ctx.append(live, { kind: EventKind.supersedeRequested, body: by }, identity);
  closeRun(ctx, live, { kind: EventKind.runTerminated, body: { reason: by.reason, ...noAsker } }, ctx.core(seq));
  startNext(ctx, live);
}

/** Begins the start that waits next, where the run has ended. */
export function startNext(ctx: ShardContext, live: LiveRun): void {
  const [next] = live.run.queue;
  if (next === undefined || !isClosed(live.run)) return;
  begin(ctx, live, decideNext(live.run, next), { identity: ctx.core(next.ticket), inputHash: next.inputHash });
  for (const { seq, name, payload, id } of next.signal) {
    ctx.append(live, { kind: EventKind.signalReceived, body: { name, payload, id, from: "", number: 0 } }, ctx.core(seq));
  }
}

type Directed = Exclude<Command, { kind: "start" | "await-result" | "consume" | "schedule" | "channel" } | LetterCommand>;

/** What is for one start of a name that is not its newest run. */
export function onOtherStart(ctx: ShardContext, request: RequestId, identity: Identity, live: LiveRun, command: Directed): void {
  const target = { ticket: command.ticket ?? 0, generation: 0 };
  const verb = verbs[command.kind];
  const found = findStart(live.run, target);
  if (found?.kind === "queued") return onContender(ctx, request, identity, live, command, found.contender);
  if (found?.kind !== "ended") return reject(ctx, request, refuseUnknown(live.run, verb, target), live);
  const how = found.ending.generation === 0 ? "it left the queue without a run" : "it has ended";
  reject(ctx, request, { reject: "RUN_CLOSED", message: `Cannot ${verb} ${startText(live.run, target)}: ${how}` }, live);
}

function onContender(
  ctx: ShardContext,
  request: RequestId,
  identity: Identity,
  live: LiveRun,
  command: Directed,
  contender: Contender,
): void {
  switch (command.kind) {
    case "signal": {
      const decision = decideHeldSignal(live.run, contender, command);
      if (decision !== "duplicate" && "reject" in decision) return reject(ctx, request, decision, live);
      const seq = decision === "duplicate" ? live.chain.size - 1 : ctx.append(live, decision, identity);
      return respond(ctx, request, live, { kind: "signalled", seq: asSeq(seq) });
    }
    case "cancel":
    case "terminate":
      leaveQueue(ctx, live, contender, decideStartCancelled(contender, command.reason), identity);
      return respond(ctx, request, live, { kind: "done" });
    case "query":
    case "call":
    case "pause":
    case "unpause":
    case "resume": {
      const what = startText(live.run, { ticket: contender.ticket, generation: 0 });
      const place = live.run.queue.indexOf(contender) + 1;
      const message = `Cannot ${verbs[command.kind]} ${what}: it waits at place ${place} of the queue, and has no run yet`;
      return reject(ctx, request, { reject: "RUN_QUEUED", message }, live);
    }
    default:
      return unreachable(command);
  }
}

/** What commands do to a run, for messages. */
export const verbs = {
  signal: "signal",
  cancel: "cancel",
  terminate: "terminate",
  resume: "retry",
  pause: "pause",
  unpause: "unpause",
  "await-result": "wait for",
  consume: "consume the stream of",
  query: "query",
  call: "call a method of",
  "replay-letter": "replay a dead letter of",
  "drop-letter": "drop a dead letter of",
} as const;
