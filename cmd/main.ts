/**
 * Runs one command line: parses it, gives the command its context, turns what it throws into an
 * exit code.
 *
 * The first interrupt (Ctrl-C, SIGTERM) asks the command to end, the second ends it.
 */
import { CommanderError } from "commander";
import { type Context, InterruptedError } from "./context.ts";
import { type ExitCode, exit } from "./failure.ts";
import { Output } from "./output.ts";
import { program } from "./program.ts";
import { BrokenPipeError } from "./terminal.ts";

/** Exit code of the command line `args` (without the program's own name). */
export async function main(args: readonly string[]): Promise<ExitCode> {
  const interrupt = new AbortController();
  const { promise: secondInterrupt, resolve: giveUp } = Promise.withResolvers<ExitCode>();
  const onSignal = () => {
    if (interrupt.signal.aborted) giveUp(exit.interrupted);
    interrupt.abort();
  };
  process.on("SIGINT", onSignal);
  process.on("SIGTERM", onSignal);
  let output = new Output();
  const contextOf = (options: { output?: Output["format"]; color?: boolean }, command: string): Context => {
    output = new Output({ format: options.output, color: options.color, command });
    return { output, interrupt: interrupt.signal, env: process.env };
  };
  try {
    return await Promise.race([run(args, contextOf), secondInterrupt]);
  } catch (error) {
    return failed(error, output);
  } finally {
    process.off("SIGINT", onSignal);
    process.off("SIGTERM", onSignal);
  }
}

async function run(args: readonly string[], contextOf: (options: object, command: string) => Context): Promise<ExitCode> {
  let code: ExitCode = exit.ok;
  const root = program(contextOf, (result) => {
    code = result;
  });
  await root.parseAsync(args, { from: "user" });
  return code;
}

function failed(error: unknown, output: Output): ExitCode {
  if (error instanceof BrokenPipeError) return exit.ok;
  // The command line's own parser has already said what is wrong.
  if (error instanceof CommanderError) return error.exitCode === 0 ? exit.ok : exit.usage;
  if (error instanceof InterruptedError) return exit.interrupted;
  try {
    return output.fail(error);
  } catch {
    return exit.failed;
  }
}
