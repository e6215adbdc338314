/** `hop workflow signal`. */
import { withRemote } from "../connect.ts";
import { type Context, type GlobalOptions, runAddress } from "../context.ts";
import { type ExitCode, exit } from "../failure.ts";
import { readInput } from "../input.ts";
import { visible } from "../terminal.ts";

export interface SignalOptions extends GlobalOptions {
  readonly input?: string;
  readonly id?: string;
}

export async function workflowSignal(context: Context, options: SignalOptions, run: string, name: string): Promise<ExitCode> {
  const id = runAddress(run, options, context.env);
  const data = (await readInput(options.input)) ?? new TextEncoder().encode("null");
  return withRemote(context, options, async (remote) => {
    const { seq } = await remote.signal({ run: id, name, payload: { data }, id: options.id });
    const { output } = context;
    if (output.format === "ids") output.line(id);
    else if (output.isForPeople) output.say(`Sent signal ${visible(name)} to ${visible(id)}; it is event ${seq}`);
    else output.json({ run: id, signal: name, seq });
    return exit.ok;
  });
}
