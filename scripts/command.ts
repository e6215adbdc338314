/**
 * Runs the tools that the scripts are made of, from the repository's root, with the tools of
 * node_modules first on the path.
 */
import { delimiter, join } from "node:path";
import { fileURLToPath } from "node:url";
import type { Subprocess } from "bun";

export const root = fileURLToPath(new URL("..", import.meta.url));
export const bun = process.execPath;

export interface Outcome {
  readonly ok: boolean;
  /** Standard output and error, in the order written as far as it is known. */
  readonly output: string;
  readonly seconds: number;
}

const environment = { ...process.env, PATH: `${join(root, "node_modules", ".bin")}${delimiter}${process.env.PATH ?? ""}` };

/** Runs to the end and keeps the output. A command that can't be started is an outcome too. */
export async function capture(command: readonly string[], cwd = root): Promise<Outcome> {
  const begun = performance.now();
  const seconds = () => (performance.now() - begun) / 1000;
  try {
    const child = Bun.spawn([...command], { cwd, env: environment, stdin: "ignore", stdout: "pipe", stderr: "pipe" });
    const [out, err, code] = await Promise.all([child.stdout.text(), child.stderr.text(), child.exited]);
    return { ok: code === 0, output: `${out}${err}`, seconds: seconds() };
  } catch (error) {
    return {
      ok: false,
      output: `Cannot run ${command[0]}: ${error instanceof Error ? error.message : String(error)}\n`,
      seconds: seconds(),
    };
  }
}

/** Runs with the output shown, after printing the command. Returns the exit code. */
export async function show(command: readonly string[], options: { readonly onStart?: (child: Subprocess) => void } = {}): Promise<number> {
  console.error(`$ ${command.map((word) => (word === bun ? "bun" : word)).join(" ")}`);
  const child = Bun.spawn([...command], { cwd: root, env: environment, stdin: "ignore", stdout: "inherit", stderr: "inherit" });
  options.onStart?.(child);
  return child.exited;
}

/** Runs `jobs`, at most `lanes` at a time, each lane taking the next one as it gets free. */
export async function inLanes(lanes: number, jobs: readonly (() => Promise<void>)[]): Promise<void> {
  const waiting = [...jobs];
  const lane = async (): Promise<void> => {
    for (let job = waiting.shift(); job !== undefined; job = waiting.shift()) await job();
  };
  await Promise.all(Array.from({ length: lanes }, lane));
}
