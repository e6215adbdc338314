/** What clients ask for. */
import { asSeq, assert, limits, type Rejection, type RequestId, runPartition } from "#core/base";
import {
  decideCancel,
  decideHeldSignal,
  decideResume,
  decideSignal,
  decideStart,
  decideTerminate,
  findStart,
  isClosed,
  type SignalRequest,
  type Target,
} from "#core/run";
import type { Identity } from "#proto";
import { onCall } from "./calls.ts";
import { onChannel } from "./channels.ts";
import { beginStart, onOtherStart, verbs } from "./contention.ts";
import type { ShardContext } from "./context.ts";
import { onLetterCommand } from "./dead-letters.ts";
import { type Command, type CommandOf, partitionOfCommand } from "./input.ts";
import type { LiveRun } from "./live-run.ts";
import { closeRun, leaveWorker, ticketed } from "./outcome.ts";
import { onPause } from "./pause.ts";
import { askQuery } from "./queries.ts";
import { refuseBehind, reject, respond } from "./replies.ts";
import { onSchedule } from "./schedules.ts";
import { awaitResult, onConsume, wait } from "./waits.ts";

export function onCommand(ctx: ShardContext, request: RequestId, identity: Identity, command: Command): void {
  const partition = partitionOfCommand(command);
  if (ctx.isFrozen || !ctx.owns(partition)) return reject(ctx, request, ctx.elsewhere(partition));
  if (command.kind === "schedule") return onSchedule(ctx, request, identity, command);
  if (command.kind === "channel") return onChannel(ctx, request, identity, command);
  if (command.kind === "start") return onStart(ctx, request, identity, command);
  const live = ctx.find(partition);
  if (live === undefined) {
    return reject(ctx, request, { reject: "RUN_NOT_FOUND", message: `Cannot ${verbs[command.kind]} ${command.run}: there is no such run` });
  }
  if (command.kind === "replay-letter" || command.kind === "drop-letter") return onLetterCommand(ctx, request, identity, live, command);
  if (command.kind === "await-result") return awaitResult(ctx, request, live, command);
  if (command.kind === "consume") return onConsume(ctx, request, identity, live, command);
  const ticket = command.ticket ?? 0;
  if (ticket > 0 && ticket !== live.run.ticket) return onOtherStart(ctx, request, identity, live, command);
  switch (command.kind) {
    case "signal":
      return onSignal(ctx, request, identity, live, command);
    case "cancel":
      return onCancel(ctx, request, identity, live, command);
    case "terminate":
      return onTerminate(ctx, request, identity, live, command);
    case "pause":
    case "unpause":
      return onPause(ctx, request, identity, live, command);
    case "resume":
      return onResume(ctx, request, identity, live, command);
    case "call":
      return onCall(ctx, request, identity, live, command);
    case "query":
      return askQuery(ctx, live, { request, name: command.name, input: command.input, asked: 0, tries: 0 });
  }
}

function onStart(ctx: ShardContext, request: RequestId, identity: Identity, command: CommandOf<"start">): void {
  if (ctx.ready.size >= limits.readyTasksMax) {
    const message = `Cannot start ${command.run}: ${ctx.ready.size} tasks wait for a worker, at most ${limits.readyTasksMax} may`;
    return reject(ctx, request, { reject: "BUFFER_FULL", message, retryAfterMs: 1000 });
  }
  const live = ctx.findOrCreate(runPartition(command.run));
  const inputHash = ctx.inputHash(command);
  const decision = decideStart(live.run, command, inputHash);
  if ("reject" in decision) return reject(ctx, request, decision, live);
  if ("attach" in decision) {
    const { attach: generation, ticket } = decision;
    const refusal = signalStart(ctx, live, { generation, ticket }, command.signal, identity);
    if (refusal !== undefined) return reject(ctx, request, refusal, live);
    return answerStart(ctx, request, live, { generation: ticket > 0 ? 0 : generation, ticket }, command.awaitResult, true);
  }
  const ticket = beginStart(ctx, live, decision, { request: command, identity, inputHash });
  const refused = signalStart(ctx, live, { generation: 0, ticket }, command.signal, identity);
  assert(refused === undefined, `a start of ${live.id} that was just decided takes its signal`);
  answerStart(ctx, request, live, { generation: ticket > 0 ? 0 : live.run.generation, ticket }, command.awaitResult, false);
}

/** Gives a start its signal. One that has ended got it before: the start is the same start, sent again. */
function signalStart(
  ctx: ShardContext,
  live: LiveRun,
  target: Target,
  signal: SignalRequest | undefined,
  identity: Identity,
): Rejection | undefined {
  if (signal === undefined) return undefined;
  const found = findStart(live.run, target);
  if (found === undefined || found.kind === "ended" || (found.kind === "newest" && isClosed(live.run))) return undefined;
  const decision =
    found.kind === "queued"
      ? decideHeldSignal(live.run, found.contender, signal)
      : decideSignal(live.run, { ...signal, from: "", number: 0 });
  if (decision === "duplicate") return undefined;
  if ("reject" in decision) return decision;
  const behind = found.kind === "newest" ? refuseBehind(live, `signal ${live.id}`) : undefined;
  if (behind !== undefined) return behind;
  ctx.append(live, decision, identity);
  return undefined;
}

/** Tells who started what came of it: at once, or when its run has ended. */
function answerStart(ctx: ShardContext, request: RequestId, live: LiveRun, target: Target, awaitResult: boolean, attached: boolean): void {
  const { run } = live;
  const { ticket } = target;
  const found = findStart(run, target);
  if (awaitResult) return wait(ctx, live, { request, start: true, attached, ticket }, { target, found });
  const began = found?.kind === "newest" ? run.generation : found?.kind === "ended" ? found.ending.generation : target.generation;
  const place = found?.kind === "queued" ? { place: run.queue.indexOf(found.contender) + 1 } : {};
  respond(ctx, request, live, { kind: "started", run: live.id, generation: began, attached, ...ticketed(ticket), ...place });
}

function onSignal(ctx: ShardContext, request: RequestId, identity: Identity, live: LiveRun, command: CommandOf<"signal">): void {
  const behind = refuseBehind(live, `signal ${live.id}`);
  if (behind !== undefined) return reject(ctx, request, behind);
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
