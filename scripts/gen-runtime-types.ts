/**
 * Writes cmd/project/hopskip-runtime.d.txt: the types of `@hopskip/runtime` in one file, which
 * `hop init` puts into a new project, so that editors know them without an installed package.
 *
 * `bun scripts/gen-runtime-types.ts [--check]`; with --check it only says whether the file is up to date.
 */
import { mkdtempSync, readdirSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";

const root = join(import.meta.dir, "..");
const runtime = join(root, "sdk/typescript/runtime");
export const typesFile = join(root, "cmd/project/hopskip-runtime.d.txt");

/** Declarations of each module, by its file name. */
function emit(): Map<string, string> {
  const folder = mkdtempSync(join(tmpdir(), "hop-types-"));
  try {
    const flags = ["--declaration", "--emitDeclarationOnly", "--outDir", folder, "--strict", "--target", "esnext", "--module", "esnext"];
    const more = ["--moduleResolution", "bundler", "--allowImportingTsExtensions", "--lib", "esnext", "--types", "", "--ignoreConfig"];
    const result = Bun.spawnSync([join(root, "node_modules/.bin/tsc"), ...flags, ...more, join(runtime, "index.ts")], { cwd: root });
    if (result.exitCode !== 0)
      throw new Error(`Cannot emit the runtime's declarations:\n${result.stdout.toString()}${result.stderr.toString()}`);
    return new Map(
      readdirSync(folder)
        .sort()
        .map((name) => [name.replace(".d.ts", ""), readFileSync(join(folder, name), "utf8")]),
    );
  } finally {
    rmSync(folder, { recursive: true, force: true });
  }
}

/** Names that the index exports. */
function exportedNames(index: string): string[] {
  const lists = [...index.matchAll(/export (?:type )?\{([^}]*)\} from/g)].map((match) => match[1] as string);
  return lists
    .flatMap((list) => list.split(","))
    .map((name) => name.trim())
    .filter((name) => name !== "");
}

/** The modules an entry reaches, each after those it imports. */
function inOrder(modules: ReadonlyMap<string, string>): string[] {
  const order: string[] = [];
  const visited = new Set<string>();
  const visit = (name: string): void => {
    const text = modules.get(name);
    // An example in a comment may name a module that is not one of these.
    if (text === undefined || visited.has(name)) return;
    visited.add(name);
    for (const match of text.matchAll(/from "\.\/([\w-]+)\.ts"/g)) visit(match[1] as string);
    order.push(name);
  };
  visit("index");
  return order.filter((name) => name !== "index");
}

/** The types in one ambient module. What the index does not export is declared but stays inside. */
export function runtimeTypes(): string {
  const modules = emit();
  const body = inOrder(modules).map((name) => moduleBody(modules.get(name) as string));
  const names = exportedNames(modules.get("index") as string).sort();
  const lines = [...body.join("\n").split("\n"), `export { ${names.join(", ")} };`].map((line) => (line === "" ? "" : `  ${line}`));
  return `/** Types of @hopskip/runtime, written by hop: what workflows and activities are made with. */\ndeclare module "@hopskip/runtime" {\n${lines.join("\n")}\n}\n`;
}

function moduleBody(declarations: string): string {
  return declarations
    .replace(/^\/\*\*[\s\S]*?\*\/\n(?=import|export (?:type )?\{|\/\*\*)/, "")
    .replace(/^import .*;\n/gm, "")
    .replace(/^export (?:type )?\{.*\} from .*;\n/gm, "")
    .replace(/^export \{\};\n/gm, "")
    .replace(/^export (declare )?/gm, "")
    .replace(/^declare /gm, "")
    .replace(/^(?: {4})+/gm, (indent) => " ".repeat(indent.length / 2))
    .trim();
}

if (import.meta.main) {
  const types = runtimeTypes();
  if (!process.argv.includes("--check")) writeFileSync(typesFile, types);
  else if (readFileSync(typesFile, "utf8") !== types) {
    console.error("cmd/project/hopskip-runtime.d.txt is not what the runtime's sources give: run bun scripts/gen-runtime-types.ts");
    process.exitCode = 1;
  }
}
