/** What clients ask for. */
import { asSeq, limits, noBytes, now, type Rejection, type Reply, type RequestId, runPartition } from "#core/base";
import { decideCancel, decideResume, decideSignal, decideStart, decideTerminate, isClosed } from "#core/run";
import { type Identity, RunStatus } from "#proto";
import type { ShardContext } from "./context.ts";
import type { Command } from "./input.ts";
import type { LiveRun } from "./live-run.ts";
import { answer, closeRun, leaveWorker } from "./outcome.ts";
import { askQuery } from "./queries.ts";
import { remind } from "./reminders.ts";

type CommandOf<K extends Command["kind"]> = Extract<Command, { kind: K }>;

export function onCommand(ctx: ShardContext, request: RequestId, identity: Identity, command: Command): void {
  const partition = runPartition(command.run);
  if (ctx.isFrozen || !ctx.owns(partition)) return reject(ctx, request, ctx.elsewhere(partition));
  if (command.kind === "start") return onStart(ctx, request, identity, command);
  const live = ctx.find(partition);
  if (live === undefined) {
    return reject(ctx, request, { reject: "RUN_NOT_FOUND", message: `Cannot ${verbs[command.kind]} ${command.run}: there is no such run` });
  }
  switch (command.kind) {
    case "signal":
      return onSignal(ctx, request, identity, live, command);
    case "cancel":
      return onCancel(ctx, request, identity, live, command);
    case "terminate":
      return onTerminate(ctx, request, identity, live, command);
    case "resume":
      return onResume(ctx, request, identity, live, command);
    case "await-result":
      return awaitResult(ctx, request, live);
    case "query":
      return askQuery(ctx, live, { request, name: command.name, input: command.input, asked: 0, tries: 0 });
  }
}

const verbs = {
  signal: "signal",
  cancel: "cancel",
  terminate: "terminate",
  resume: "retry",
  "await-result": "wait for",
  query: "query",
} as const;

function respond(ctx: ShardContext, request: RequestId, live: LiveRun, reply: Reply): void {
  ctx.emit({ kind: "reply", request, reply, after: ctx.committed(live) });
}

/** A refusal may rest on what the run has become, and that may still be lost: it waits for its commit like any reply. */
function reject(ctx: ShardContext, request: RequestId, rejection: Rejection, live?: LiveRun): void {
  ctx.emit({ kind: "reply", request, reply: { kind: "rejected", rejection }, after: live === undefined ? now : ctx.committed(live) });
}

function onStart(ctx: ShardContext, request: RequestId, identity: Identity, command: CommandOf<"start">): void {
  if (ctx.ready.size >= limits.readyTasksMax) {
    const message = `Cannot start ${command.run}: ${ctx.ready.size} tasks wait for a worker, at most ${limits.readyTasksMax} may`;
    return reject(ctx, request, { reject: "BUFFER_FULL", message, retryAfterMs: 1000 });
  }
  const live = ctx.findOrCreate(runPartition(command.run));
  const hash = command.idempotencyKey === "" ? noBytes : ctx.inputHash(command.type, command.input);
  const decision = decideStart(live.run, command, hash);
  if ("reject" in decision) return reject(ctx, request, decision, live);
  const attached = "attach" in decision;
  if (!attached) {
    // A query may still hold the generation before at a worker.
    leaveWorker(ctx, live);
    ctx.append(live, decision, identity, hash);
    if (live.run.deadlineAtMs > 0) remind(ctx, live, "deadline", live.run.deadlineAtMs);
  }
  const generation = attached ? decision.attach : live.run.generation;
  if (command.awaitResult && generation !== live.run.generation) {
    const message = `Cannot wait for generation ${generation} of ${live.id}, which the idempotency key started: it has ended, and generation ${live.run.generation} came after it; its history has its result`;
    return reject(ctx, request, { reject: "RUN_CLOSED", message }, live);
  }
  if (!command.awaitResult) return respond(ctx, request, live, { kind: "started", run: live.id, generation, attached });
  wait(ctx, live, { request, start: true, attached });
}

function awaitResult(ctx: ShardContext, request: RequestId, live: LiveRun): void {
  wait(ctx, live, { request, start: false, attached: true });
}

function wait(ctx: ShardContext, live: LiveRun, waiter: LiveRun["waiters"][number]): void {
  if (isClosed(live.run)) return answer(ctx, live, waiter);
  if (live.run.status === RunStatus.blocked) {
    return reject(ctx, waiter.request, { reject: "RUN_BLOCKED", message: `Run ${live.id} is blocked: ${live.run.note}` }, live);
  }
  live.waiters.push(waiter);
  ctx.waiting.set(waiter.request, live);
}

function onSignal(ctx: ShardContext, request: RequestId, identity: Identity, live: LiveRun, command: CommandOf<"signal">): void {
  if (live.undelivered.length >= limits.undeliveredMax) {
    const message = `Cannot signal ${live.id}: ${live.undelivered.length} events wait to be taken by it`;
    return reject(ctx, request, { reject: "BUFFER_FULL", message, retryAfterMs: 200 });
  }
  const { name, payload, id } = command;
  const decision = decideSignal(live.run, { name, payload, id, from: "", number: 0 });
  if (decision !== "duplicate" && "reject" in decision) return reject(ctx, request, decision, live);
  if (decision !== "duplicate") ctx.append(live, decision, identity);
  respond(ctx, request, live, { kind: "signalled", seq: asSeq(live.chain.size - 1) });
}

function onCancel(ctx: ShardContext, request: RequestId, identity: Identity, live: LiveRun, command: CommandOf<"cancel">): void {
  const decision = decideCancel(live.run, command.reason);
  if (decision !== "already" && "reject" in decision) return reject(ctx, request, decision, live);
  if (decision !== "already") ctx.append(live, decision, identity);
  respond(ctx, request, live, { kind: "done" });
}

function onTerminate(ctx: ShardContext, request: RequestId, identity: Identity, live: LiveRun, command: CommandOf<"terminate">): void {
  const decision = decideTerminate(live.run, command.reason);
  if ("reject" in decision) return reject(ctx, request, decision, live);
  closeRun(ctx, live, decision, identity);
  respond(ctx, request, live, { kind: "done" });
}

function onResume(ctx: ShardContext, request: RequestId, identity: Identity, live: LiveRun, command: CommandOf<"resume">): void {
  const decision = decideResume(live.run, command.bundle);
  if ("reject" in decision) return reject(ctx, request, decision, live);
  leaveWorker(ctx, live);
  ctx.append(live, decision, identity);
  respond(ctx, request, live, { kind: "resumed", bundle: live.run.bundle });
}

/** The client does not wait any more. */
export function onRequestGone(ctx: ShardContext, request: RequestId): void {
  const live = ctx.waiting.get(request);
  ctx.waiting.delete(request);
  if (live !== undefined) live.waiters = live.waiters.filter((w) => w.request !== request);
}
