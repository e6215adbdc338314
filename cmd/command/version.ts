/** `hop version`. */
import type { Context, GlobalOptions } from "../context.ts";
import { type ExitCode, exit } from "../failure.ts";
import { version } from "../version.ts";

export async function printVersion({ output }: Context, _options: GlobalOptions): Promise<ExitCode> {
  if (output.isForPeople) output.line(`hop ${version}`);
  else if (output.format === "ids") output.line(version);
  else output.json({ version, runtime: `bun ${Bun.version}`, platform: `${process.platform}-${process.arch}` });
  return exit.ok;
}
