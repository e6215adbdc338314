/** `hop workflow query`: the answer goes to standard output as JSON. */
import { withRemote } from "../connect.ts";
import { type Context, type GlobalOptions, runId } from "../context.ts";
import { type ExitCode, exit } from "../failure.ts";
import { readInput } from "../input.ts";
import { payloadBytes, showPayload } from "../remote.ts";
import { payloadJson } from "../shapes.ts";

export interface QueryOptions extends GlobalOptions {
  readonly input?: string;
}

export async function workflowQuery(context: Context, options: QueryOptions, run: string, name: string): Promise<ExitCode> {
  const id = runId(run, options, context.env);
  const data = await readInput(options.input);
  return withRemote(context, options, async (remote) => {
    const reply = await remote.query({ run: id, name, input: data === undefined ? undefined : { data } });
    const bytes = await payloadBytes(remote, reply.result);
    if (context.output.isForPeople || context.output.format === "ids") showPayload(context.output, bytes);
    else context.output.json({ run: id, query: name, result: payloadJson(bytes) });
    return exit.ok;
  });
}
