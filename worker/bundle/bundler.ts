/**
 * Makes one self-contained artefact of workflow files and everything they import.
 *
 * The same files give the same bytes, wherever they lie. Nothing has to be installed for
 * `@hopskip/runtime`: the sandbox supplies it. What a workflow can't have (Node's modules, say)
 * is refused here, with the file that imports it and the way out.
 */
import { existsSync } from "node:fs";
import { dirname, join, relative, resolve } from "node:path";
import type { Artefact } from "./artefact.ts";
import { artefactHash, encodeArtefact } from "./artefact.ts";
import { BundleError } from "./bundle-error.ts";
import type { Imports, PackageImport } from "./imports.ts";
import { activitiesBeside, importPlugin } from "./imports.ts";
import { workflowsOf } from "./inspect.ts";
import type { Sharing } from "./packages.ts";
import { packageName, passOn, sharingOf, usedNames } from "./packages.ts";
import { posixPath, shownPath } from "./shown-path.ts";
import { removeMapped } from "./source-map.ts";

export interface BundleOptions {
  /** Absolute paths of the files that export workflows. */
  readonly files: readonly string[];
  /** Folder that paths in stack traces are relative to. Left out: that of the nearest package.json, else of the first file. */
  readonly root?: string;
  /** Absolute paths of modules with activities: workflows import types of them only. Those named `activities` beside a workflow file count too. */
  readonly activityFiles?: readonly string[];
}

export interface Bundle {
  readonly bytes: Uint8Array;
  /** Hex SHA-256 of the bytes. */
  readonly hash: string;
  readonly workflows: readonly string[];
}

/** Rejects with `BundleError`. */
export async function bundleWorkflows(options: BundleOptions): Promise<Bundle> {
  const files = options.files.map((file) => resolve(file));
  if (files.length === 0) throw new BundleError(["no workflow file was given"]);
  const root = options.root ?? rootOf(files[0]!);
  const own = files.map((file) => JSON.stringify(`./${posixPath(relative(root, file))}`));
  const activityFiles = new Set([...activitiesBeside(files), ...(options.activityFiles ?? [])].filter((file) => !files.includes(file)));
  const probe = await buildOwn(root, activityFiles, own.map((file, i) => `export * as m${i} from ${file};`).join("\n"));
  const found = findWorkflows(root, files, probe.code, await buildPackages(root, probe));
  // Only the workflows are exported: what nothing of them needs is left out.
  const entry = own.map((file, i) => `export { ${found[i]!.join(", ")} } from ${file};`).join("\n");
  const built = await buildOwn(root, activityFiles, entry);
  const artefact: Artefact = {
    workflows: found.flat().sort(),
    dependencies: await buildPackages(root, built),
    main: wrapMain(built.code),
    map: { sources: built.map.sources, mappings: `;${built.map.mappings}` },
  };
  assertPortable(artefact, root);
  const bytes = encodeArtefact(artefact);
  return { bytes, hash: artefactHash(bytes), workflows: artefact.workflows };
}

interface Output {
  readonly code: string;
  readonly map: { readonly sources: readonly string[]; readonly mappings: string };
}

interface Built extends Output {
  readonly packages: ReadonlyMap<string, PackageImport>;
}

/** Names that would put a place on this machine into the code. */
const placeNames = [
  "import.meta.url",
  "import.meta.dir",
  "import.meta.path",
  "import.meta.dirname",
  "import.meta.filename",
  "import.meta.file",
  "__dirname",
  "__filename",
];
const define = {
  "process.env.NODE_ENV": '"production"',
  ...Object.fromEntries(placeNames.map((name) => [name, name === "import.meta.url" ? '"file:///workflow.js"' : '"/workflow.js"'])),
};

/** The workflow's own modules, with packages left out. */
async function buildOwn(root: string, activityFiles: ReadonlySet<string>, entry: string): Promise<Built> {
  const imports: Imports = { packages: new Map(), problems: [] };
  const output = await run({ root, imports, activityFiles, files: { "__hopskip_entry.ts": entry }, isApart: () => true });
  return { ...output, packages: imports.packages };
}

/** The packages, as a script whose value is a kernel's `DependencyScript`. */
async function buildPackages(root: string, own: Built): Promise<string> {
  const sharing = sharingOf(root);
  const byKey = [...own.packages].sort(([a], [b]) => (a < b ? -1 : 1));
  const once = new Map(byKey.filter(([key]) => sharing.isShared(packageName(key))));
  const each = byKey.filter(([key]) => !once.has(key)).map(([key, found]) => packageModule(key, found, usedNames(own.code, key)));
  const perRun = await buildLoader(root, each, sharing, once);
  // All of a shared package: what is used of it is for its other users to say.
  const shared = await buildLoader(
    root,
    [...once].sort(([a], [b]) => (a < b ? -1 : 1)).map(([key, found]) => packageModule(key, found, undefined)),
    sharing,
    undefined,
  );
  return `({shared:${shared},perRun:${perRun},open:${JSON.stringify(sharing.open)}})`;
}

interface PackageModule {
  readonly key: string;
  readonly found: PackageImport;
  readonly text: string;
  readonly isWhole: boolean;
}

function packageModule(key: string, found: PackageImport, names: readonly string[] | undefined): PackageModule {
  return { key, found, text: passOn(found, names), isWhole: names === undefined };
}

/** A function that fills a table of packages; `shared` collects the shared ones that those here use in turn. */
async function buildLoader(
  root: string,
  modules: readonly PackageModule[],
  sharing: Sharing,
  shared: Map<string, PackageImport> | undefined,
): Promise<string> {
  const hidden = "process,Buffer,Bun,Deno,navigator,localStorage,sessionStorage,indexedDB,caches";
  const head = `function(require,exports,globalThis,${hidden}){var self=globalThis,global=globalThis,module={exports:exports};\n`;
  if (modules.length === 0) return `${head}}`;
  const files: Record<string, string> = {};
  const entry = modules.map(({ key, found, text, isWhole }, i) => {
    const path = join(found.folder, `__hopskip_package_${i}.js`);
    files[relative(root, path)] = text;
    return `exports[${JSON.stringify(key)}] = () => require(${JSON.stringify(path)})${isWhole ? ".found" : ""};`;
  });
  const imports: Imports = { packages: shared ?? new Map(), problems: [] };
  const isApart = (specifier: string) => shared !== undefined && sharing.isShared(packageName(specifier));
  const { code } = await run({
    root,
    imports,
    activityFiles: new Set(),
    files: { "__hopskip_packages.js": entry.join("\n"), ...files },
    isApart,
  });
  return `${head}${code}\n}`;
}

interface Job {
  readonly root: string;
  readonly imports: Imports;
  readonly activityFiles: ReadonlySet<string>;
  /** By name in `root`; the first one is the entry. */
  readonly files: Record<string, string>;
  /** Whether a package is left out of the code and listed. */
  isApart(specifier: string): boolean;
}

async function run(job: Job): Promise<Output> {
  const { root, imports } = job;
  const virtual = Object.fromEntries(Object.entries(job.files).map(([name, text]) => [join(root, name), text]));
  const result = await Bun.build({
    entrypoints: [Object.keys(virtual)[0]!],
    files: virtual,
    root,
    target: "browser",
    format: "cjs",
    minify: { syntax: true, whitespace: true },
    sourcemap: "external",
    define,
    plugins: [importPlugin(job)],
    throw: false,
  });
  const problems = [...imports.problems, ...result.logs.filter((log) => log.level === "error").map((log) => problemText(root, log))];
  if (!result.success || problems.length > 0)
    throw new BundleError(problems.length > 0 ? [...new Set(problems)] : ["the bundler failed without saying why"]);
  const extra = result.outputs.find((output) => output.kind !== "entry-point" && output.kind !== "sourcemap");
  if (extra !== undefined) throw new BundleError([`${extra.path} would be a file of its own: a workflow's code must be one piece`]);
  const code = await result.outputs.find((output) => output.kind === "entry-point")!.text();
  const map = (await result.outputs.find((output) => output.kind === "sourcemap")!.json()) as { sources: string[]; mappings: string };
  const clean = normalised(code, map.mappings);
  return { code: clean.code, map: { sources: map.sources.map((source) => shownPath(root, resolve(source))), mappings: clean.mappings } };
}

/**
 * Drops an id that depends on the folder, and a flag that depends on what the bundler knows of it:
 * in a package of type "module" it would give a required package's whole namespace as its default
 * export. That is right for Node's view of CommonJS, but what is required here are modules.
 */
function normalised(code: string, mappings: string): { code: string; mappings: string } {
  return removeMapped(code.replace(/\n*\/\/# debugId=\S*\s*$/, ""), mappings, /__toESM\(require\("(?:[^"\\]|\\.)*"\)(,1)\)/g);
}

function findWorkflows(root: string, files: readonly string[], code: string, dependencies: string): string[][] {
  const names = workflowsOf(wrapMain(code), dependencies);
  const found = files.map((_file, i) => names(`m${i}`));
  const owners = new Map<string, string>();
  const problems: string[] = [];
  for (const [i, file] of files.entries()) {
    if (found[i]!.length === 0) problems.push(`${shownPath(root, file)} exports no workflow: export what durable() returns`);
    for (const name of found[i]!) {
      const other = owners.get(name);
      if (other !== undefined) problems.push(`${other} and ${shownPath(root, file)} both export a workflow "${name}"`);
      owners.set(name, shownPath(root, file));
    }
  }
  if (problems.length > 0) throw new BundleError(problems);
  return found;
}

function wrapMain(code: string): string {
  return `(function(require,module,exports,globalThis,self,global){"use strict";\n${code}\n})`;
}

function problemText(root: string, log: BuildMessage | ResolveMessage): string {
  const { position } = log;
  if (position === null) return log.message;
  // What the bundler was told to import is of no use to the reader.
  if (position.file.includes("__hopskip_")) return log.message.replaceAll(/\S*__hopskip_\S*/g, "the workflow");
  return `${shownPath(root, resolve(position.file))}:${position.line}:${position.column}: ${log.message}`;
}

function rootOf(file: string): string {
  for (let folder = dirname(file); ; folder = dirname(folder)) {
    if (existsSync(join(folder, "package.json"))) return folder;
    if (dirname(folder) === folder) return dirname(file);
  }
}

function assertPortable(artefact: Artefact, root: string): void {
  if (root.length > 1 && [artefact.main, artefact.dependencies].some((code) => code.includes(`${root}/`))) {
    throw new BundleError([`the code holds the path of its folder, ${root}: the same workflow would be another one elsewhere`]);
  }
}
