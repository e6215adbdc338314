/**
 * The native parts that roles need beside the executable: Node (V8's home), the addon and the
 * scripts that run in it; DuckDB.
 *
 * The executable carries them and extracts those that a role names to a cache folder on first use;
 * a source run takes them from node_modules, dist and the source tree.
 */
import { existsSync } from "node:fs";
import { homedir } from "node:os";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { embedded } from "./embedded.ts";
import { AssetError, extractFolder } from "./folder.ts";
import { type AssetFolderName, type AssetPaths, assetKeys, assetSources } from "./sources.ts";

export { AssetError } from "./folder.ts";
export type { AssetPaths } from "./sources.ts";

/** Where the executable keeps what it has extracted: HOP_CACHE, else below the user's cache folder. */
export function cacheFolder(env: Readonly<Record<string, string | undefined>> = process.env): string {
  if (env.HOP_CACHE) return env.HOP_CACHE;
  return join(env.XDG_CACHE_HOME || join(env.HOME || homedir(), ".cache"), "hopskip");
}

/** Path of a native part in a source run. Throws `AssetError` where it was not built. */
function sourcePath(path: string): string {
  const found = join(fileURLToPath(new URL("../..", import.meta.url)), path);
  if (!existsSync(found)) throw new AssetError(`Cannot find ${path}: run npm run build first`);
  return found;
}

/** Paths of the native parts of these folders, extracted below `cache` first where that is needed. Throws `AssetError`. */
export async function extractAssets<Folder extends AssetFolderName>(
  names: readonly Folder[],
  cache: string = cacheFolder(),
): Promise<AssetPaths<Folder>> {
  const folders = new Map<string, string>();
  for (const folder of embedded ?? [])
    if (names.some((name) => name === folder.name)) folders.set(folder.name, await extractFolder(cache, folder));
  const paths: Record<string, string> = {};
  for (const key of assetKeys) {
    const { folder, name, path } = assetSources[key];
    if (names.some((each) => each === folder))
      paths[key] = embedded === undefined ? sourcePath(path) : join(folders.get(folder) as string, name);
  }
  return paths as AssetPaths<Folder>;
}
