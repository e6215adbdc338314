/**
 * The native parts that roles need beside the executable: Node (V8's home), the addon, and the
 * scripts that run in it.
 *
 * The executable carries them and extracts them to a cache folder on first use; a source run takes
 * them from node_modules, dist and the source tree.
 */
import { existsSync } from "node:fs";
import { homedir } from "node:os";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { embedded } from "./embedded.ts";
import { AssetError, extractFolder } from "./folder.ts";
import { type AssetPaths, assetKeys, assetSources } from "./sources.ts";

export { AssetError } from "./folder.ts";
export type { AssetPaths } from "./sources.ts";

/** Where the executable keeps what it has extracted: HOP_CACHE, else below the user's cache folder. */
export function cacheFolder(env: Readonly<Record<string, string | undefined>> = process.env): string {
  if (env.HOP_CACHE) return env.HOP_CACHE;
  return join(env.XDG_CACHE_HOME || join(env.HOME || homedir(), ".cache"), "hopskip");
}

const pathsBy = (pathOf: (key: (typeof assetKeys)[number]) => string) =>
  Object.fromEntries(assetKeys.map((key) => [key, pathOf(key)])) as Record<(typeof assetKeys)[number], string>;

/** Paths of the native parts in a source run. Throws `AssetError` where one was not built. */
function sourcePaths(): AssetPaths {
  const root = fileURLToPath(new URL("../..", import.meta.url));
  return pathsBy((key) => {
    const path = join(root, assetSources[key].path);
    if (!existsSync(path)) throw new AssetError(`Cannot find ${assetSources[key].path}: run npm run build first`);
    return path;
  });
}

/** Paths of the native parts, extracted below `cache` first where that is needed. Throws `AssetError`. */
export async function extractAssets(cache: string = cacheFolder()): Promise<AssetPaths> {
  if (embedded === undefined) return sourcePaths();
  const folders = new Map<string, string>();
  for (const folder of embedded) folders.set(folder.name, await extractFolder(cache, folder));
  return pathsBy((key) => join(folders.get(assetSources[key].folder) as string, assetSources[key].name));
}
