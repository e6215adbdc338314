/**
 * `hop workflow cancel`, `terminate`, `pause`, `unpause` and `retry`: one act on runs that are named, or on all that fit
 * a filter.
 *
 * Each run is acted on by itself: what fails is said with its run, and the others go on.
 */
import { fromHex, toHex } from "#core/base";
import { withRemote } from "../connect.ts";
import { type Context, orInterrupted } from "../context.ts";
import { shortHash } from "../event-text.ts";
import { type ExitCode, exit, exitCodeOf, UsageError } from "../failure.ts";
import { inParallel } from "../parallel.ts";
import type { Remote } from "../remote.ts";
import { visible } from "../terminal.ts";
import { filteredRuns, isByFilter, namedRuns, type SelectionOptions, type Verb, verbs } from "./run-selection.ts";

export interface RetryOptions extends SelectionOptions {
  readonly newest?: boolean;
  readonly bundle?: string;
}

/** What was done to one run: words for people, fields for programs. */
interface Done {
  readonly said: string;
  readonly json: object;
}
type Act = (remote: Remote, run: string) => Promise<Done>;

export function workflowCancel(context: Context, options: SelectionOptions, runs: string[]): Promise<ExitCode> {
  return onEach(context, options, runs, verbs.cancel, async (remote, run) => {
    await remote.cancel(run, options.reason ?? "");
    return { said: `Asked ${visible(run)} to cancel`, json: { run, cancelRequested: true } };
  });
}

export function workflowTerminate(context: Context, options: SelectionOptions, runs: string[]): Promise<ExitCode> {
  return onEach(context, options, runs, verbs.terminate, async (remote, run) => {
    await remote.terminate(run, options.reason ?? "");
    return { said: `Terminated ${visible(run)}`, json: { run, terminated: true } };
  });
}

export function workflowPause(context: Context, options: SelectionOptions, runs: string[]): Promise<ExitCode> {
  return onEach(context, options, runs, verbs.pause, async (remote, run) => {
    await remote.pause(run, options.reason ?? "");
    return { said: `Paused ${visible(run)}`, json: { run, paused: true } };
  });
}

export function workflowUnpause(context: Context, options: SelectionOptions, runs: string[]): Promise<ExitCode> {
  return onEach(context, options, runs, verbs.unpause, async (remote, run) => {
    await remote.unpause(run, options.reason ?? "");
    return { said: `${visible(run)} goes on`, json: { run, paused: false } };
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
  return onEach(context, options, runs, verbs.retry, async (remote, run) => {
    const reply = await remote.resume({ run, bundle, newest: options.newest ?? false });
    return { said: `${visible(run)} goes on, on bundle ${shortHash(reply.bundle)}`, json: { run, bundle: toHex(reply.bundle) } };
  });
}

/** Requests that are open at one time where a filter chose the runs. */
const openMax = 32;

export async function onEach(
  context: Context,
  options: SelectionOptions,
  names: readonly string[],
  verb: Verb,
  act: Act,
): Promise<ExitCode> {
  const byFilter = isByFilter(options, names);
  const named = byFilter ? [] : await namedRuns(context, options, names, verb);
  return withRemote(context, options, async (remote) => {
    const runs = byFilter ? await filteredRuns(context, remote, options, verb) : named;
    const progress = context.output.progress();
    const tell = byFilter ? (done: number) => progress.update(`${done} of ${runs.length}`) : undefined;
    return onAll(context, remote, runs, act, tell).finally(() => progress.done());
  });
}

/** `tell`: how many are behind it; left out where runs were named, which are acted on in their order. */
export async function onAll(
  context: Context,
  remote: Remote,
  runs: readonly string[],
  act: Act,
  tell?: (done: number) => void,
): Promise<ExitCode> {
  let done = 0;
  const codes = await inParallel(runs, tell === undefined ? 1 : openMax, async (run) => {
    const code = await onOne(context, remote, run, act);
    tell?.(++done);
    return code;
  });
  const failures = new Set(codes.filter((code) => code !== exit.ok));
  // Different failures of several runs have no code in common.
  return failures.size > 1 ? exit.failed : ([...failures][0] ?? exit.ok);
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
