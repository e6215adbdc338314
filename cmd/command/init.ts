/** `hop init`: makes a project that runs at once. What exists is never written over. */
import { existsSync } from "node:fs";
import { mkdir, writeFile } from "node:fs/promises";
import { basename, join, relative, resolve } from "node:path";
import type { Context, GlobalOptions } from "../context.ts";
import { CommandError, type ExitCode, exit, UsageError } from "../failure.ts";
import { faultText } from "../input.ts";
import { projectFiles } from "../project/files.ts";
import { visible } from "../terminal.ts";

export async function init({ output }: Context, _options: GlobalOptions, name: string): Promise<ExitCode> {
  if (name.trim() === "") throw new UsageError("Cannot make a project: its name is empty");
  const folder = resolve(name);
  const files = projectFiles(packageName(folder));
  const taken = files.filter((file) => existsSync(join(folder, file.name)));
  if (taken.length > 0) {
    throw new CommandError(exit.conflict, `Cannot make a project in ${name}: it already has ${taken.map((file) => file.name).join(", ")}`, {
      next: "choose another name, or move these files away",
    });
  }
  try {
    await mkdir(folder, { recursive: true });
    for (const file of files) await writeFile(join(folder, file.name), file.text, { flag: "wx" });
  } catch (error) {
    throw new CommandError(exit.failed, `Cannot make a project in ${name}: ${faultText(error)}`, { cause: error });
  }
  const isHere = relative(process.cwd(), folder) === "";
  const commands = [`${isHere ? "" : `cd ${shellWord(name)} && `}hop dev`, `hop run hello --input '"Ada"' --follow`];
  if (!output.isForPeople) {
    if (output.format === "ids") output.line(folder);
    else output.json({ folder, files: files.map((file) => file.name), next: commands });
    return exit.ok;
  }
  output.say(`Made ${visible(name)} with ${files.map((file) => file.name).join(", ")}. Now:\n`);
  output.line(`  ${output.paint("bold", commands[0] as string)}`);
  output.line(`  ${output.paint("bold", commands[1] as string)}   # in a second terminal, in the same folder`);
  return exit.ok;
}

/** A name that package.json may hold. */
function packageName(folder: string): string {
  const name = basename(folder)
    .toLowerCase()
    .replace(/[^a-z0-9._-]+/g, "-")
    .replace(/^[._-]+|-+$/g, "");
  if (name === "" && basename(folder) === "") throw new UsageError("Cannot make a project in the root folder: want a name");
  return name === "" ? "hopskip-project" : name.slice(0, 200);
}

const shellWord = (text: string) => (/^[\w./@%+=:,-]+$/.test(text) ? text : `'${text.replaceAll("'", "'\\''")}'`);
