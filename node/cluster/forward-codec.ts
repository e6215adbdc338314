/**
 * Commands and replies as they travel between nodes, to Core's own forms and back.
 *
 * What arrives was validated where the client asked; here it is only read, so a version that
 * knows a newer kind is refused by name and never misread.
 */
import type { Reason, Rejection, Reply, RunAddress, RunId, Started } from "#core/base";
import { addressText, asSeq, HopError, instanceOf, namespaceOf, parseAddress, reasons, unreachable } from "#core/base";
import { contentions } from "#core/run";
import { type Command, type LetterCommand, ticketOf } from "#core/shard";
import type {
  ChannelCommandInit,
  ErrorDetail,
  ForwardedCommand,
  ForwardedCommandInit,
  ForwardedReply,
  ForwardedReplyInit,
  Identity,
  ScheduleCommandInit,
  StartReply,
  StartRequest,
} from "#proto";
import { toDetail } from "../service/status.ts";

/** Where a command goes, and who asks. */
export interface Envelope {
  readonly identity: Identity;
  readonly shard: number;
  readonly epoch: number;
}

export function forwardedOf(envelope: Envelope, command: Command): ForwardedCommandInit {
  if (command.kind === "start") {
    const { run, kind, budgetMs: requestBudgetMs, ...rest } = command;
    return { ...envelope, kind, value: { ...rest, requestBudgetMs, namespace: namespaceOf(run), instance: instanceOf(run) } };
  }
  if (command.kind === "schedule") return { ...envelope, kind: "schedule", value: command.ask as ScheduleCommandInit };
  if (command.kind === "channel") return { ...envelope, kind: "channel", value: command.ask as ChannelCommandInit };
  const run = addressText({ run: command.run, ticket: ticketOf(command) });
  switch (command.kind) {
    case "signal":
      return { ...envelope, kind: "signal", value: { run, name: command.name, payload: command.payload, id: command.id } };
    case "query":
      return { ...envelope, kind: "query", value: { run, name: command.name, input: command.input } };
    case "call":
      return { ...envelope, kind: "call", value: { run, name: command.name, input: command.input, id: command.id } };
    case "await-result":
      return { ...envelope, kind: "await", value: { run, generation: command.generation } };
    case "consume":
      return { ...envelope, kind: "consume", value: { run, generation: command.generation } };
    case "cancel":
    case "terminate":
    case "pause":
    case "unpause":
      return { ...envelope, kind: command.kind, value: { run, reason: command.reason } };
    case "resume":
      return { ...envelope, kind: "resume", value: { run, bundle: command.bundle } };
    case "replay-letter":
      return { ...envelope, kind: "replayDeadLetter", value: { letter: letterText(command) } };
    case "drop-letter":
      return { ...envelope, kind: "dropDeadLetter", value: { letter: letterText(command), reason: command.reason } };
    default:
      return unreachable(command);
  }
}

/** A dead letter is named as a queued start is: by the sequence of an event of its run's name. */
const letterText = ({ run, letter }: LetterCommand) => addressText({ run, ticket: letter });

function letterOf(text: string): Pick<LetterCommand, "run" | "letter"> {
  const { run, ticket: letter } = addressOf(text);
  return { run, letter };
}

function addressOf(text: string): RunAddress {
  const address = parseAddress(text);
  if ("run" in address) return address;
  throw new HopError("BAD_REQUEST", `Cannot take a forwarded command: its run ${address.problem}`);
}

function startOf(message: StartRequest): Command {
  const { namespace, instance, type, bundle, input, idempotencyKey, deadlineMs, awaitResult, requestBudgetMs, overrideReason, signal } =
    message;
  const { run } = addressOf(`${namespace}:${instance}`);
  const contention = contentions.find((one) => one === message.contention);
  if (contention === undefined) {
    throw new HopError(
      "BAD_REQUEST",
      `Cannot take a forwarded start of ${run}: this version does not know contention "${message.contention}"`,
    );
  }
  const how = { contention, budgetMs: requestBudgetMs, overrideReason, signal };
  return { kind: "start", run, type, bundle, input, idempotencyKey, deadlineMs, awaitResult, ...how };
}

/** Throws `HopError` BAD_REQUEST for what is no command of this version. */
export function commandOf(message: ForwardedCommand): Command {
  switch (message.kind) {
    case "start":
      return startOf(message.value);
    case "signal": {
      const { run, name, payload, id } = message.value;
      return { kind: "signal", ...addressOf(run), name, payload, id };
    }
    case "query":
      return { kind: "query", ...addressOf(message.value.run), name: message.value.name, input: message.value.input };
    case "call": {
      const { run, name, input, id } = message.value;
      return { kind: "call", ...addressOf(run), name, input, id };
    }
    case "await":
      return { kind: "await-result", ...addressOf(message.value.run), generation: message.value.generation };
    case "consume":
      return { kind: "consume", run: addressOf(message.value.run).run, generation: message.value.generation };
    case "cancel":
    case "terminate":
    case "pause":
    case "unpause":
      return { kind: message.kind, ...addressOf(message.value.run), reason: message.value.reason };
    case "resume":
      return { kind: "resume", ...addressOf(message.value.run), bundle: message.value.bundle };
    case "schedule":
      return { kind: "schedule", run: addressOf(message.value.schedule).run, ask: message.value };
    case "channel":
      return { kind: "channel", run: addressOf(message.value.channel).run, ask: message.value };
    case "replayDeadLetter":
      return { kind: "replay-letter", ...letterOf(message.value.letter) };
    case "dropDeadLetter":
      return { kind: "drop-letter", ...letterOf(message.value.letter), reason: message.value.reason };
    case "unknown":
      throw new HopError("BAD_REQUEST", "Cannot take a forwarded command: this version does not know its kind");
    default:
      return unreachable(message);
  }
}

/** Who leads a shard, as another node knows it. */
export interface LeaderHint {
  /** 0 = not known. */
  readonly leader: number;
  readonly leaseEpoch: number;
}

export function forwardedReplyOf(reply: Reply, hint: () => LeaderHint): ForwardedReplyInit {
  switch (reply.kind) {
    case "started": {
      const { run, generation, attached, ticket, place, outcome } = reply;
      return { kind: "start", value: { run, generation, attached, ticket, place, outcome } };
    }
    case "signalled":
      return { kind: "signal", value: { seq: reply.seq } };
    case "outcome":
      return { kind: "outcome", value: { outcome: reply.outcome, generation: reply.generation } };
    case "queried":
      return { kind: "query", value: { result: reply.result } };
    case "called": {
      const { result, failure, rejected, seq } = reply;
      return { kind: "called", value: { result, failure, rejected, seq } };
    }
    case "resumed":
      return { kind: "resumed", value: { bundle: reply.bundle } };
    case "scheduled":
      return { kind: "scheduled", value: reply.answer };
    case "channelled":
      return { kind: "channelled", value: reply.answer };
    case "done":
      return { kind: "done", value: {} };
    case "rejected":
      return { kind: "refused", value: { error: toDetail(reply.rejection), ...hint(), started: reply.started } };
    case "enveloped":
      throw new HopError("INTERNAL", "Cannot forward a reply: it answers an envelope, not a command");
    default:
      return unreachable(reply);
  }
}

export function rejectionOf(detail: ErrorDetail | undefined): Rejection {
  if (detail === undefined || !(detail.reason in reasons)) {
    return { reject: "INTERNAL", message: detail?.message ?? "Another node refused the command without a reason" };
  }
  const { reason, message, retryAfterMs, epoch } = detail;
  return { reject: reason as Reason, message, retryAfterMs, epoch };
}

function startedOf({ run, generation, attached, ticket }: StartReply): Started {
  return { run: run as RunId, generation, attached, ...(ticket > 0 ? { ticket } : {}) };
}

/** What another node answered, with what it knows of the leader where it refused. */
export function replyOf(message: ForwardedReply): { readonly reply: Reply; readonly hint?: LeaderHint } {
  switch (message.kind) {
    case "start": {
      const { place, outcome } = message.value;
      const started = { kind: "started", ...startedOf(message.value), ...(place > 0 ? { place } : {}) } as const;
      return { reply: outcome === undefined ? started : { ...started, outcome } };
    }
    case "signal":
      return { reply: { kind: "signalled", seq: asSeq(message.value.seq) } };
    case "outcome": {
      const { outcome, generation } = message.value;
      if (outcome === undefined) return { reply: refused("Another node answered a wait without an outcome") };
      return { reply: { kind: "outcome", outcome, generation } };
    }
    case "query":
      return { reply: { kind: "queried", result: message.value.result } };
    case "called": {
      const { result, failure, rejected, seq } = message.value;
      return { reply: { kind: "called", result, failure, rejected, seq: asSeq(seq) } };
    }
    case "resumed":
      return { reply: { kind: "resumed", bundle: message.value.bundle } };
    case "scheduled":
      return { reply: { kind: "scheduled", answer: message.value } };
    case "channelled":
      return { reply: { kind: "channelled", answer: message.value } };
    case "done":
      return { reply: { kind: "done" } };
    case "refused": {
      const { error, leader, leaseEpoch, started } = message.value;
      const hint = { leader, leaseEpoch };
      const rejected = { kind: "rejected", rejection: rejectionOf(error) } as const;
      if (started === undefined) return { reply: rejected, hint };
      return { reply: { ...rejected, started: startedOf(started) }, hint };
    }
    case "unknown":
      return { reply: refused("Another node answered in a way that this version does not know") };
    default:
      return unreachable(message);
  }
}

const refused = (message: string): Reply => ({ kind: "rejected", rejection: { reject: "INTERNAL", message } });
