/** Commands that bring code and histories to tests. */
import type { Command } from "commander";
import type { GrammarParts } from "./message-commands.ts";

export function testkitCommands(root: Command, { sub, withOptions, handle }: GrammarParts): void {
  handle(
    withOptions(
      sub(root, "bundle <file>", "bundle a workflow file as `hop deploy` would, for the test kit").option(
        "--out <path>",
        "where the bundle goes",
      ),
    ),
    async () => (await import("./command/bundle.ts")).bundle,
  );
  handle(
    withOptions(sub(root, "testkit [folder]", "put @hopskip/testing into a project's node_modules (of this folder when unset)")),
    async () => (await import("./command/testkit.ts")).testkit,
  );
}

/** `workflow` is the command that it stands below. */
export function exportCommand(workflow: Command, { sub, withOptions, handle }: GrammarParts): void {
  const what = "write a run's history as one file, for tests that replay it";
  handle(
    withOptions(sub(workflow, "export <run>", what).option("--out <path>", "where it goes (standard output when unset)")),
    async () => (await import("./command/workflow-export.ts")).workflowExport,
  );
}
