/**
 * Activities out of the user's files, loaded into this process and loaded again when they change.
 *
 * The SDK's packages are part of the executable: an activity file may import them with nothing
 * installed.
 */
import { existsSync, readFileSync } from "node:fs";
import { createRequire } from "node:module";
import { dirname } from "node:path";
import { plugin } from "bun";
import type { loadActivities } from "#worker";
import { CommandError, exit } from "../failure.ts";

type Activities = Awaited<ReturnType<typeof loadActivities>>;

/** What workers call by name; reloading replaces functions in place. */
export class ActivityFiles {
  readonly activities: Record<string, Activities[string]> = {};
  readonly #files: readonly string[];

  constructor(files: readonly string[]) {
    this.#files = files;
    provideSdk();
  }

  /** Loads absolute paths. Throws where one can't be loaded or two export one name. */
  static async load(files: readonly string[]): Promise<ActivityFiles> {
    const loaded = new ActivityFiles(files);
    await loaded.reload([]);
    return loaded;
  }

  /** What the files hold now, to tell whether they changed. */
  get text(): string {
    return this.#files.map((file) => (existsSync(file) ? readFileSync(file, "utf8") : "")).join("\0");
  }

  get names(): string[] {
    return Object.keys(this.activities).sort();
  }

  /** Loads the files and what they import anew. Returns whether names came or went; on failure the old ones stay. */
  async reload(folders: readonly string[]): Promise<boolean> {
    const before = this.names.join("\n");
    forget([...folders, ...this.#files.map((file) => dirname(file))]);
    const fresh = await this.#exports();
    for (const name of Object.keys(this.activities)) if (!Object.hasOwn(fresh, name)) delete this.activities[name];
    Object.assign(this.activities, fresh);
    return this.names.join("\n") !== before;
  }

  async #exports(): Promise<Record<string, Activities[string]>> {
    const all: Record<string, Activities[string]> = {};
    for (const file of this.#files) {
      for (const [name, activity] of Object.entries(await loadOne(file))) {
        if (Object.hasOwn(all, name))
          throw new CommandError(
            exit.failed,
            `Cannot load activities: ${name} is exported by ${file} and by another file; want each name once`,
          );
        all[name] = activity;
      }
    }
    return all;
  }
}

async function loadOne(file: string): Promise<Activities> {
  try {
    const worker = await import("#worker");
    return await worker.loadActivities(file);
  } catch (error) {
    throw new CommandError(exit.failed, error instanceof Error ? error.message : String(error), { cause: error });
  }
}

/** Drops modules below the folders from the engine's registry, packages apart, so that the next import reads them. */
function forget(folders: readonly string[]): void {
  const { cache } = createRequire(import.meta.url);
  for (const path of Object.keys(cache)) {
    if (!path.includes("/node_modules/") && folders.some((folder) => path.startsWith(`${folder}/`))) delete cache[path];
  }
}

let isProvided = false;

function provideSdk(): void {
  if (isProvided) return;
  isProvided = true;
  plugin({
    name: "hopskip-sdk",
    setup(build) {
      build.module("@hopskip/runtime", async () => ({ exports: { ...(await import("#sdk/runtime")) }, loader: "object" }));
      build.module("@hopskip/activity", async () => ({ exports: { ...(await import("#sdk/activity")) }, loader: "object" }));
      build.module("@hopskip/client", async () => ({ exports: { ...(await import("#sdk/client")) }, loader: "object" }));
    },
  });
}
