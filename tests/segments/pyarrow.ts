/** Another implementation of Parquet to read with: pyarrow, installed once into a folder that git ignores. */
import { existsSync, mkdirSync, renameSync, rmSync } from "node:fs";
import { join } from "node:path";
import { root } from "../sources.ts";

const version = "26.0.1";
const place = join(root, "node_modules", ".cache", "hopskip", `pyarrow-${version}`);

/** Runs Python with arguments; rejects with what it says where it fails. */
export type Python = (...args: string[]) => Promise<string>;

async function run(command: string[]): Promise<string> {
  const child = Bun.spawn(command, { stdout: "pipe", stderr: "pipe", env: { ...process.env, PIP_DISABLE_PIP_VERSION_CHECK: "1" } });
  const [out, err, code] = await Promise.all([child.stdout.text(), child.stderr.text(), child.exited]);
  if (code !== 0) throw new Error(`Cannot run ${command.join(" ")}: ${err.trim().slice(-500)}`);
  return out;
}

/** A Python that has pyarrow, or why there is none. */
export async function pythonWithArrow(): Promise<Python | string> {
  try {
    if (!existsSync(place)) {
      if (process.env.HOP_INSTALL === "never") return "HOP_INSTALL=never, and pyarrow is not installed";
      await install();
    }
    const python = join(place, "bin", "python");
    await run([python, "-c", "import pyarrow.parquet"]);
    return (...args) => run([python, ...args]);
  } catch (error) {
    return error instanceof Error ? error.message : String(error);
  }
}

/** Beside its place first: a half-made one is never taken for it. */
async function install(): Promise<void> {
  const aside = `${place}.${process.pid}.tmp`;
  mkdirSync(aside, { recursive: true });
  try {
    await run(["python3", "-m", "venv", aside]);
    await run([
      join(aside, "bin", "python"),
      "-m",
      "pip",
      "install",
      "--quiet",
      "--retries",
      "1",
      "--timeout",
      "15",
      `pyarrow==${version}`,
    ]);
    if (!existsSync(place)) renameSync(aside, place);
  } finally {
    rmSync(aside, { recursive: true, force: true });
  }
}
