/** Why a message to another run was refused, as the code of the run that sent it is told. */
import { limits, type Rejection } from "#core/base";
import { type Failure, MessageKind } from "#proto";
import { failureOf } from "./failure.ts";

/** `reason` is the name of a reason; one that only a later version knows is told as it is. */
export function refusalFailure(kind: MessageKind, to: string, reason: string): Failure {
  const [type, why] = texts[reason] ?? [reason, `it was refused: ${reason}`];
  const full = reason === "BUFFER_FULL" ? fullTexts[kind] : reason === "BAD_REQUEST" ? badTexts[kind] : undefined;
  return failureOf(type, `Cannot ${verbs[kind] ?? "reach"} ${to}: ${full ?? why}`, { nonRetryable: true });
}

const verbs: Partial<Record<number, string>> = {
  [MessageKind.signal]: "signal",
  [MessageKind.wait]: "wait for",
  [MessageKind.call]: "call a method of",
  [MessageKind.start]: "start",
  [MessageKind.cancel]: "cancel",
  [MessageKind.terminate]: "terminate",
  [MessageKind.publish]: "send to channel",
  [MessageKind.read]: "read channel",
};

const fullTexts: Partial<Record<number, string>> = {
  [MessageKind.wait]: `${limits.awaitersMax} operations wait for it, and no more may`,
  [MessageKind.call]: `${limits.openCallsMax} calls have no answer yet, and no more may be open`,
  [MessageKind.read]: `${limits.channelReadersMax} runs read it, and no more may`,
  [MessageKind.start]: `${limits.queuedStartsMax} starts or ${limits.queuedBytesMax} bytes wait in its queue, and no more may`,
};

const badTexts: Partial<Record<number, string>> = {
  [MessageKind.publish]: "it reduces what it is sent, and this is no value that it can reduce",
};

const texts: Partial<Record<string, readonly [string, string]>> = {
  RUN_NOT_FOUND: ["RunNotFoundError", "there is no such run"],
  RUN_CLOSED: ["RunClosedError", "it has ended"],
  CHANNEL_CLOSED: ["ChannelClosedError", "it is closed"],
  RUN_QUEUED: ["RunQueuedError", "a start with that idempotency key waits in its queue"],
  INSTANCE_LIVE: ["InstanceLiveError", "a run of that name is live"],
  IDEMPOTENCY_CONFLICT: ["IdempotencyConflictError", "its idempotency key was used with another type or input"],
  WORKFLOW_NOT_DEPLOYED: ["WorkflowNotDeployedError", "no workflow of that type is deployed in its namespace"],
  BAD_REQUEST: ["BadRequestError", "it supersedes what is live, and gives no override reason"],
  BUFFER_FULL: ["LimitError", "too much waits for it, and no more may"],
} satisfies Partial<Record<Rejection["reject"], readonly [string, string]>>;
