/** `hop testkit`: puts the packages that workflow tests import into a project, of the same version as this executable. */
import { existsSync } from "node:fs";
import { cp, mkdir } from "node:fs/promises";
import { dirname, join, resolve } from "node:path";
import { extractAssets } from "../assets/assets.ts";
import type { Context, GlobalOptions } from "../context.ts";
import { CommandError, type ExitCode, exit, UsageError } from "../failure.ts";
import { faultText } from "../input.ts";
import { visible } from "../terminal.ts";

export async function testkit({ output }: Context, _options: GlobalOptions, folder = "."): Promise<ExitCode> {
  if (!existsSync(join(folder, "package.json"))) {
    const message = `Cannot put the test kit into ${visible(folder)}: there is no package.json`;
    throw new UsageError(message, { next: "name the project's folder, or make one with `hop init`" });
  }
  const { testingCode } = await extractAssets(["testkit"]);
  const from = dirname(dirname(testingCode));
  const to = join(resolve(folder), "node_modules", "@hopskip");
  const names = ["testing", "runtime", "activity"];
  try {
    await mkdir(to, { recursive: true });
    for (const name of names) await cp(join(from, name), join(to, name), { recursive: true, force: true });
  } catch (error) {
    throw new CommandError(exit.failed, `Cannot put the test kit into ${folder}: ${faultText(error)}`, { cause: error });
  }
  const packages = names.map((name) => `@hopskip/${name}`);
  if (output.isForPeople) output.line(`Put ${packages.join(", ")} into ${visible(to)}`);
  else if (output.format === "ids") for (const name of packages) output.line(name);
  else output.json({ folder: to, packages });
  return exit.ok;
}
