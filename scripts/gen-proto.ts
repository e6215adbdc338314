/**
 * Generates proto/gen from the schema: descriptors by buf and protoc-gen-es, the codec by
 * gen-codec.ts. `--check` generates into a folder of its own and compares, changing nothing.
 */
import { cpSync, mkdtempSync, readdirSync, readFileSync, rmSync, symlinkSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { bun, capture, root } from "./command.ts";

async function generate(folder: string): Promise<void> {
  for (const command of [
    ["buf", "generate"],
    [bun, "scripts/gen-codec.ts"],
  ]) {
    const { ok, output } = await capture(command, folder);
    if (!ok) throw new Error(`Cannot generate: ${command.join(" ")} failed\n${output}`);
  }
}

const filesIn = (folder: string) => readdirSync(folder, { recursive: true, withFileTypes: true }).filter((entry) => entry.isFile());

function textsOf(folder: string): Map<string, string> {
  const gen = join(folder, "proto", "gen");
  return new Map(
    filesIn(gen).map((entry) => {
      const path = join(entry.parentPath, entry.name);
      return [path.slice(folder.length + 1), readFileSync(path, "utf8")];
    }),
  );
}

/** Names of generated files that are not what the schema gives. */
async function differences(): Promise<string[]> {
  const folder = mkdtempSync(join(tmpdir(), "hop-gen-"));
  try {
    for (const part of ["proto", "scripts", "buf.yaml", "buf.gen.yaml", "package.json"]) {
      cpSync(join(root, part), join(folder, part), { recursive: true });
    }
    symlinkSync(join(root, "node_modules"), join(folder, "node_modules"));
    rmSync(join(folder, "proto", "gen", "hopskip"), { recursive: true, force: true });
    await generate(folder);
    const want = textsOf(folder);
    const got = textsOf(root.replace(/\/$/, ""));
    return [...new Set([...want.keys(), ...got.keys()])].filter((name) => want.get(name) !== got.get(name)).sort();
  } finally {
    rmSync(folder, { recursive: true, force: true });
  }
}

if (process.argv.includes("--check")) {
  const stale = await differences();
  for (const name of stale) console.error(`${name}: not what the schema gives; run npm run gen`);
  process.exitCode = stale.length === 0 ? 0 : 1;
} else await generate(root);
