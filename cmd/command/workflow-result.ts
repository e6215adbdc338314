/** `hop workflow result`: waits for a run to end. */
import { withRemote } from "../connect.ts";
import { type Context, type GlobalOptions, runAddress, timeoutMs } from "../context.ts";
import type { ExitCode } from "../failure.ts";
import { follow } from "../follow.ts";
import { showOutcome } from "../remote.ts";

export async function workflowResult(context: Context, options: GlobalOptions, run: string): Promise<ExitCode> {
  const id: string = runAddress(run, options, context.env);
  const waitMs = timeoutMs(options);
  return withRemote(
    context,
    options,
    async (remote) => showOutcome(context.output, remote, await follow(context, remote, { run: id, waitMs })),
    { isPatient: true },
  );
}
