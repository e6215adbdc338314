/** What `hop run` may be told. */
import { type Command, Option } from "commander";
import type { Contention } from "#core/run";
import { UsageError } from "./failure.ts";

/** As Core has them; every command would load its runs for the list. */
const contentions: readonly Contention[] = ["attach", "reject", "queue", "supersede"];

/** An option that would be taken for a list where it is given again. */
const once = (name: string) => (text: string, before: string | undefined) => {
  if (before === undefined) return text;
  throw new UsageError(`Cannot use ${name} twice: one signal goes with a start`, { next: "send the others with `hop signal`" });
};

export function runOptions(command: Command): Command {
  return command
    .option("--input <json>", "input: JSON, @file, or - for standard input")
    .option("--input-lines <file>", "start one run for each line of JSON in a file, or - for standard input")
    .option("--instance <name>", "business name of the run: one is live at a time")
    .option("--instance-field <name>", "with --input-lines: field of each input that holds the run's name")
    .addOption(new Option("--contention <policy>", "when a run of this instance is live").choices(contentions))
    .option("--override-reason <text>", "with --contention supersede: why the live run is ended; kept in its history")
    .option("--budget <duration>", "with --contention queue: longest time to wait; then it never begins")
    .option("--signal <name[=json]>", "signal the run that is started or met, in one step with the start", once("--signal"))
    .option("--idempotency-key <key>", "start once, however often this command is repeated")
    .option("--deadline <duration>", "longest time that the run may take")
    .option("--follow", "wait for the run to end; its result goes to standard output")
    .option("--detach", "return when the run is started, as without --follow");
}
