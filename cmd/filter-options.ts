/** Options by which runs are chosen that are not named. */
import { type Command, Option } from "commander";
import { statusWords } from "./status.ts";

export const runFilter = "which runs, such as \"customer = 'ann' AND total >= 100 AND started > '2026-01-31'\"";

export function filterOptions(command: Command): Command {
  return command
    .optionsGroup("Runs that are not named:")
    .option("--type <name>", "all of this workflow")
    .option("--query <filter>", runFilter)
    .addOption(new Option("--status <status>", "all of this status").choices(statusWords))
    .option("--all", "all of the namespace")
    .option("--yes", "without being asked, when a filter chose them")
    .optionsGroup("Options:");
}
