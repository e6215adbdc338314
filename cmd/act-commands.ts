/** Commands by which operators act on runs, named or chosen by a filter. */
import type { Command } from "commander";
import { filterOptions } from "./filter-options.ts";
import type { GrammarParts } from "./message-commands.ts";

export function actCommands(workflow: Command, { sub, withOptions, handle }: GrammarParts): void {
  const act = (name: string, description: string) =>
    filterOptions(sub(workflow, `${name} [run...]`, `${description} (- reads ids from standard input)`));
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
