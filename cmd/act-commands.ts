/** Commands by which operators act on runs, named or chosen by a filter. */
import { type Command, Option } from "commander";
import type { GrammarParts } from "./message-commands.ts";
import { statusWords } from "./status.ts";

export const runFilter = "which runs, such as \"customer = 'ann' AND total >= 100 AND started > '2026-01-31'\"";

export function actCommands(workflow: Command, { sub, withOptions, handle }: GrammarParts): void {
  const act = (name: string, description: string) =>
    sub(workflow, `${name} [run...]`, `${description} (- reads ids from standard input)`)
      .optionsGroup("Runs that are not named:")
      .option("--type <name>", "all of this workflow")
      .option("--query <filter>", runFilter)
      .addOption(new Option("--status <status>", "all of this status").choices(statusWords))
      .option("--all", "all of the namespace")
      .option("--yes", "without being asked, when a filter chose them")
      .optionsGroup("Options:");
  const reasoned = (command: Command) => withOptions(command.option("--reason <text>", "why, for the run's history"));
  const acts = () => import("./command/workflow-act.ts");
  handle(reasoned(act("cancel", "ask runs to stop; they clean up first")), async () => (await acts()).workflowCancel);
  handle(reasoned(act("terminate", "end runs at once, without clean-up")), async () => (await acts()).workflowTerminate);
  handle(reasoned(act("pause", "hold runs: nothing of them begins until they are unpaused")), async () => (await acts()).workflowPause);
  handle(reasoned(act("unpause", "let paused runs go on").alias("resume")), async () => (await acts()).workflowUnpause);
  handle(
    withOptions(
      act("retry", "let blocked runs go on")
        .option("--newest", "on the newest deployment of their workflow")
        .option("--bundle <sha256>", "on this bundle"),
    ),
    async () => (await acts()).workflowRetry,
  );
}
