/** Records of the guest kernel, read into commands, log lines and answers. */

import { InvariantError } from "#core/base";
import type { ActivityOptionsInit, CommandInit, FailureInit } from "#proto";
import { CommandKind } from "#proto";
import type { QueryResult } from "../guest-host.ts";
import type { WireFailure, WireOptions, WireSpawn } from "./protocol.ts";
import { record } from "./protocol.ts";

const fieldByte = 0x1f;
const recordByte = 0x1e;
const encoder = new TextEncoder();

export interface Records {
  readonly commands: CommandInit[];
  readonly logs: { readonly level: string; readonly message: string }[];
  /** Why the code can't be run; undefined when it can. */
  broken: string | undefined;
  answer: QueryResult | undefined;
  /** A query made the run act: it must not be used any more. */
  spoiled: boolean;
}

/** Reads all records in `bytes`. Payloads in the result are views of it. */
export function readRecords(bytes: Buffer): Records {
  const records: Records = { commands: [], logs: [], broken: undefined, answer: undefined, spoiled: false };
  const cursor = new Cursor(bytes);
  while (cursor.more()) readRecord(cursor, records);
  return records;
}

function readRecord(cursor: Cursor, into: Records): void {
  const tag = cursor.text();
  switch (tag) {
    case record.activity: {
      const op = cursor.number();
      const name = cursor.text();
      const options = optionsOf(cursor.text());
      into.commands.push({ kind: CommandKind.activity, op, name, options, payload: cursor.payload() });
      break;
    }
    case record.timer:
      into.commands.push({ kind: CommandKind.timer, op: cursor.number(), durationMs: cursor.number() });
      break;
    case record.awaitSignal:
      into.commands.push({ kind: CommandKind.awaitSignal, op: cursor.number(), name: cursor.text() });
      break;
    case record.sendSignal: {
      const op = cursor.number();
      const to = cursor.text();
      into.commands.push({ kind: CommandKind.sendSignal, op, to, name: cursor.text(), payload: cursor.payload() });
      break;
    }
    case record.setSearchable:
      into.commands.push({ kind: CommandKind.setSearchable, op: cursor.number(), name: cursor.text(), searchable: cursor.text() });
      break;
    case record.yieldChunk:
      into.commands.push({ kind: CommandKind.yieldChunk, op: cursor.number(), payload: cursor.payload() });
      break;
    case record.awaitResult:
      into.commands.push({ kind: CommandKind.awaitResult, op: cursor.number(), to: cursor.text(), inCall: cursor.number() });
      break;
    case record.callMethod: {
      const op = cursor.number();
      const to = cursor.text();
      const name = cursor.text();
      const propagates = cursor.text() === "1";
      const inCall = cursor.number();
      into.commands.push({ kind: CommandKind.callMethod, op, to, name, propagates, inCall, payload: cursor.payload() });
      break;
    }
    case record.answerCall:
      into.commands.push({ kind: CommandKind.answerCall, op: cursor.number(), payload: cursor.payload() });
      break;
    case record.failCall: {
      const op = cursor.number();
      const failure = failureOf(cursor.json() as WireFailure);
      into.commands.push({ kind: CommandKind.answerCall, op, failure, rejected: cursor.text() === "1" });
      break;
    }
    case record.cancelOp:
      into.commands.push({ kind: CommandKind.cancelOp, op: cursor.number() });
      break;
    case record.complete:
      into.commands.push({ kind: CommandKind.complete, payload: cursor.payload() });
      break;
    case record.fail:
      into.commands.push({ kind: CommandKind.fail, failure: failureOf(cursor.json() as WireFailure) });
      break;
    case record.cancelled:
      into.commands.push({ kind: CommandKind.cancelled });
      break;
    case record.log:
      into.logs.push({ level: cursor.text(), message: cursor.json() as string });
      break;
    default:
      if (!readChild(tag, cursor, into) && !readUndo(tag, cursor, into) && !readUse(tag, cursor, into)) readAnswer(tag, cursor, into);
  }
  cursor.endRecord();
}

/** What is about another run as a child. */
function readChild(tag: string, cursor: Cursor, into: Records): boolean {
  switch (tag) {
    case record.spawn: {
      const op = cursor.number();
      const to = cursor.text();
      const name = cursor.text();
      const settings = spawnOf(cursor.json() as WireSpawn);
      into.commands.push({ kind: CommandKind.spawn, op, to, name, ...settings, payload: cursor.payload() });
      return true;
    }
    case record.cancelRun: {
      const [op, to, child] = [cursor.number(), cursor.text(), cursor.number()];
      into.commands.push({ kind: CommandKind.cancelRun, op, to, child, reason: cursor.json() as string });
      return true;
    }
    case record.signalChild: {
      const [op, to, child] = [cursor.number(), cursor.text(), cursor.number()];
      into.commands.push({ kind: CommandKind.sendSignal, op, to, child, name: cursor.text(), payload: cursor.payload() });
      return true;
    }
    default:
      return false;
  }
}

/** Whether it is a record about a channel. */
function readUse(tag: string, cursor: Cursor, into: Records): boolean {
  if (tag === record.sendChannel) {
    into.commands.push({ kind: CommandKind.sendChannel, op: cursor.number(), to: cursor.text(), payload: cursor.payload() });
    return true;
  }
  if (tag !== record.readChannel) return false;
  const [op, to, messagesMax, lingerMs] = [cursor.number(), cursor.text(), cursor.number(), cursor.number()];
  into.commands.push({ kind: CommandKind.readChannel, op, to, messagesMax, lingerMs });
  return true;
}

/** Whether it is a record about a compensation. */
function readUndo(tag: string, cursor: Cursor, into: Records): boolean {
  if (tag === record.compensate) into.commands.push(compensateOf(cursor));
  else if (tag === record.withdrawCompensation) into.commands.push({ kind: CommandKind.withdrawCompensation, op: cursor.number() });
  else return false;
  return true;
}

function compensateOf(cursor: Cursor): CommandInit {
  const op = cursor.number();
  const name = cursor.text();
  const trigger = cursor.number();
  const options = optionsOf(cursor.text());
  return { kind: CommandKind.compensate, op, name, trigger, options, payload: cursor.payload() };
}

function readAnswer(tag: string, cursor: Cursor, into: Records): void {
  switch (tag) {
    case record.broken:
      into.broken = cursor.json() as string;
      break;
    case record.answer:
      into.answer = { kind: "ok", value: cursor.bytes() };
      break;
    case record.answerFailed:
      into.answer = { kind: "failed", failure: failureOf(cursor.json() as WireFailure) };
      break;
    case record.answerMissing:
      into.answer = { kind: "not-found", declared: cursor.json() as string[] };
      break;
    case record.spoiled:
      into.spoiled = true;
      break;
    default:
      throw new InvariantError(`The guest kernel sent a record of unknown kind ${JSON.stringify(tag)}`);
  }
}

/** Walks over fields, which end in one of the two separators. */
class Cursor {
  readonly #bytes: Buffer;
  #at = 0;

  constructor(bytes: Buffer) {
    this.#bytes = bytes;
  }

  more(): boolean {
    return this.#at < this.#bytes.length;
  }

  /** The next field, without what ends it. */
  bytes(): Buffer {
    const begin = this.#skipSeparator();
    let end = begin;
    const bytes = this.#bytes;
    while (end < bytes.length && bytes[end] !== fieldByte && bytes[end] !== recordByte) {
      // A long payload is searched natively.
      if (end - begin === 64) {
        end = this.#find(end);
        break;
      }
      end++;
    }
    this.#at = end;
    return bytes.subarray(begin, end);
  }

  text(): string {
    return this.bytes().toString("utf8");
  }

  number(): number {
    return Number(this.text());
  }

  json(): unknown {
    return JSON.parse(this.text());
  }

  payload(): { data: Uint8Array } {
    return { data: this.bytes() };
  }

  endRecord(): void {
    if (this.#bytes[this.#at] !== recordByte) throw new InvariantError("The guest kernel sent a record with too many fields");
    this.#at++;
  }

  #skipSeparator(): number {
    return this.#bytes[this.#at] === fieldByte ? this.#at + 1 : this.#at;
  }

  #find(from: number): number {
    const end = this.#bytes.indexOf(recordByte, from);
    const recordEnd = end < 0 ? this.#bytes.length : end;
    const field = this.#bytes.subarray(from, recordEnd).indexOf(fieldByte);
    return field < 0 ? recordEnd : from + field;
  }
}

const knownOptions = new Map<string, ActivityOptionsInit>();
const knownOptionsMax = 256;

/** Most calls share a few sets of options: each is read once. */
function optionsOf(text: string): ActivityOptionsInit {
  const known = knownOptions.get(text);
  if (known !== undefined) return known;
  const [attemptsMax, initialMs, intervalMsMax, backoffMilli, jitterMilli, start, schedule, heartbeatMs, nonRetryable, idempotencyKey] =
    JSON.parse(text) as WireOptions;
  const options: ActivityOptionsInit = {
    retry: { attemptsMax, initialMs, intervalMsMax, backoffMilli, jitterMilli, nonRetryable: [...nonRetryable] },
    startToCloseMs: start,
    scheduleToCloseMs: schedule,
    heartbeatMs,
    idempotencyKey,
  };
  if (idempotencyKey === "" && knownOptions.size < knownOptionsMax) knownOptions.set(text, options);
  return options;
}

function spawnOf(wire: WireSpawn): Pick<CommandInit, "start" | "closePolicy" | "ownCode"> {
  const [contention, overrideReason, idempotencyKey, deadlineMs, budgetMs, closePolicy, ownCode] = wire;
  return { start: { contention, overrideReason, idempotencyKey, deadlineMs, budgetMs }, closePolicy, ownCode };
}

function failureOf(wire: WireFailure): FailureInit {
  const failure: FailureInit = { type: wire.type, message: wire.message };
  if (wire.stack !== undefined) failure.stack = wire.stack;
  if (wire.details !== undefined) failure.details = { data: encoder.encode(wire.details) };
  if (wire.nonRetryable === true) failure.nonRetryable = true;
  if (wire.cause !== undefined) failure.cause = failureOf(wire.cause);
  return failure;
}
