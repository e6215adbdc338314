/**
 * Writes cmd/project/hopskip-runtime.d.txt: the types of `@hopskip/runtime`, `@hopskip/activity`,
 * `@hopskip/client` and `@hopskip/testing` in one file, which `hop init` puts into a new project, so that editors know them
 * without an installed package.
 *
 * `bun scripts/gen-runtime-types.ts [--check]`; with --check it only says whether the file is up to date.
 */
import { mkdtempSync, readdirSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";

const root = join(import.meta.dir, "..");
export const typesFile = join(root, "cmd/project/hopskip-runtime.d.txt");

/** Packages in the order in which they stand in the file. */
export const packages = ["runtime", "activity", "client", "testing"] as const;
/** What carries the client's bytes: its types lead to all of the wire, and hardly a caller needs them. */
const inner = new Set(["session", "rpc"]);
/** What the test kit is made of. */
const works = [
  "virtual-core",
  "virtual-worker",
  "mock-activity",
  "driver",
  "code",
  "sides",
  "shard-log",
  "hasher",
  "duration",
  "crash-everywhere",
];
/** What a package's declarations take from the others. */
const borrowed: Readonly<Record<string, string>> = {
  testing: `import { HopError, MethodFailedError, RemoteError, WorkflowFailedError } from "@hopskip/client";
import type { ActivityContext } from "@hopskip/activity";
import type { WorkflowInput, WorkflowOutput } from "@hopskip/runtime";
`,
};
/** Names of the raw exchange, which is left out. */
const raw = new Set(["Answer", "Ask", "AskKind"]);

/** Declarations of each module of each package, by its file name. */
function emit(): Map<string, Map<string, string>> {
  const folder = mkdtempSync(join(tmpdir(), "hop-types-"));
  try {
    const flags = [
      "--declaration",
      "--emitDeclarationOnly",
      "--stripInternal",
      "--outDir",
      folder,
      "--rootDir",
      root,
      "--strict",
      "--skipLibCheck",
    ];
    const more = ["--target", "esnext", "--module", "esnext", "--moduleResolution", "bundler", "--allowImportingTsExtensions"];
    const libraries = ["--lib", "esnext", "--types", "bun", "--ignoreConfig"];
    const entries = packages.map((name) => join(root, "sdk/typescript", name, "index.ts"));
    const result = Bun.spawnSync([join(root, "node_modules/.bin/tsc"), ...flags, ...more, ...libraries, ...entries], { cwd: root });
    if (result.exitCode !== 0)
      throw new Error(`Cannot emit the SDK's declarations:\n${result.stdout.toString()}${result.stderr.toString()}`);
    return new Map(packages.map((name) => [name, modulesIn(join(folder, "sdk/typescript", name))]));
  } finally {
    rmSync(folder, { recursive: true, force: true });
  }
}

function modulesIn(folder: string): Map<string, string> {
  const files = readdirSync(folder).filter((name) => name.endsWith(".d.ts"));
  return new Map(files.sort().map((name) => [name.replace(".d.ts", ""), readFileSync(join(folder, name), "utf8")]));
}

/** Names that the index exports, its own included. */
function exportedNames(index: string): string[] {
  const lists = [...index.matchAll(/export (?:type )?\{([^}]*)\} from "\.\/([\w-]+)\.ts"/g)];
  const passedOn = lists.flatMap(([, list = ""]) => list.split(","));
  const own = [...index.matchAll(/^export (?:declare )?(?:class|interface|type|function|const) (\w+)/gm)].map(([, name = ""]) => name);
  return [...passedOn.map((name) => name.trim().replace(/^type /, "")), ...own].filter((name) => name !== "" && !raw.has(name));
}

/** The modules an entry reaches, each after those it imports. */
function inOrder(modules: ReadonlyMap<string, string>): string[] {
  const order: string[] = [];
  const visited = new Set<string>([...inner, ...works]);
  const visit = (name: string): void => {
    const text = modules.get(name);
    // An example in a comment may name a module that is not one of these.
    if (text === undefined || visited.has(name)) return;
    visited.add(name);
    for (const match of text.matchAll(/from "\.\/([\w-]+)\.ts"/g)) visit(match[1] as string);
    order.push(name);
  };
  visit("index");
  return order;
}

/** Plain types of an inner module that the rest names. */
function plainTypes(declarations: string, rest: string): string {
  const types = [...declarations.matchAll(/(?:^\/\*\*(?:(?!\*\/)[\s\S])*\*\/\n)?^export (type (\w+) = .*;)$/gm)];
  return types
    .filter(([, , name = ""]) => new RegExp(`\\b${name}\\b`).test(rest))
    .map(([text]) => text.replace(/^export /m, ""))
    .join("\n");
}

/** Messages that declarations take from the wire's codec, and those that these hold in turn. */
function messages(body: string): string {
  const codec = readFileSync(join(root, "proto/gen/codec.ts"), "utf8");
  const declared = new Map<string, string>();
  for (const [text, name = ""] of codec.matchAll(/^export (?:interface (\w+) \{\n[\s\S]*?^\}|type \w+ =[\s\S]*?;)$/gm))
    declared.set(name === "" ? (/type (\w+)/.exec(text)?.[1] as string) : name, text);
  const found = new Map<string, string>();
  const visit = (text: string): void => {
    for (const name of new Set(text.replace(/\/\*[\s\S]*?\*\//g, "").match(/\b[A-Z]\w+\b/g))) {
      // The client has an Outcome of its own, which is easier to read than the message.
      const message = name === "WireOutcome" ? "Outcome" : name;
      const declaration = declared.get(message);
      const isOwn = new RegExp(`^(?:interface|class|type) ${name}\\b`, "m").test(body);
      if (declaration === undefined || found.has(message) || isOwn) continue;
      const ours = declaration.replace(/\bOutcome\b/g, "WireOutcome").replace(/^export /, "");
      found.set(message, ours);
      visit(ours);
    }
  };
  visit(body);
  return [...found.values()].join("\n");
}

/** One ambient module. What its index does not export is declared but stays inside. */
function ambient(name: string, modules: ReadonlyMap<string, string>): string {
  const names = exportedNames(modules.get("index") as string).sort();
  const own = inOrder(modules).map((module) => moduleBody(modules.get(module) as string, names));
  const plain = [...inner].map((module) => plainTypes(modules.get(module) ?? "", own.join("\n")));
  const body = [...plain, ...own].filter((text) => text !== "").join("\n");
  const wire = name === "client" || name === "testing" ? `${messages(body)}\n` : "";
  const text = `${borrowed[name] ?? ""}${wire}${body}\nexport { ${names.join(", ")} };`;
  const lines = text.split("\n").map((line) => (line === "" ? "" : `  ${line}`));
  return `declare module "@hopskip/${name}" {\n${lines.join("\n")}\n}\n`;
}

/** One package's part of the file, a module of its own. */
export function packageTypes(name: (typeof packages)[number], whole: string): string {
  const begin = whole.indexOf(`declare module "@hopskip/${name}" {`);
  return whole.slice(begin, whole.indexOf("\n}\n", begin) + 3);
}

/** The whole file. */
export function runtimeTypes(): string {
  const all = emit();
  const head = "/** Types of the packages that are part of hop, written by hop: of workflows, of activities, and of the client. */\n";
  return head + packages.map((name) => ambient(name, all.get(name) as Map<string, string>)).join("\n");
}

function moduleBody(declarations: string, exported: readonly string[]): string {
  return declarations
    .replace(/^\/\*\*[\s\S]*?\*\/\n(?=import|export (?:type )?\{|\/\*\*)/, "")
    .replace(/(?:^\/\*\*(?:(?!\*\/)[\s\S])*\*\/\n)?^export declare function (\w+).*;\n/gm, (text, name: string) =>
      exported.includes(name) ? text : "",
    )
    .replace(/(?:^ {4}\/\*\*(?:(?!\*\/)[\s\S])*\*\/\n)?^ {4}ask<.*;\n/gm, "")
    .replace(/^ {4}private (?!constructor).*;\n/gm, "")
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
    console.error("cmd/project/hopskip-runtime.d.txt is not what the SDK's sources give: run bun scripts/gen-runtime-types.ts");
    process.exitCode = 1;
  }
}
