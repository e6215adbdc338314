/** Commands about versions of workflows. */
import type { Command } from "commander";
import type { GrammarParts } from "./message-commands.ts";

export function deploymentCommands(root: Command, { sub, withOptions, handle }: GrammarParts): void {
  const deployment = sub(root, "deployment", "say which version of a workflow new runs start on");
  const leaf = (usage: string, description: string) => sub(deployment, usage, description);
  const reasoned = (command: Command) => withOptions(command.option("--reason <text>", "why, for the deployment's history"));
  const load = () => import("./command/deployment.ts");
  handle(
    withOptions(leaf("list [type]", "list the versions of each workflow, and which of them starts take")),
    async () => (await load()).deploymentList,
  );
  handle(reasoned(leaf("promote <type> <version>", "start all new runs on a version")), async () => (await load()).deploymentPromote);
  handle(
    reasoned(leaf("ramp <type> <version> <percent>", "start a share of new runs on a version, 0 to 99 percent")),
    async () => (await load()).deploymentRamp,
  );
  handle(
    reasoned(leaf("rollback <type>", "start all new runs on the version that was current before")),
    async () => (await load()).deploymentRollback,
  );
  handle(withOptions(leaf("drain <type> <version>", "wait until no live run is on a version")), async () => (await load()).deploymentDrain);
}
