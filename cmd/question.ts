/** A question to the person at the terminal. */
import { createInterface, type Interface } from "node:readline/promises";
import { type Context, InterruptedError } from "./context.ts";
import { UsageError } from "./failure.ts";

/** Standard input, or what stands in for it. */
type Input = NodeJS.ReadableStream & { readonly isTTY?: boolean };

/**
 * Asks on standard error and reads a line of standard input; only y and yes agree. Without a terminal nobody can answer:
 * throws `UsageError` that says so. Rejects with `InterruptedError` where no answer comes any more.
 */
export async function agreed(context: Context, question: string, input: Input = process.stdin): Promise<boolean> {
  if (input.isTTY !== true || !context.output.err.isTty) {
    throw new UsageError(`Cannot ask "${question}": this is no terminal`, { next: "say --yes to act without being asked" });
  }
  const lines = createInterface({ input, output: process.stderr });
  try {
    const answer = await Promise.race([lines.question(`${question} [y/N] `, { signal: context.interrupt }), closed(lines)]);
    return /^y(es)?$/i.test(answer.trim());
  } catch (error) {
    if (context.interrupt.aborted) throw new InterruptedError("Interrupted");
    throw error;
  } finally {
    lines.close();
  }
}

/** Rejects at the end of the input (Ctrl-D), of which a question that is open says nothing. */
function closed(lines: Interface): Promise<never> {
  const { promise, reject } = Promise.withResolvers<never>();
  lines.once("close", () => reject(new InterruptedError("Interrupted")));
  return promise;
}
