/** Commands between a run and the world outside: signals, queries, method calls, its stream. Known below `hop` and below `hop workflow`. */
import type { Command } from "commander";
import type { Handler } from "./context.ts";
import { filterOptions } from "./filter-options.ts";

/** What the grammar lends to those who write a part of it. */
export interface GrammarParts {
  readonly sub: (parent: Command, usage: string, description: string) => Command;
  /** Adds the options that all clients have. */
  readonly withOptions: (command: Command) => Command;
  readonly handle: <Options, Operands extends unknown[]>(command: Command, load: () => Promise<Handler<Options, Operands>>) => Command;
}

export function messageCommands(parent: Command, { sub, withOptions, handle }: GrammarParts): void {
  handle(
    withOptions(
      filterOptions(sub(parent, "signal <run> [name]", "send a signal to a run; with a filter, `signal <name>` to all that it chooses"))
        .option("--input <json>", "the signal's value: JSON, @file, or - for standard input")
        .option("--id <id>", "sent again with the same id, the signal counts once"),
    ),
    async () => (await import("./command/workflow-signal.ts")).workflowSignal,
  );
  handle(
    withOptions(
      sub(parent, "query <run> <name>", "read a run's state").option("--input <json>", "the query's argument: JSON, @file, or -"),
    ),
    async () => (await import("./command/workflow-query.ts")).workflowQuery,
  );
  handle(
    withOptions(
      sub(parent, "call <run> <method>", "call a method of a run and print its answer")
        .option("--input <json>", "the method's input: JSON, @file, or - for standard input")
        .option("--id <id>", "made again with the same id, it is the same call and has the same answer"),
    ),
    async () => (await import("./command/workflow-call.ts")).workflowCall,
  );
  handle(
    withOptions(
      sub(parent, "stream <run>", "print what a run yields, until it ends").option(
        "--from <offset>",
        "chunks with this offset and later ones (default: all)",
      ),
    ),
    async () => (await import("./command/workflow-stream.ts")).workflowStream,
  );
}
