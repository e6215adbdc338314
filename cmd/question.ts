/** A question to the person at the terminal. */
import { createInterface } from "node:readline/promises";
import { type Context, InterruptedError } from "./context.ts";
import { UsageError } from "./failure.ts";

/**
 * Asks on standard error and reads a line of standard input; only y and yes agree. Without a terminal nobody can answer:
 * throws `UsageError` that says so.
 */
export async function agreed(context: Context, question: string): Promise<boolean> {
  if (process.stdin.isTTY !== true || !context.output.err.isTty) {
    throw new UsageError(`Cannot ask "${question}": this is no terminal`, { next: "say --yes to act without being asked" });
  }
  const lines = createInterface({ input: process.stdin, output: process.stderr });
  try {
    const answer = await lines.question(`${question} [y/N] `, { signal: context.interrupt });
    return /^y(es)?$/i.test(answer.trim());
  } catch (error) {
    if (context.interrupt.aborted) throw new InterruptedError("Interrupted");
    throw error;
  } finally {
    lines.close();
  }
}
