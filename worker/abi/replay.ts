/**
 * Holds what a guest asks for, while it is rebuilt, against what its history says it asked for.
 *
 * Operations must agree in order, kind, name and arguments. Withdrawals are looked at leniently:
 * they are recorded only where the operation was still open. What lies beyond the recorded
 * operations is new, and is what the run goes on with.
 */
import { createHash } from "node:crypto";
import { bytesEqual, noBytes } from "#core/base";
import { type CommandInit, CommandKind, type FailureInit, type PayloadInit } from "#proto";
import { spawnsSame } from "./child.ts";
import { describeCommand, describeRecorded } from "./describe.ts";
import type { RecordedOp } from "./history.ts";

type Asked = Exclude<RecordedOp, { readonly kind: "cancel-op" }>;

export class ReplayCheck {
  /** What the guest asked for beyond its history, in order. */
  readonly fresh: CommandInit[] = [];
  private readonly asked: Asked[];
  private readonly withdrawn = new Set<number>();
  private readonly bundle: string;
  private next = 0;

  /** `bundle` is the hex SHA-256 of the code, for the report. */
  constructor(recorded: readonly RecordedOp[], bundle: string) {
    this.asked = recorded.filter((op): op is Asked => op.kind !== "cancel-op");
    for (const op of recorded) if (op.kind === "cancel-op") this.withdrawn.add(op.op);
    this.bundle = bundle;
  }

  /** Takes the guest's next commands. Returns what is wrong, for a person to read, or undefined. */
  take(commands: readonly CommandInit[]): string | undefined {
    for (const command of commands) {
      const problem = command.kind === CommandKind.cancelOp ? this.withdraw(command) : this.match(command);
      if (problem !== undefined) return problem;
    }
    return undefined;
  }

  /** To be called when the whole history was delivered: nothing recorded may be left over. */
  finish(): string | undefined {
    const left = this.asked[this.next];
    // A run's end may be Core's own decision, which its code knows nothing of.
    if (left === undefined || isEnd(left)) return undefined;
    return this.problem(left, undefined);
  }

  private withdraw(command: CommandInit): undefined {
    if (!this.withdrawn.delete(command.op ?? 0)) this.fresh.push(command);
  }

  private match(command: CommandInit): string | undefined {
    const recorded = this.asked[this.next];
    if (recorded === undefined) {
      this.fresh.push(command);
      return undefined;
    }
    this.next++;
    return agree(recorded, command) ? undefined : this.problem(recorded, command);
  }

  private problem(recorded: Asked, command: CommandInit | undefined): string {
    const had = describeRecorded(recorded, command);
    const got = command === undefined ? "asked for nothing more" : `asked for ${describeCommand(command, recorded)}`;
    return (
      `${partOf(recorded, command)} diverged: history (event ${recorded.seq}) has ${had}, the code ${got} (bundle ${this.bundle.slice(0, 12)}). ` +
      "Deploy code that asks for the recorded operations in their order and retry the run on it, or retry it on the bundle it ran on"
    );
  }
}

function isEnd(op: Asked): boolean {
  return op.kind === "complete" || op.kind === "fail" || op.kind === "cancelled";
}

/** What diverged. An answer has the number of its call, and none of an operation. */
function partOf(recorded: Asked, command: CommandInit | undefined): string {
  if (recorded.kind === "answer-call") return `The answer to method call ${recorded.call}`;
  if ("op" in recorded) return `Operation ${recorded.op}`;
  const op = command?.kind === CommandKind.answerCall ? 0 : (command?.op ?? 0);
  return op > 0 ? `Operation ${op}` : "The end of the run";
}

function agree(recorded: Asked, command: CommandInit): boolean {
  switch (recorded.kind) {
    case "activity":
      return (
        isOf(command, CommandKind.activity, recorded) && command.name === recorded.name && samePayload(recorded.input, command.payload)
      );
    case "timer":
      return isOf(command, CommandKind.timer, recorded) && (command.durationMs ?? 0) === recorded.durationMs;
    case "await-signal":
      return isOf(command, CommandKind.awaitSignal, recorded) && command.name === recorded.name;
    case "send-signal":
      return (
        isOf(command, CommandKind.sendSignal, recorded) &&
        command.to === recorded.to &&
        (command.child ?? 0) === recorded.child &&
        command.name === recorded.name &&
        samePayload(recorded.payload, command.payload)
      );
    case "spawn":
      return spawnsSame(recorded, command) && samePayload(recorded.input, command.payload);
    case "cancel-run":
      return isOf(command, CommandKind.cancelRun, recorded) && command.to === recorded.to && (command.child ?? 0) === recorded.child;
    case "set-searchable":
      return isOf(command, CommandKind.setSearchable, recorded) && command.name === recorded.name && recorded.value === command.searchable;
    case "yield-chunk":
      return isOf(command, CommandKind.yieldChunk, recorded) && samePayload(recorded.chunk, command.payload);
    case "send-channel":
      return (
        isOf(command, CommandKind.sendChannel, recorded) && command.to === recorded.to && samePayload(recorded.payload, command.payload)
      );
    case "read-channel":
      return (
        isOf(command, CommandKind.readChannel, recorded) &&
        command.to === recorded.to &&
        (command.messagesMax ?? 0) === recorded.messagesMax &&
        (command.lingerMs ?? 0) === recorded.lingerMs
      );
    case "await-result":
      return isOf(command, CommandKind.awaitResult, recorded) && command.to === recorded.to;
    case "call-method":
      return (
        isOf(command, CommandKind.callMethod, recorded) &&
        command.to === recorded.to &&
        command.name === recorded.name &&
        (command.propagates ?? false) === recorded.propagates &&
        samePayload(recorded.input, command.payload)
      );
    case "answer-call":
      return (
        command.kind === CommandKind.answerCall &&
        command.op === recorded.call &&
        (command.rejected ?? false) === recorded.rejected &&
        (recorded.failure === undefined
          ? command.failure === undefined && samePayload(recorded.result, command.payload)
          : sameFailure(recorded.failure, command.failure))
      );
    case "compensate":
      return sameCompensation(recorded, command);
    case "withdraw-compensation":
      return isOf(command, CommandKind.withdrawCompensation, recorded);
    case "complete":
      return command.kind === CommandKind.complete && samePayload(recorded.result, command.payload);
    case "fail":
      return command.kind === CommandKind.fail && sameFailure(recorded.failure, command.failure);
    case "cancelled":
      return command.kind === CommandKind.cancelled;
  }
}

/** Whether the command is the operation of that kind and number. */
const isOf = (command: CommandInit, kind: CommandKind, recorded: { readonly op: number }): boolean =>
  command.kind === kind && command.op === recorded.op;

/** Stacks name places in code, which may have moved. */
function sameFailure(recorded: FailureInit | undefined, failure: FailureInit | undefined): boolean {
  return (failure?.type ?? "") === (recorded?.type ?? "") && (failure?.message ?? "") === (recorded?.message ?? "");
}

function sameCompensation(recorded: Extract<Asked, { kind: "compensate" }>, { kind, op, name, trigger, payload }: CommandInit): boolean {
  const isSame = kind === CommandKind.compensate && op === recorded.op && name === recorded.name;
  return isSame && (trigger ?? 0) === recorded.trigger && samePayload(recorded.input, payload);
}

/** Large payloads are recorded by their hash. */
function samePayload(recorded: PayloadInit | undefined, payload: PayloadInit | undefined): boolean {
  const data = payload?.data ?? noBytes;
  const ref = recorded?.ref;
  if (ref === undefined) return bytesEqual(recorded?.data ?? noBytes, data);
  if ((ref.size ?? 0) !== data.length) return false;
  return bytesEqual(ref.sha256 ?? noBytes, createHash("sha256").update(data).digest());
}
