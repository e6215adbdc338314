/** What lies in deploy/, as tests look at it: settings of systemd units and environment files, and the options that commands have. */
import type { Command } from "commander";
import { program } from "../../cmd/program.ts";
import { readSource } from "../sources.ts";

/** Options of the command of these names, such as `--listen`. */
export function optionsOf(...names: string[]): Set<string> {
  let at: Command = program(
    () => {
      throw new Error("No command is run here");
    },
    () => {},
  );
  const known: string[] = [];
  for (const name of ["", ...names]) {
    if (name !== "") at = at.commands.find((each) => each.name() === name) as Command;
    known.push(...at.options.map(({ long }) => long as string));
  }
  return new Set(known);
}

/** Options that stand in a text. */
export const optionsIn = (text: string) => [...text.matchAll(/(?<![\w-])--[a-z][a-z-]*/g)].map(([option]) => option);

/** Values of a setting in a unit, in order; long lines are joined. */
export async function unitSettings(file: string, setting: string): Promise<string[]> {
  const text = (await readSource(`deploy/systemd/${file}`)).replace(/\\\n\s*/g, "");
  return text
    .split("\n")
    .filter((line) => line.startsWith(`${setting}=`))
    .map((line) => line.slice(setting.length + 1));
}

/** Assignments of an environment file; with `commented`, those behind a # too. */
export async function environmentOf(file: string, { commented }: { readonly commented: boolean }): Promise<Map<string, string>> {
  const pattern = commented ? /^#?([A-Z_]+)=(.*)$/gm : /^([A-Z_]+)=(.*)$/gm;
  return new Map([...(await readSource(`deploy/systemd/${file}`)).matchAll(pattern)].map(([, name = "", value = ""]) => [name, value]));
}

/** A command as systemd expands it: `${NAME}` within a word, `$NAME` as words of its own, none where it is empty. */
export function expanded(command: string, env: ReadonlyMap<string, string>): string[] {
  return command
    .split(/\s+/)
    .flatMap((word) =>
      /^\$[A-Z_]+$/.test(word)
        ? (env.get(word.slice(1)) ?? "").split(/\s+/).filter((each) => each !== "")
        : [word.replace(/\$\{([A-Z_]+)\}/g, (_, name: string) => env.get(name) ?? "")],
    );
}
