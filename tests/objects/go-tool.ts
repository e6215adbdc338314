/**
 * Servers that tests need and that come as Go modules: built once, in a pinned version, into a
 * folder that git ignores. Where that can't be done, the reason is what tests are skipped with.
 */
import { existsSync, mkdirSync, renameSync, rmSync } from "node:fs";
import { join } from "node:path";
import { FolderLock } from "../../store/lock.ts";
import { root } from "../sources.ts";
import { until } from "../until.ts";

export interface GoTool {
  readonly name: string;
  /** Package to build. */
  readonly path: string;
  readonly version: string;
}

export type BuiltTool = { readonly file: string; readonly reason?: undefined } | { readonly file?: undefined; readonly reason: string };

const buildMsMax = 10 * 60_000;

/** The tool's executable, built if it is not there; with `onlyIfBuilt`, found or not. */
export async function goTool({ name, path, version }: GoTool, onlyIfBuilt?: string): Promise<BuiltTool> {
  const dir = join(root, "node_modules", ".cache", "hopskip-tools", `${name}-${version}`);
  const file = join(dir, name);
  if (existsSync(file)) return { file };
  if (onlyIfBuilt !== undefined) return { reason: `${name} is not built yet; ${onlyIfBuilt}` };
  if (Bun.which("go") === null) return { reason: `${name} can't be built: go is not installed` };
  // Two test files may want it at once.
  const lock = await until(() => acquired(dir), { withinMs: buildMsMax, what: `another process to build ${name}` });
  try {
    return existsSync(file) ? { file } : await build({ name, path, version }, dir, file);
  } finally {
    lock.release();
  }
}

function acquired(dir: string): FolderLock | undefined {
  try {
    return FolderLock.acquire(dir);
  } catch {
    return undefined;
  }
}

async function build({ name, path, version }: GoTool, dir: string, file: string): Promise<BuiltTool> {
  const fresh = join(dir, "fresh");
  mkdirSync(fresh, { recursive: true });
  console.log(`building ${name} ${version} (once; minutes where Go's cache is cold) …`);
  const child = Bun.spawn(["go", "install", `${path}@${version}`], {
    cwd: dir,
    env: { ...process.env, GOBIN: fresh },
    stdin: "ignore",
    stdout: "ignore",
    stderr: "pipe",
    timeout: buildMsMax,
  });
  const said = await new Response(child.stderr).text();
  if ((await child.exited) !== 0) return { reason: `${name} can't be built: ${said.trim().split("\n").at(-1) || "it took too long"}` };
  // Nobody finds half an executable.
  renameSync(join(fresh, name), file);
  rmSync(fresh, { recursive: true });
  return { file };
}
