/**
 * Calls of a run's methods by clients: an event, then the answer of its code, which is told to
 * whoever waits once it is durable.
 *
 * Who waits is not recorded. After a loss, a call that is sent again with its id finds the call
 * that was made, or the answer that it got meanwhile.
 */
import { asSeq, type Rejection, type RequestId } from "#core/base";
import { callText, decideAnswer, decideCall } from "#core/run";
import { type AnsweredCall, type Identity, type IdentityInit, type MethodAnswered, RunStatus } from "#proto";
import type { ShardContext } from "./context.ts";
import type { Command } from "./input.ts";
import type { LiveRun } from "./live-run.ts";
import { refuseBehind, refuseBlocked, reject, respond } from "./replies.ts";

type CallCommand = Extract<Command, { kind: "call" }>;

export function onCall(ctx: ShardContext, request: RequestId, identity: Identity, live: LiveRun, command: CallCommand): void {
  const { name } = command;
  const behind = refuseBehind(live, `call ${callText(live.run, name)}`);
  if (behind !== undefined) return reject(ctx, request, behind);
  const decision = decideCall(live.run, command);
  if ("reject" in decision) return reject(ctx, request, decision, live);
  if (decision.kind === "answered") return tellAgain(ctx, request, live, decision.answered);
  if (decision.kind === "open") return wait(ctx, request, live, decision.open.call);
  ctx.append(live, decision, identity);
  wait(ctx, request, live, live.run.lastCall);
}

function wait(ctx: ShardContext, request: RequestId, live: LiveRun, call: number): void {
  if (live.run.status === RunStatus.blocked) return reject(ctx, request, refuseBlocked(live), live);
  const callers = live.callers.get(call);
  if (callers === undefined) live.callers.set(call, [request]);
  else callers.push(request);
  ctx.waiting.set(request, live);
}

function tellAgain(ctx: ShardContext, request: RequestId, live: LiveRun, { name, seq, answer }: AnsweredCall): void {
  const doing = `Cannot call ${callText(live.run, name)}`;
  if (answer === undefined) {
    const message = `${doing}: this call was answered before; event ${seq} of its history has the answer, which is not kept elsewhere any more`;
    return reject(ctx, request, { reject: "ANSWER_NOT_KEPT", message }, live);
  }
  if (answer.call === 0) {
    return reject(ctx, request, { reject: "RUN_CLOSED", message: `${doing}: it ended with event ${seq}, before it answered` }, live);
  }
  respond(ctx, request, live, { kind: "called", seq: asSeq(seq), ...outcomeOf(answer) });
}

/** The run's code has answered one of its calls, which is open. */
export function answerCall(ctx: ShardContext, live: LiveRun, answer: MethodAnswered, identity: IdentityInit): void {
  const seq = asSeq(ctx.append(live, decideAnswer(answer), identity));
  const callers = live.callers.get(answer.call) ?? [];
  live.callers.delete(answer.call);
  for (const request of callers) {
    ctx.waiting.delete(request);
    respond(ctx, request, live, { kind: "called", seq, ...outcomeOf(answer) });
  }
}

const outcomeOf = ({ result, failure, rejected }: MethodAnswered) => ({ result, failure, rejected });

/** Nobody is told an answer now. */
export function refuseCallers(ctx: ShardContext, live: LiveRun, rejection: Rejection): void {
  for (const request of takeCallers(ctx, live)) reject(ctx, request, rejection, live);
}

/** Those who wait for an answer, who wait here no more. */
export function takeCallers(ctx: ShardContext, live: LiveRun): RequestId[] {
  const callers = [...live.callers.values()].flat();
  live.callers.clear();
  for (const request of callers) ctx.waiting.delete(request);
  return callers;
}

/** The client is gone. Its call goes on. */
export function forgetCaller(live: LiveRun, request: RequestId): void {
  for (const [call, callers] of live.callers) {
    const left = callers.filter((each) => each !== request);
    if (left.length > 0) live.callers.set(call, left);
    else live.callers.delete(call);
  }
}
