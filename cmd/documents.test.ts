/** Every `hop` command that a document shows in a block of shell exists, with every option that it shows. */
import { expect, test } from "bun:test";
import type { Command } from "commander";
import { filesLike, readSource } from "../tests/sources.ts";
import { program } from "./program.ts";

const root = program(
  () => {
    throw new Error("no command runs here");
  },
  () => {},
);

/** Command lines of the `sh` blocks: one for each line and each part of it that begins with `hop`. */
function commandLines(text: string): string[] {
  const blocks = [...text.matchAll(/^```sh\n([\s\S]*?)^```/gm)].map(([, block = ""]) => block);
  return blocks.flatMap((block) =>
    block
      .replaceAll("\\\n", " ")
      .split("\n")
      .map((line) => line.replace(/(^|\s)#.*$/, ""))
      .flatMap((line) => line.split(/&&|\|\||[;|]/))
      .map((part) => part.trim())
      .filter((part) => /^hop(\s|$)/.test(part)),
  );
}

/** What is wrong with a command line, or undefined. */
function problemOf(line: string): string | undefined {
  const words = line.split(/\s+/).slice(1);
  const path: Command[] = [root];
  let at = root;
  for (const word of words) {
    const next = at.commands.find((command) => command.name() === word || command.aliases().includes(word));
    if (next !== undefined) {
      at = next;
      path.push(next);
    } else if (at.commands.length > 0 && at.registeredArguments.length === 0 && !word.startsWith("-"))
      return `${at.name()} has no command ${word}`;
    else break;
  }
  const known = path.flatMap((command) => command.options.flatMap(({ long, short }) => [long, short]));
  const unknown = words.find((word) => /^--?[a-z]/.test(word) && !known.includes(word.split("=")[0]) && !["--help", "-h"].includes(word));
  return unknown === undefined ? undefined : `${path.map((command) => command.name()).join(" ")} has no option ${unknown}`;
}

test("commands that documents show exist", async () => {
  const errors: string[] = [];
  let count = 0;
  for (const file of ["README.md", ...filesLike("docs/*.md")]) {
    for (const line of commandLines(await readSource(file))) {
      count++;
      const problem = problemOf(line);
      if (problem !== undefined) errors.push(`${file}: ${line}: ${problem}`);
    }
  }
  expect(errors).toEqual([]);
  expect(count).toBeGreaterThan(40);
});

test("a command that does not exist is found", () => {
  expect(problemOf("hop cluster frobnicate")).toBe("cluster has no command frobnicate");
  expect(problemOf("hop shard split 1 --half")).toBe("hop shard split has no option --half");
  expect(commandLines("```sh\nhop init a && cd a   # hop no\nx | hop run -\n```\n`hop y`")).toEqual(["hop init a", "hop run -"]);
});
