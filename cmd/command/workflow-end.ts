/**
 * `hop workflow cancel`, `terminate` and `retry`: one act on one run or many.
 *
 * Each run is acted on by itself: what fails is said with its run, and the others go on.
 */
import { fromHex, toHex } from "#core/base";
import { withRemote } from "../connect.ts";
import { type Context, type GlobalOptions, orInterrupted, runAddress } from "../context.ts";
import { type ExitCode, exit, exitCodeOf, UsageError } from "../failure.ts";
import { shortHash } from "../history.ts";
import { readStdin } from "../input.ts";
import type { Remote } from "../remote.ts";
import { visible } from "../terminal.ts";

export interface ReasonOptions extends GlobalOptions {
  readonly reason?: string;
}

export interface RetryOptions extends GlobalOptions {
  readonly newest?: boolean;
  readonly bundle?: string;
}

/** What was done to one run: words for people, fields for programs. */
interface Done {
  readonly said: string;
  readonly json: object;
}
type Act = (remote: Remote, run: string) => Promise<Done>;

export function workflowCancel(context: Context, options: ReasonOptions, runs: string[]): Promise<ExitCode> {
  return onEach(context, options, runs, async (remote, run) => {
    await remote.cancel(run, options.reason ?? "");
    return { said: `Asked ${visible(run)} to cancel`, json: { run, cancelRequested: true } };
  });
}

export function workflowTerminate(context: Context, options: ReasonOptions, runs: string[]): Promise<ExitCode> {
  return onEach(context, options, runs, async (remote, run) => {
    await remote.terminate(run, options.reason ?? "");
    return { said: `Terminated ${visible(run)}`, json: { run, terminated: true } };
  });
}

export async function workflowRetry(context: Context, options: RetryOptions, runs: string[]): Promise<ExitCode> {
  if (options.newest === true && options.bundle !== undefined)
    throw new UsageError("Cannot retry with both --newest and --bundle: want one of them");
  const bundle = options.bundle === undefined ? new Uint8Array(0) : fromHex(options.bundle);
  if (bundle === undefined || (options.bundle !== undefined && bundle.length !== 32)) {
    throw new UsageError(
      `Cannot use --bundle ${JSON.stringify(options.bundle)}: want a SHA-256 of 64 hex digits, as \`hop deploy\` prints it`,
    );
  }
  return onEach(context, options, runs, async (remote, run) => {
    const reply = await remote.resume({ run, bundle, newest: options.newest ?? false });
    return { said: `${visible(run)} goes on, on bundle ${shortHash(reply.bundle)}`, json: { run, bundle: toHex(reply.bundle) } };
  });
}

async function onEach(context: Context, options: GlobalOptions, names: readonly string[], act: Act): Promise<ExitCode> {
  const ids = (await named(names)).map((name) => runAddress(name, options, context.env));
  if (ids.length === 0) throw new UsageError("Cannot act on runs: none were named on standard input");
  return withRemote(context, options, async (remote) => {
    const codes = new Set<ExitCode>();
    for (const id of ids) codes.add(await onOne(context, remote, id, act));
    codes.delete(exit.ok);
    // Different failures of several runs have no code in common.
    return codes.size === 0 ? exit.ok : codes.size === 1 ? ([...codes][0] as ExitCode) : exit.failed;
  });
}

async function onOne(context: Context, remote: Remote, id: string, act: Act): Promise<ExitCode> {
  const { output } = context;
  try {
    const done = await orInterrupted(context.interrupt, act(remote, id));
    if (output.format === "ids") output.line(id);
    else if (output.isForPeople) output.say(done.said);
    else output.json(done.json);
    return exit.ok;
  } catch (error) {
    const code = exitCodeOf(error);
    // Without a server the next run fares no better.
    if (code === exit.unavailable || context.interrupt.aborted) throw error;
    return output.fail(error);
  }
}

/** `-` stands for the ids on standard input, one a line. */
async function named(names: readonly string[]): Promise<string[]> {
  const all: string[] = [];
  for (const name of names) {
    if (name !== "-") all.push(name);
    else
      all.push(
        ...(await readStdin())
          .split("\n")
          .map((line) => line.replace(/\r$/, ""))
          .filter((line) => line !== ""),
      );
  }
  return all;
}
