/** Follows a change of the cluster to its end: talk and progress on standard error, its outcome as data. */
import type { Progress } from "#proto";
import { withRemote } from "../connect.ts";
import { type Context, type GlobalOptions, timeoutMs } from "../context.ts";
import { formatDuration } from "../duration.ts";
import { CommandError, type ExitCode, exit } from "../failure.ts";
import type { Output } from "../output.ts";
import type { Remote } from "../remote.ts";
import { visible } from "../terminal.ts";

export interface Change {
  readonly begin: (remote: Remote) => AsyncIterable<Progress>;
  /** How to see what becomes of it: "see `hop shard show 3`". */
  readonly seeIt: string;
}

/** Runs a change. It goes on in the cluster also when nobody follows it any more. */
export function follow(context: Context, options: GlobalOptions, change: Change): Promise<ExitCode> {
  const limitMs = timeoutMs(options);
  return withRemote(context, options, (remote) => untilFinished(context.output, change, { progress: change.begin(remote), limitMs }), {
    isPatient: true,
  });
}

async function untilFinished(
  output: Output,
  change: Change,
  { progress, limitMs }: { readonly progress: AsyncIterable<Progress>; readonly limitMs: number },
): Promise<ExitCode> {
  const late = Promise.withResolvers<never>();
  const timer =
    limitMs === 0
      ? undefined
      : setTimeout(() => late.reject(unfinished(`Cannot finish within ${formatDuration(limitMs)}`, change)), limitMs);
  try {
    return await Promise.race([show(output, change, progress), late.promise]);
  } finally {
    clearTimeout(timer);
    output.progress().done();
  }
}

async function show(output: Output, change: Change, progress: AsyncIterable<Progress>): Promise<ExitCode> {
  let last = "";
  for await (const step of progress) {
    if (output.format === "jsonl") output.json(stepJson(step));
    if (step.finished) {
      output.progress().done();
      if (output.format === "json") output.json(stepJson(step));
      else if (output.isForPeople) output.line(visible(step.text));
      return exit.ok;
    }
    const text = visible(step.total === 0 ? step.text : `${step.text} (${step.done} of ${step.total})`);
    output.progress().update(text);
    // In a pipe each step is a line of its own.
    if (output.isForPeople && !output.err.isTty && text !== last) output.say(text);
    last = text;
  }
  throw unfinished("The server stopped telling how far the change is", change);
}

const unfinished = (what: string, { seeIt }: Change) =>
  new CommandError(exit.unavailable, `${what}: what was begun goes on`, { next: seeIt });

const stepJson = ({ text, done, total, finished }: Progress) => ({ text, done, total, finished });
