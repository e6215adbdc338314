/**
 * `hop stream`: what a run yields, a line each, from the beginning or from an offset on, until the run ends.
 * The exit code is that of the run's end, as with `hop run --follow`.
 */
import { HopError } from "#core/base";
import { type ResultReply, RunStatus } from "#proto";
import { withRemote } from "../connect.ts";
import { type Context, type GlobalOptions, runAddress } from "../context.ts";
import { type ExitCode, exit, UsageError } from "../failure.ts";
import { outcomeText, type Remote } from "../remote.ts";
import { printLines } from "../stream-lines.ts";
import { visible } from "../terminal.ts";

export interface StreamOptions extends GlobalOptions {
  readonly from?: string;
}

export async function workflowStream(context: Context, options: StreamOptions, run: string): Promise<ExitCode> {
  const id = runAddress(run, options, context.env);
  const fromOffset = offsetOf(options.from);
  return withRemote(context, options, (remote) => print(context, remote, { run: id, fromOffset }));
}

function offsetOf(text: string | undefined): number {
  if (text === undefined) return 0;
  const offset = Number(text);
  if (/^\d+$/.test(text) && Number.isSafeInteger(offset)) return offset;
  throw new UsageError(`Cannot stream from ${JSON.stringify(text)}: want the offset of a chunk, as \`hop stream -o jsonl\` shows it`);
}

interface Wanted {
  readonly run: string;
  readonly fromOffset: number;
}

async function print(context: Context, remote: Remote, { run, fromOffset }: Wanted): Promise<ExitCode> {
  const again = (offset: number) => `hop stream ${visible(run)} --from ${offset}`;
  const end = await printLines(context, remote, { request: { run, fromOffset }, field: "chunk", again });
  if (end === undefined) throw new HopError("INTERNAL", `The stream of ${run} ended without the run's end`);
  return ended(context, run, end);
}

function ended({ output }: Context, run: string, { outcome }: ResultReply): ExitCode {
  if (outcome === undefined) throw new HopError("INTERNAL", `The server says that ${run} ended, and not how`);
  if (outcome.status === RunStatus.completed) return exit.ok;
  output.say(`${output.paintErr("red", "error:")} ${visible(run)} ${outcomeText(outcome)}`);
  return exit.failed;
}
