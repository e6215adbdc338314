/**
 * `hop run`: starts a workflow.
 *
 * Without --follow the run's id is the output: said to people on a terminal, written alone into
 * a pipe. With --follow the id is said on standard error and the result is the output, so
 * `hop run hello --follow | jq` works. The exit code is then that of the run's end.
 */
import { randomUUID } from "node:crypto";
import type { Contention } from "#core/run";
import type { StartReply, StartRequestInit } from "#proto";
import { withRemote } from "../connect.ts";
import { type Context, type GlobalOptions, namespaceName, timeoutMs } from "../context.ts";
import { parseDuration } from "../duration.ts";
import { type ExitCode, exit, UsageError } from "../failure.ts";
import { follow } from "../follow.ts";
import { readInput } from "../input.ts";
import type { Output } from "../output.ts";
import { showOutcome } from "../remote.ts";
import { visible } from "../terminal.ts";
import { runLines } from "./run-lines.ts";

export interface RunOptions extends GlobalOptions {
  readonly input?: string;
  readonly inputLines?: string;
  readonly instance?: string;
  readonly instanceField?: string;
  readonly contention?: Contention;
  readonly overrideReason?: string;
  readonly budget?: string;
  readonly signal?: string;
  readonly idempotencyKey?: string;
  readonly deadline?: string;
  readonly follow?: boolean;
  readonly detach?: boolean;
}

export async function run(context: Context, options: RunOptions, type: string): Promise<ExitCode> {
  checkOptions(options);
  const base: StartRequestInit = {
    namespace: namespaceName(options, context.env),
    type,
    contention: options.contention,
    overrideReason: options.overrideReason,
    requestBudgetMs: options.budget === undefined ? 0 : parseDuration(options.budget, "--budget"),
    deadlineMs: options.deadline === undefined ? 0 : parseDuration(options.deadline, "--deadline"),
  };
  if (options.inputLines !== undefined) return runLines(context, options, base);
  return runOne(context, options, base);
}

/** Options that exclude each other. */
function checkOptions(options: RunOptions): void {
  const both = (one: string, other: string) => new UsageError(`Cannot run with both ${one} and ${other}: want one of them`);
  if (options.follow === true && options.detach === true) throw both("--follow", "--detach");
  if (options.input !== undefined && options.inputLines !== undefined) throw both("--input", "--input-lines");
  if (options.contention === "supersede" && (options.overrideReason ?? "").trim() === "") {
    throw new UsageError("Cannot supersede a live run without --override-reason: want why it is ended, which its history will say");
  }
  if (options.contention !== "supersede" && options.overrideReason !== undefined) {
    throw new UsageError("Cannot use --override-reason without --contention supersede: nothing else ends a live run");
  }
  // A shell variable that is not set must not start a run under a name that nobody knows.
  for (const name of ["instance", "idempotencyKey"] as const) {
    if (options[name] === "")
      throw new UsageError(
        `Cannot start a run: --${name === "instance" ? "instance" : "idempotency-key"} is empty; leave it out, or give a name`,
      );
  }
  if (options.instance !== undefined && options.inputLines !== undefined) {
    throw new UsageError(
      "Cannot start many runs under one --instance: want --instance-field with the field of each input that holds its name",
    );
  }
  if (options.signal !== undefined && options.inputLines !== undefined) throw both("--signal", "--input-lines");
  if (options.instanceField !== undefined && options.inputLines === undefined) {
    throw new UsageError("Cannot use --instance-field without --input-lines: want --instance for a single run");
  }
}

/** `name`, or `name=JSON`. */
async function signalOf(text: string): Promise<StartRequestInit["signal"]> {
  const at = text.indexOf("=");
  const name = at < 0 ? text : text.slice(0, at);
  const data = at < 0 ? undefined : await readInput(text.slice(at + 1), "--signal");
  return { name, payload: { data: data ?? new TextEncoder().encode("null") }, id: `signal-${randomUUID()}` };
}

async function runOne(context: Context, options: RunOptions, base: StartRequestInit): Promise<ExitCode> {
  const data = await readInput(options.input);
  const request: StartRequestInit = {
    ...base,
    input: data === undefined ? undefined : { data },
    instance: options.instance,
    idempotencyKey: options.idempotencyKey,
    signal: options.signal === undefined ? undefined : await signalOf(options.signal),
  };
  return withRemote(
    context,
    options,
    async (remote) => {
      const reply = await remote.start(request);
      if (options.follow !== true) {
        showStarted(context.output, reply, request.type ?? "");
        return exit.ok;
      }
      saySo(context.output, reply);
      const { run: id, generation } = reply;
      const ended = await follow(context, remote, { run: id, generation, waitMs: timeoutMs(options), isNew: !reply.attached });
      return showOutcome(context.output, remote, ended);
    },
    { isPatient: options.follow === true },
  );
}

function saySo(output: Output, reply: StartReply): void {
  const how = reply.place > 0 ? queuedText(reply.place) : reply.attached ? "attached to the live run" : "started";
  output.say(`${output.paintErr("cyan", "▸")} ${visible(reply.run)}  ${output.paintErr("dim", `(${how})`)}`);
}

const queuedText = (place: number) => (place === 1 ? "queued: it is next" : `queued: ${place - 1} before it`);

function showStarted(output: Output, reply: StartReply, type: string): void {
  const { run: id, generation, attached, place } = reply;
  if (output.format === "ids") output.line(id);
  else if (!output.isForPeople) output.json({ run: id, generation, type, attached, ...(place > 0 ? { place } : {}) });
  else {
    saySo(output, reply);
    if (!output.out.isTty) output.line(id);
  }
}
