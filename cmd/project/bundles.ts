/** Workflow files into bundles, one for each file: a change of one leaves the others as they are. */
import { relative } from "node:path";
import { type Bundle, bundleWorkflows } from "#worker";
import { CommandError, exit, UsageError } from "../failure.ts";

export interface FileBundle extends Bundle {
  /** Absolute path. */
  readonly file: string;
}

/** A path as people read it: from here where it is below, else as it is. */
export function shownFile(file: string): string {
  const near = relative(process.cwd(), file);
  return near === "" || near.startsWith("..") ? file : near;
}

/** Bundles one file. Throws `CommandError` with every problem on a line of its own. */
export async function bundleFile(file: string): Promise<FileBundle> {
  try {
    return { file, ...(await bundleWorkflows({ files: [file] })) };
  } catch (error) {
    const problems =
      error instanceof Error && "problems" in error
        ? (error.problems as string[])
        : [error instanceof Error ? error.message : String(error)];
    throw new CommandError(exit.failed, `Cannot bundle ${shownFile(file)}:\n${problems.map((problem) => `  ${problem}`).join("\n")}`, {
      cause: error,
    });
  }
}

/** Refuses two files that export a workflow of one name: which of them would run would depend on their order. */
export function checkTypes(bundles: readonly FileBundle[]): void {
  const owners = new Map<string, string>();
  for (const { file, workflows } of bundles) {
    for (const type of workflows) {
      const other = owners.get(type);
      if (other !== undefined && other !== file)
        throw new UsageError(`Cannot deploy workflow ${type} twice: ${shownFile(other)} and ${shownFile(file)} both export it`);
      owners.set(type, file);
    }
  }
}
