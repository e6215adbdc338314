/**
 * Runs scenario files: `command args…` / input lines / `----` / expected output / blank line.
 *
 * Lines that begin with `#` before a command are its story. Output that holds a blank line is
 * fenced: `----` twice, the output, `----` twice. `REWRITE=1 bun test …` writes what came out
 * back into the file. Shape taken from cockroachdb/datadriven.
 */
import { expect, test } from "bun:test";
import { join } from "node:path";
import { Glob } from "bun";

/** One directive. `args` keeps `key=value` pairs and bare words (value ""); `pos` is `file:line`. */
export interface Directive {
  readonly cmd: string;
  readonly args: ReadonlyMap<string, string>;
  readonly input: string;
  readonly pos: string;
}

export type Handle = (directive: Directive) => string | Promise<string>;

interface Block {
  /** Story, command and input as they stand in the file. */
  readonly raw: string[];
  readonly directive: Directive;
  readonly expected: string;
}

const fence = "----";

function argsOf(words: readonly string[]): Map<string, string> {
  return new Map(
    words.map((word) => {
      const at = word.indexOf("=");
      return at < 0 ? [word, ""] : [word.slice(0, at), word.slice(at + 1)];
    }),
  );
}

/** Expected output that begins at `lines[at]`, and where the next block can begin. */
function outputAt(lines: readonly string[], at: number, pos: string): { expected: string; next: number } {
  if (lines[at] !== fence) {
    let end = at;
    while (end < lines.length && lines[end] !== "") end++;
    return { expected: lines.slice(at, end).join("\n"), next: end };
  }
  let end = at + 1;
  while (end < lines.length && !(lines[end] === fence && lines[end + 1] === fence)) end++;
  if (end >= lines.length) throw new SyntaxError(`Cannot parse scenario ${pos}: its fenced output has no end`);
  return { expected: lines.slice(at + 1, end).join("\n"), next: end + 2 };
}

/** Blocks of a scenario's text, and the lines after the last one. */
export function parseScenario(file: string, text: string): { blocks: Block[]; tail: string[] } {
  const lines = text.split("\n");
  const blocks: Block[] = [];
  let head: string[] = [];
  for (let i = 0; i < lines.length; ) {
    const line = lines[i] as string;
    if (line.trim() === "" || line.startsWith("#")) {
      head.push(line);
      i++;
      continue;
    }
    const pos = `${file}:${i + 1}`;
    const rule = lines.indexOf(fence, i);
    if (rule < 0) throw new SyntaxError(`Cannot parse scenario ${pos}: no ${fence} after the directive`);
    const [cmd = "", ...words] = line.trim().split(/\s+/);
    const directive = { cmd, args: argsOf(words), input: lines.slice(i + 1, rule).join("\n"), pos };
    const { expected, next } = outputAt(lines, rule + 1, pos);
    blocks.push({ raw: [...head, ...lines.slice(i, rule)], directive, expected });
    head = [];
    i = next;
  }
  return { blocks, tail: head };
}

/** A block's output as it is written: fenced where it holds a blank line or a rule. */
export function writtenOutput(actual: string): string[] {
  if (actual === "") return [fence];
  const plain = actual.split("\n").every((line) => line !== "" && line !== fence);
  return plain ? [fence, actual] : [fence, fence, actual, fence, fence];
}

/** Registers one test for each `*.txt` under `folder`. `open` makes a fresh environment for each file. */
export function scenarios(folder: string, open: () => Handle): void {
  const names = [...new Glob("**/*.txt").scanSync(folder)].sort();
  if (names.length === 0) throw new Error(`Cannot find scenarios: no *.txt under ${folder}`);
  for (const name of names) {
    test(name, async () => {
      const path = join(folder, name);
      const { blocks, tail } = parseScenario(name, await Bun.file(path).text());
      const handle = open();
      const written: string[] = [];
      for (const { raw, directive, expected } of blocks) {
        const actual = (await handle(directive)).trimEnd();
        written.push(...raw, ...writtenOutput(actual));
        if (process.env.REWRITE !== "1") expect(`${directive.pos}\n${actual}`).toBe(`${directive.pos}\n${expected}`);
      }
      if (process.env.REWRITE === "1") await Bun.write(path, [...written, ...tail].join("\n"));
    });
  }
}
