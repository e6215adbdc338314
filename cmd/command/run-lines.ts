/**
 * `hop run --input-lines`: one run for each line, over one stream.
 *
 * Nothing is dropped: each line ends as a run or as a reported error. Each start carries a key of
 * its own, so one whose reply was lost is sent again without a second run; with
 * --idempotency-key the same holds for the whole command.
 */
import { randomUUID } from "node:crypto";
import { RunStatus, type StartReply, type StartRequestInit } from "#proto";
import { withRemote } from "../connect.ts";
import { type Context, orInterrupted } from "../context.ts";
import { formatDuration } from "../duration.ts";
import { type ExitCode, exit, exitCodeOf, reasonOf, UsageError } from "../failure.ts";
import { faultText, jsonProblem, withinLimit } from "../input.ts";
import type { Output } from "../output.ts";
import type { Progress } from "../progress.ts";
import { outcomeText, payloadBytes, type Remote } from "../remote.ts";
import { outcomeJson } from "../shapes.ts";
import { safeJson, visible } from "../terminal.ts";
import type { RunOptions } from "./run.ts";

/** Starts that wait for their reply at one time; with --follow each lasts as long as its run. */
const openMax = 1024;
const openMaxFollowed = 16_384;

interface Line {
  /** From 1, blank lines counted. */
  readonly number: number;
  /** From 0, blank lines left out. */
  readonly ordinal: number;
  readonly text: string;
}

/** What became of a line. */
interface Landed {
  readonly line: number;
  readonly ordinal: number;
  readonly reply?: StartReply;
  /** With --follow: how the run ended. */
  readonly outcome?: object;
  readonly error?: { readonly reason: string | undefined; readonly message: string };
}

export async function runLines(context: Context, options: RunOptions, base: StartRequestInit): Promise<ExitCode> {
  const source = options.inputLines as string;
  return withRemote(context, options, async (remote) => {
    const batch = new Batch(context, remote, options, base);
    await batch.run(linesOf(source));
    return batch.finish();
  });
}

class Batch {
  readonly #context: Context;
  readonly #remote: Remote;
  readonly #options: RunOptions;
  readonly #base: StartRequestInit;
  readonly #key: string | undefined;
  readonly #progress: Progress;
  readonly #emit: Emitter;
  readonly #begunMs = performance.now();
  readonly #codes = new Set<ExitCode>();
  #landed = 0;
  #started = 0;
  #attached = 0;
  #failed = 0;
  #bad = 0;

  constructor(context: Context, remote: Remote, options: RunOptions, base: StartRequestInit) {
    this.#context = context;
    this.#remote = remote;
    this.#options = options;
    this.#base = base;
    // A named run needs no key: its name already makes it one.
    this.#key = options.idempotencyKey ?? (options.instanceField === undefined ? `lines-${randomUUID()}` : undefined);
    this.#progress = context.output.progress();
    this.#emit = new Emitter(context.output);
  }

  async run(lines: AsyncIterable<Line>): Promise<void> {
    const open = new Set<Promise<void>>();
    const max = this.#options.follow === true ? openMaxFollowed : openMax;
    try {
      for await (const line of lines) {
        if (this.#context.interrupt.aborted) break;
        const work = this.#land(line).finally(() => open.delete(work));
        open.add(work);
        if (open.size >= max) await orInterrupted(this.#context.interrupt, Promise.race(open));
      }
      await orInterrupted(this.#context.interrupt, Promise.all(open));
    } finally {
      this.#progress.done();
      this.#summary();
    }
  }

  /** Exit code: of the failures where they have one in common, else 1. */
  finish(): ExitCode {
    this.#emit.end();
    return this.#codes.size === 0 ? exit.ok : this.#codes.size === 1 ? ([...this.#codes][0] as ExitCode) : exit.failed;
  }

  async #land(line: Line): Promise<void> {
    try {
      const reply = await this.#remote.start(this.#request(line));
      this.#started += 1;
      if (reply.attached) this.#attached += 1;
      const outcome = this.#options.follow === true ? await this.#outcome(line, reply) : undefined;
      this.#emit.landed({ line: line.number, ordinal: line.ordinal, reply, ...(outcome === undefined ? {} : { outcome }) });
    } catch (error) {
      this.#report(line, error);
    }
    this.#landed += 1;
    this.#progress.update(`${this.#landed} lines, ${this.#started} runs${this.#bad > 0 ? `, ${this.#bad} errors` : ""}`);
  }

  #report(line: Line, error: unknown): void {
    // An interrupt ends the command; what it cut off is no fault of the line.
    if (this.#context.interrupt.aborted) return;
    this.#bad += 1;
    this.#codes.add(exitCodeOf(error));
    const reason = reasonOf(error);
    const message = error instanceof Error ? error.message : String(error);
    const { output } = this.#context;
    this.#progress.line(
      `${output.paintErr("red", "error:")} line ${line.number}: ${visible(message)}${reason === undefined ? "" : ` (${reason})`}`,
    );
    this.#emit.landed({ line: line.number, ordinal: line.ordinal, error: { reason, message } });
  }

  #request(line: Line): StartRequestInit {
    const problem = jsonProblem(line.text);
    if (problem !== undefined) throw new UsageError(`Cannot read it as JSON: ${problem.replace(/^line 1, /, "")}`);
    const field = this.#options.instanceField;
    return {
      ...this.#base,
      input: { data: withinLimit(new TextEncoder().encode(line.text.trim()), "it") },
      instance: field === undefined ? undefined : instanceIn(line.text, field),
      idempotencyKey: this.#key === undefined ? undefined : `${this.#key}:${line.number}`,
      awaitResult: this.#options.follow === true,
    };
  }

  async #outcome(line: Line, reply: StartReply): Promise<object | undefined> {
    const { outcome } = reply;
    if (outcome === undefined) return undefined;
    const isCompleted = outcome.status === RunStatus.completed;
    if (!isCompleted) {
      this.#failed += 1;
      this.#codes.add(exit.failed);
      this.#progress.line(
        `${this.#context.output.paintErr("red", "error:")} line ${line.number}: ${visible(reply.run)} ${outcomeText(outcome)}`,
      );
    }
    return outcomeJson(outcome, isCompleted ? await payloadBytes(this.#remote, outcome.result) : undefined);
  }

  #summary(): void {
    const { output } = this.#context;
    const parts = [
      this.#attached > 0 && `${this.#attached} of them attached`,
      this.#options.follow === true && `${this.#started - this.#failed} completed`,
      this.#failed > 0 && `${this.#failed} did not complete`,
      this.#bad > 0 && output.paintErr("red", `${this.#bad} lines with errors`),
    ].filter((part) => part !== false);
    const runs = `${this.#started} run${this.#started === 1 ? "" : "s"}`;
    output.say(
      `Started ${runs} in ${formatDuration(performance.now() - this.#begunMs)}${parts.length === 0 ? "" : `: ${parts.join(", ")}`}`,
    );
  }
}

/** Writes what became of each line: as it comes for `jsonl`, in the order of the lines for the rest. */
class Emitter {
  readonly #output: Output;
  readonly #early = new Map<number, Landed>();
  readonly #all: Landed[] = [];
  #next = 0;

  constructor(output: Output) {
    this.#output = output;
  }

  landed(one: Landed): void {
    if (this.#output.format === "jsonl") {
      this.#output.line(safeJson(landedJson(one)));
      return;
    }
    this.#early.set(one.ordinal, one);
    for (let next = this.#early.get(this.#next); next !== undefined; next = this.#early.get(this.#next)) {
      this.#early.delete(this.#next++);
      if (this.#output.format === "json") this.#all.push(next);
      else this.#line(next);
    }
  }

  end(): void {
    if (this.#output.format === "json") this.#output.json(this.#all.map(landedJson));
  }

  /** Results are what --follow is for; else the ids. People at a terminal have the summary. */
  #line(one: Landed): void {
    if (one.reply === undefined || (this.#output.isForPeople && this.#output.out.isTty)) return;
    if (this.#output.isForPeople && one.outcome !== undefined) this.#output.line(safeJson({ run: one.reply.run, ...one.outcome }));
    else this.#output.line(one.reply.run);
  }
}

function landedJson({ line, reply, outcome, error }: Landed): object {
  if (reply === undefined) return { line, error };
  const { run, generation, attached, place } = reply;
  return { line, run, generation, attached, ...(place > 0 ? { place } : {}), ...outcome };
}

function instanceIn(text: string, field: string): string {
  const value: unknown = JSON.parse(text);
  const name =
    typeof value === "object" && value !== null && Object.hasOwn(value, field) ? (value as Record<string, unknown>)[field] : undefined;
  if (typeof name === "string" && name !== "") return name;
  if (typeof name === "number") return String(name);
  throw new UsageError(
    `Cannot name the run: its field ${JSON.stringify(field)} is ${name === undefined ? "missing" : safeJson(name)}, want a text or a number`,
  );
}

/** Lines that are not blank, numbered as an editor numbers them. */
async function* linesOf(path: string): AsyncGenerator<Line> {
  const decoder = new TextDecoder("utf-8", { fatal: true });
  const stream = path === "-" ? Bun.stdin.stream() : Bun.file(path).stream();
  let rest = "";
  let number = 0;
  let ordinal = 0;
  try {
    for await (const chunk of stream as unknown as AsyncIterable<Uint8Array>) {
      const lines = (rest + decoder.decode(chunk, { stream: true })).split("\n");
      rest = lines.pop() as string;
      for (const text of lines) {
        number += 1;
        if (text.trim() !== "") yield { number, ordinal: ordinal++, text };
      }
    }
    rest += decoder.decode();
  } catch (error) {
    throw new UsageError(
      `Cannot read ${path === "-" ? "standard input" : path} behind line ${number}: ${error instanceof TypeError ? "it is not UTF-8 text" : faultText(error)}`,
      { cause: error },
    );
  }
  if (rest.trim() !== "") yield { number: number + 1, ordinal, text: rest };
}
