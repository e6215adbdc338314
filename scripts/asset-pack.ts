/**
 * Packs the native parts for the executable: strips Node of its symbols, compresses what is large
 * (kept in dist/cache by the hash of what went in), and writes the module that embeds them.
 */
import { existsSync, mkdirSync, renameSync } from "node:fs";
import { join } from "node:path";
import type { AssetFolder } from "../cmd/assets/folder.ts";
import { type AssetSource, assetKeys, assetSources } from "../cmd/assets/sources.ts";
import { capture, root } from "./command.ts";

/** Level 19 takes 45 s and saves a tenth over level 9: worth it for a release only. */
const levels = { release: 19, quick: 9 } as const;

const cache = join(root, "dist", "cache");
const hashOf = (bytes: Uint8Array | string) => new Bun.CryptoHasher("sha256").update(bytes).digest("hex");

/** `make` writes the file it is given; it is called once for each `key`. */
async function cached(name: string, key: string, make: (path: string) => Promise<void>): Promise<string> {
  mkdirSync(cache, { recursive: true });
  const path = join(cache, `${hashOf(key).slice(0, 16)}-${name}`);
  if (existsSync(path)) return path;
  const aside = `${path}.${process.pid}.tmp`;
  await make(aside);
  renameSync(aside, path);
  return path;
}

/** The executable without symbols: 18 MB less. Left as it is where `strip` is not installed. */
async function stripped(path: string, hash: string): Promise<string> {
  if (Bun.which("strip") === null) return path;
  return cached("node-stripped", `strip ${hash}`, async (aside) => {
    const { ok, output } = await capture(["strip", "-o", aside, path]);
    if (!ok) throw new Error(`Cannot strip ${path}: ${output}`);
  });
}

async function compressed(path: string, hash: string, level: number): Promise<string> {
  return cached("asset.zst", `zstd ${level} ${hash}`, async (aside) => {
    await Bun.write(aside, await Bun.zstdCompress(await Bun.file(path).bytes(), { level }));
  });
}

/** Path of the generated module, which takes the place of cmd/assets/embedded.ts in the executable. */
export async function packAssets(release: boolean): Promise<string> {
  const imports: string[] = [];
  const folders = new Map<string, AssetFolder["files"][number][]>();
  for (const key of assetKeys) {
    const source: AssetSource = assetSources[key];
    const origin = join(root, source.path);
    if (!existsSync(origin)) throw new Error(`Cannot pack ${source.path}: it is not there`);
    const path = source.executable ? await stripped(origin, hashOf(await Bun.file(origin).bytes())) : origin;
    const bytes = await Bun.file(path).bytes();
    const sha256 = hashOf(bytes);
    const file = await compressed(path, sha256, release ? levels.release : levels.quick);
    imports.push(`import ${key} from ${JSON.stringify(file)} with { type: "file" };`);
    const entry = {
      name: source.name,
      sha256,
      bytes: bytes.length,
      compression: "zstd" as const,
      executable: source.executable ?? false,
      file: key,
    };
    folders.set(source.folder, [...(folders.get(source.folder) ?? []), entry]);
  }
  const written = [...folders].map(([name, files]) => {
    const sha256 = hashOf(files.map((each) => `${each.name} ${each.sha256}\n`).join(""));
    const list = files.map((each) => JSON.stringify(each).replace(/"file":"(\w+)"/, "file: $1"));
    return `  { name: ${JSON.stringify(name)}, sha256: ${JSON.stringify(sha256)}, files: [\n    ${list.join(",\n    ")},\n  ] },`;
  });
  const text = `${imports.join("\n")}\nexport const embedded = [\n${written.join("\n")}\n];\n`;
  return cached("embedded.ts", text, async (aside) => void (await Bun.write(aside, text)));
}
