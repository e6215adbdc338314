/** `hop workflow query`: the answer goes to standard output as JSON. */
import { withRemote } from "../connect.ts";
import { type Context, type GlobalOptions, runAddress, timeoutMs } from "../context.ts";
import { type ExitCode, exit, reasonOf } from "../failure.ts";
import { readInput } from "../input.ts";
import { payloadBytes, showPayload } from "../remote.ts";
import { payloadJson } from "../shapes.ts";

export interface QueryOptions extends GlobalOptions {
  readonly input?: string;
}

/** A worker that starts again is waited for so long; one that is not there is said soon. */
const workerMsMax = 3000;
const pauseMs = 200;

async function askPatiently<T>(ask: () => Promise<T>, waitMs: number): Promise<T> {
  const endsAt = performance.now() + waitMs;
  for (;;) {
    try {
      return await ask();
    } catch (error) {
      if (reasonOf(error) !== "STORE_UNAVAILABLE" || performance.now() + pauseMs >= endsAt) throw error;
      await Bun.sleep(pauseMs);
    }
  }
}

export async function workflowQuery(context: Context, options: QueryOptions, run: string, name: string): Promise<ExitCode> {
  const id = runAddress(run, options, context.env);
  const data = await readInput(options.input);
  const limitMs = timeoutMs(options);
  const waitMs = limitMs === 0 ? workerMsMax : Math.min(workerMsMax, limitMs / 2);
  return withRemote(context, options, async (remote) => {
    const ask = () => remote.query({ run: id, name, input: data === undefined ? undefined : { data } });
    const reply = await askPatiently(ask, waitMs);
    const bytes = await payloadBytes(remote, reply.result);
    if (context.output.isForPeople || context.output.format === "ids") showPayload(context.output, bytes);
    else context.output.json({ run: id, query: name, result: payloadJson(bytes) });
    return exit.ok;
  });
}
