/** `hop call`, `hop workflow call`: the answer goes to standard output as JSON. */
import { randomUUID } from "node:crypto";
import { withRemote } from "../connect.ts";
import { type Context, type GlobalOptions, runAddress } from "../context.ts";
import { failureText } from "../event-text.ts";
import { type ExitCode, exit } from "../failure.ts";
import { readInput } from "../input.ts";
import { payloadBytes, showPayload } from "../remote.ts";
import { failureJson, payloadJson } from "../shapes.ts";
import { visible, visibleLines } from "../terminal.ts";

export interface CallOptions extends GlobalOptions {
  readonly input?: string;
  readonly id?: string;
}

export async function workflowCall(context: Context, options: CallOptions, run: string, method: string): Promise<ExitCode> {
  const address = runAddress(run, options, context.env);
  const data = await readInput(options.input);
  const id = options.id ?? `call-${randomUUID()}`;
  const lacking = () => `${method} of ${address} has not answered; the call goes on: ask for its answer with --id ${id}`;
  const { output } = context;
  return withRemote(
    context,
    options,
    async (remote) => {
      const reply = await remote.call({ run: address, name: method, input: data === undefined ? undefined : { data }, id });
      const { failure, seq } = reply;
      if (failure !== undefined) {
        if (!output.isForPeople) output.json({ run: address, method, id, seq, rejected: reply.rejected, failure: failureJson(failure) });
        else {
          const how = reply.rejected ? "did not take its input" : "failed";
          output.say(
            `${output.paintErr("red", "error:")} ${visible(method)} of ${visible(address)} ${how}: ${visibleLines(failureText(failure))}`,
          );
        }
        return exit.failed;
      }
      const bytes = await payloadBytes(remote, reply.result);
      if (output.isForPeople || output.format === "ids") showPayload(output, bytes);
      else output.json({ run: address, method, id, seq, result: payloadJson(bytes) });
      return exit.ok;
    },
    { lacking },
  );
}
