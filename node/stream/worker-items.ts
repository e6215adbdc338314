/**
 * What a worker sends, made fit for Core: bounded, with large payloads in storage.
 *
 * A worker's item is never refused as a whole, because the run or task behind it waits for it:
 * what can't be taken becomes a failure that says why, for the run's code or for an operator.
 */
import { type HopError, limits, nameProblem, parseRunId, utf8Bytes } from "#core/base";
import { isRemote, knownKinds } from "#core/shard";
import type { Activated, Command, Failure, Payload, TaskDone, WorkerItem } from "#proto";
import { ActivatedStatus, CommandKind, CompensationTrigger } from "#proto";
import { spawnProblem } from "./spawn-problem.ts";

/** Payloads of an item that may be recorded, in any order. Failures are bounded on the way. */
export function recordedPayloads(item: WorkerItem): (Payload | undefined)[] {
  switch (item.kind) {
    case "activated":
      return item.value.commands.flatMap((command) => [command.payload, ...failurePayloads(command.failure)]);
    case "taskDone":
      return [item.value.result, ...failurePayloads(item.value.failure)];
    case "heartbeat":
      return [item.value.details];
    default:
      return [];
  }
}

function failurePayloads(failure: Failure | undefined): (Payload | undefined)[] {
  const out: (Payload | undefined)[] = [];
  let depth = 0;
  for (let at = failure; at !== undefined; at = at.cause) {
    at.type = clip(at.type, limits.nameBytesMax);
    at.message = clip(at.message, limits.failureBytesMax);
    at.stack = clip(at.stack, limits.failureBytesMax);
    out.push(at.details);
    if (++depth >= limits.failureDepthMax) at.cause = undefined;
  }
  return out;
}

/** What is wrong with an activation's commands, or undefined. */
export function activatedProblem(message: Activated): string | undefined {
  let bytes = 0;
  for (const command of message.commands) {
    const problem = commandProblem(command);
    if (problem !== undefined) return `Operation ${command.op} ${problem}`;
    bytes += command.payload?.data.length ?? 0;
  }
  if (bytes > limits.activationBytesMax)
    return `The commands of one activation hold ${bytes} bytes, want at most ${limits.activationBytesMax}`;
  return undefined;
}

const named: ReadonlySet<number> = new Set([
  CommandKind.activity,
  CommandKind.awaitSignal,
  CommandKind.sendSignal,
  CommandKind.spawn,
  CommandKind.compensate,
  CommandKind.callMethod,
]);

function commandProblem(command: Command): string | undefined {
  if (!knownKinds.has(command.kind)) return `is of kind ${command.kind}, which this version does not know`;
  const isNamed = named.has(command.kind);
  const name = isNamed ? nameProblem(command.name) : undefined;
  if (name !== undefined) return `has a name that ${name}`;
  const address = isRemote(command.kind) ? parseRunId(command.to) : "";
  if (typeof address !== "string") return `is about a run whose address ${address.problem}`;
  if (utf8Bytes(command.reason) > limits.textBytesMax) return `gives a reason of more than ${limits.textBytesMax} bytes`;
  const spawn = command.kind === CommandKind.spawn ? spawnProblem(command) : undefined;
  if (spawn !== undefined) return spawn;
  const isKnown = command.trigger <= CompensationTrigger.always;
  if (!isKnown) return `is a compensation with trigger ${command.trigger}, which this version does not know`;
  const { options, durationMs } = command;
  if (utf8Bytes(options?.idempotencyKey ?? "") > limits.activityKeyBytesMax)
    return `has an idempotency key of more than ${limits.activityKeyBytesMax} bytes`;
  const times = [durationMs, options?.startToCloseMs, options?.scheduleToCloseMs, options?.heartbeatMs, options?.retry?.initialMs];
  const over = times.find((ms) => (ms ?? 0) > limits.timerMsMax);
  return over === undefined ? undefined : `takes ${over} ms, want at most ${limits.timerMsMax} ms (100 years)`;
}

/** The item that takes the place of one whose payloads could not be admitted. */
export function refusedItem(item: WorkerItem, error: HopError): WorkerItem | undefined {
  if (item.kind === "taskDone") return { kind: "taskDone", value: refusedTask(item.value, error) };
  if (item.kind === "activated") return { kind: "activated", value: refusedActivation(item.value, error) };
  // Progress that can't be kept is dropped; that the task lives is told all the same.
  if (item.kind === "heartbeat") return { kind: "heartbeat", value: { token: item.value.token, details: undefined } };
  return item;
}

/** Only what can get better by itself is worth another attempt. */
function isPermanent(error: HopError): boolean {
  return error.reason === "PAYLOAD_TOO_LARGE" || error.reason === "BAD_REQUEST" || error.reason === "HASH_MISMATCH";
}

function failureOf(error: HopError): Failure {
  // The same mistake found in the guest or in a worker has this name there.
  const type = error.reason === "PAYLOAD_TOO_LARGE" ? "PayloadTooLargeError" : error.reason;
  return { type, message: error.message, stack: "", details: undefined, nonRetryable: isPermanent(error), cause: undefined };
}

function refusedTask(done: TaskDone, error: HopError): TaskDone {
  return { token: done.token, result: undefined, failure: failureOf(error) };
}

function refusedActivation(message: Activated, error: HopError): Activated {
  if (!isPermanent(error)) return { ...message, status: ActivatedStatus.retry, commands: [], problem: error.message };
  const last = message.commands.at(-1);
  // A result that is too large ends the run with a failure; other commands stop it for an operator.
  if (last !== undefined && last.kind === CommandKind.complete && message.commands.slice(0, -1).every(isAdmitted)) {
    const failed: Command = { ...last, kind: CommandKind.fail, payload: undefined, failure: failureOf(error) };
    return { ...message, commands: [...message.commands.slice(0, -1), failed] };
  }
  return brokenActivation(message, error.message, ActivatedStatus.limit);
}

const isAdmitted = ({ payload, failure }: Command) => fits(payload) && fits(failure?.details);
const fits = (payload: Payload | undefined) => payload === undefined || payload.data.length <= limits.inlineBytesMax;

/** An activation that did something Core can't record. */
export function brokenActivation(message: Activated, problem: string, status: ActivatedStatus = ActivatedStatus.broken): Activated {
  return { ...message, status, commands: [], problem };
}

function clip(text: string, bytesMax: number): string {
  // A code unit is at most three bytes.
  if (text.length * 3 <= bytesMax || utf8Bytes(text) <= bytesMax) return text;
  const bytes = new TextEncoder().encode(text).subarray(0, bytesMax - 3);
  return `${new TextDecoder().decode(bytes).replace(/\ufffd$/, "")}…`;
}
