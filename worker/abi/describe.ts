/** Operations in words, for a person who has to find out where code and history part. */
import { noBytes, toHex } from "#core/base";
import { type CommandInit, CommandKind, CompensationTrigger, type FailureInit, type PayloadInit } from "#proto";
import { cancelText, spawnText } from "./child.ts";
import type { RecordedOp } from "./history.ts";

const excerptChars = 80;
/** What is shown of equal text in front of the first difference. */
const leadChars = 20;
const decoder = new TextDecoder();

export function describeRecorded(op: RecordedOp, other: CommandInit | undefined): string {
  switch (op.kind) {
    case "activity":
      return activity(op.name, payload(op.input, other?.kind === CommandKind.activity ? other.payload : undefined));
    case "timer":
      return `a sleep of ${op.durationMs} ms`;
    case "await-signal":
      return `a wait for signal ${JSON.stringify(op.name)}`;
    case "send-signal":
      return sent(op.name, op.to, payload(op.payload, other?.kind === CommandKind.sendSignal ? other.payload : undefined));
    case "spawn":
      return spawnText(op, payload(op.input, other?.kind === CommandKind.spawn ? other.payload : undefined));
    case "cancel-run":
      return cancelText(op.to, op.reason);
    case "yield-chunk":
      return chunk(payload(op.chunk, other?.kind === CommandKind.yieldChunk ? other.payload : undefined));
    case "send-channel":
      return published(op.to, payload(op.payload, other?.kind === CommandKind.sendChannel ? other.payload : undefined));
    case "read-channel":
      return read(op);
    case "await-result":
      return `a wait for the result of ${op.to}`;
    case "call-method":
      return called(op, payload(op.input, other?.kind === CommandKind.callMethod ? other.payload : undefined));
    case "answer-call":
      return answer(op.call, op.failure, payload(op.result, other?.kind === CommandKind.answerCall ? other.payload : undefined));
    case "set-searchable":
      return made(op.name, op.value);
    case "cancel-op":
      return `the withdrawal of operation ${op.op}`;
    case "compensate":
      return compensation(op.name, op.trigger, payload(op.input, other?.kind === CommandKind.compensate ? other.payload : undefined));
    case "withdraw-compensation":
      return `the withdrawal of compensation ${op.op}`;
    case "complete":
      return `the run's end with result ${payload(op.result, other?.kind === CommandKind.complete ? other.payload : undefined)}`;
    case "fail":
      return failed(op.failure);
    case "cancelled":
      return "the run's end by cancellation";
  }
}

export function describeCommand(command: CommandInit, other: RecordedOp): string {
  switch (command.kind) {
    case CommandKind.activity:
      return activity(command.name ?? "", payload(command.payload, other.kind === "activity" ? other.input : undefined));
    case CommandKind.timer:
      return `a sleep of ${command.durationMs ?? 0} ms`;
    case CommandKind.awaitSignal:
      return `a wait for signal ${JSON.stringify(command.name ?? "")}`;
    case CommandKind.sendSignal:
      return sent(command.name ?? "", command.to ?? "", payload(command.payload, other.kind === "send-signal" ? other.payload : undefined));
    case CommandKind.spawn: {
      const { to = "", name = "", start, closePolicy = 0 } = command;
      const spawn = { to, type: name, contention: start?.contention ?? "", closePolicy };
      return spawnText(spawn, payload(command.payload, other.kind === "spawn" ? other.input : undefined));
    }
    case CommandKind.cancelRun:
      return cancelText(command.to ?? "", command.reason ?? "");
    case CommandKind.yieldChunk:
      return chunk(payload(command.payload, other.kind === "yield-chunk" ? other.chunk : undefined));
    case CommandKind.sendChannel:
      return published(command.to ?? "", payload(command.payload, other.kind === "send-channel" ? other.payload : undefined));
    case CommandKind.readChannel:
      return read(command);
    case CommandKind.awaitResult:
      return `a wait for the result of ${command.to ?? ""}`;
    case CommandKind.callMethod:
      return called(command, payload(command.payload, other.kind === "call-method" ? other.input : undefined));
    case CommandKind.answerCall: {
      const result = payload(command.payload, other.kind === "answer-call" ? other.result : undefined);
      return answer(command.op ?? 0, command.failure, result);
    }
    case CommandKind.setSearchable:
      return made(command.name ?? "", command.searchable ?? "");
    case CommandKind.cancelOp:
      return `the withdrawal of operation ${command.op ?? 0}`;
    case CommandKind.compensate:
      return compensation(
        command.name ?? "",
        command.trigger ?? 0,
        payload(command.payload, other.kind === "compensate" ? other.input : undefined),
      );
    case CommandKind.withdrawCompensation:
      return `the withdrawal of compensation ${command.op ?? 0}`;
    case CommandKind.complete:
      return `the run's end with result ${payload(command.payload, other.kind === "complete" ? other.result : undefined)}`;
    case CommandKind.fail:
      return failed(command.failure);
    case CommandKind.cancelled:
      return "the run's end by cancellation";
    default:
      return `an operation of the unknown kind ${command.kind ?? 0}`;
  }
}

const activity = (name: string, input: string) => `activity ${JSON.stringify(name)} with input ${input}`;
const chunk = (value: string) => `a chunk ${value}`;
const published = (to: string, value: string) => `a message ${value} for channel ${to}`;
const read = ({ to = "", messagesMax = 0, lingerMs = 0 }: Pick<CommandInit, "to" | "messagesMax" | "lingerMs">) =>
  `a read of channel ${to}, of ${messagesMax === 0 ? "all that is there" : `${messagesMax} messages`}, lingering ${lingerMs} ms`;
const made = (name: string, value: string) => `the searchable ${JSON.stringify(name)} with value ${clip(value, 0)}`;
const compensation = (name: string, trigger: number, input: string) =>
  `compensation ${JSON.stringify(name)} ${trigger === CompensationTrigger.always ? "always" : "on failure"} with input ${input}`;
const sent = (name: string, to: string, value: string) => `signal ${JSON.stringify(name)} to ${to} with payload ${value}`;
const called = ({ name, to, propagates }: Pick<CommandInit, "name" | "to" | "propagates">, input: string) =>
  `a call of method ${JSON.stringify(name ?? "")} of ${to ?? ""} with input ${input}${propagates === true ? ", cancelled with it" : ""}`;
const answer = (call: number, failure: FailureInit | undefined, result: string) =>
  `the answer to method call ${call} with ${failure === undefined ? `result ${result}` : `${failure.type ?? "Error"}: ${clip(failure.message ?? "", 0)}`}`;
const failed = (failure: FailureInit | undefined) =>
  `the run's failure with ${failure?.type ?? "Error"}: ${clip(failure?.message ?? "", 0)}`;

/** The payload, or the part of it where it begins to differ from `other`. */
function payload(own: PayloadInit | undefined, other: PayloadInit | undefined): string {
  const ref = own?.ref;
  if (ref !== undefined) return `of ${ref.size ?? 0} bytes (SHA-256 ${toHex(ref.sha256 ?? noBytes).slice(0, 12)})`;
  const data = own?.data ?? noBytes;
  if (data.length === 0) return "of no bytes";
  const text = decoder.decode(data);
  const against = other?.ref === undefined && other?.data !== undefined ? decoder.decode(other.data) : "";
  return clip(text, against === "" ? 0 : firstDifference(text, against));
}

function firstDifference(a: string, b: string): number {
  let at = 0;
  while (at < a.length && a[at] === b[at]) at++;
  return at;
}

/** At most `excerptChars` of `text`, with what is at `at` among them. */
function clip(text: string, at: number): string {
  if (text.length <= excerptChars) return text;
  const from = Math.max(0, Math.min(at - leadChars, text.length - excerptChars));
  const to = from + excerptChars;
  return `${from > 0 ? "…" : ""}${text.slice(from, to)}${to < text.length ? "…" : ""}`;
}
