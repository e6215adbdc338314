/** What each import of a workflow means: own code, a package, the runtime, or something it can't have. */
import { existsSync, readFileSync } from "node:fs";
import { builtinModules } from "node:module";
import { dirname, join, sep } from "node:path";
import { shownPath } from "./shown-path.ts";

/** A package as some file imports it. */
export interface PackageImport {
  readonly specifier: string;
  /** Of the file, from which it is resolved. */
  readonly folder: string;
  readonly path: string;
}

export interface Imports {
  /** Packages that are left out, by the name under which the code asks for them. */
  readonly packages: Map<string, PackageImport>;
  readonly problems: string[];
}

const runtimeName = "@hopskip/runtime";
const ownWorld: Record<string, string> = {
  "@hopskip/client": "a workflow is called by clients and can't be one: start other runs from an activity",
  "@hopskip/activity": "its functions work in activity code only: import activities by `import type`",
};
/** The bundler has pure versions of these for packages that use them. */
const pureBuiltins = new Set(["assert", "buffer", "events", "path", "punycode", "querystring", "string_decoder", "url", "util"]);

/** Packages that are `apart` are left out of the code and listed. */
export function importPlugin(options: {
  readonly root: string;
  readonly imports: Imports;
  /** Absolute paths of modules that hold activities: their types can be imported, and no more. */
  readonly activityFiles: ReadonlySet<string>;
  isApart(specifier: string): boolean;
}): Bun.BunPlugin {
  return {
    name: "hopskip",
    setup(build) {
      const activities = ({ path, importer }: { readonly path: string; readonly importer: string }) => {
        if (!isActivities(options.activityFiles, path, importer)) return undefined;
        options.imports.problems.push(`${placeOf(options.root, importer, path)}: it imports "${path}": ${activitiesAdvice(path)}`);
        return { path, external: true };
      };
      if (options.activityFiles.size > 0) build.onResolve({ filter: /^\.\.?(\/|$)/ }, activities);
      // Bare names only: all else about relative paths is the bundler's business.
      build.onResolve({ filter: /^[^./]/ }, ({ path, importer }) => {
        if (path === runtimeName) return { path, external: true };
        const problem = problemWith(path, importer);
        if (problem !== undefined) {
          options.imports.problems.push(`${placeOf(options.root, importer, path)}: it imports "${path}": ${problem}`);
          return { path, external: true };
        }
        const aliased = activities({ path, importer });
        if (aliased !== undefined) return aliased;
        return options.isApart(path) ? apart(options.imports, path, importer) : undefined;
      });
    },
  };
}

/** The names under which `activityFiles` are looked for beside a workflow file. */
const activityNames = ["activities.ts", "activities.mts", "activities.js", "activities.mjs", "activities/index.ts"];

/** Where the activities of these workflow files are unless someone says otherwise. */
export function activitiesBeside(files: readonly string[]): string[] {
  return files.flatMap((file) => activityNames.map((name) => join(dirname(file), name)));
}

function isActivities(files: ReadonlySet<string>, path: string, importer: string): boolean {
  if (files.size === 0 || importer.includes("__hopskip_") || importer.includes(`${sep}node_modules${sep}`)) return false;
  try {
    return files.has(Bun.resolveSync(path, dirname(importer)));
  } catch {
    return false;
  }
}

function activitiesAdvice(path: string): string {
  const way = `\`import type * as acts from ${JSON.stringify(path)}\` and \`const { … } = activities<typeof acts>()\``;
  return `activities called so would run inside the workflow, neither recorded nor retried; write ${way}`;
}

function problemWith(path: string, importer: string): string | undefined {
  if (ownWorld[path] !== undefined) return ownWorld[path];
  if (path.startsWith("bun:") || path === "bun") return "Bun's modules do not exist in a workflow; move what needs it into an activity";
  const bare = path.startsWith("node:") ? path.slice(5) : path;
  if (!path.startsWith("node:") && !builtinModules.includes(bare)) return undefined;
  if (!path.startsWith("node:") && isInstalled(bare, importer)) return undefined;
  if (importer.includes(`${sep}node_modules${sep}`) && pureBuiltins.has(bare)) return undefined;
  return "Node's modules do not exist in a workflow; move what needs it into an activity, and import activities by `import type`";
}

/** A package that has the name of a module of Node, such as `buffer`. */
function isInstalled(name: string, importer: string): boolean {
  for (let folder = dirname(importer); ; folder = dirname(folder)) {
    if (existsSync(join(folder, "node_modules", name, "package.json"))) return true;
    if (dirname(folder) === folder) return false;
  }
}

function apart(imports: Imports, specifier: string, importer: string): { path: string; external: true } | undefined {
  const folder = dirname(importer);
  let path: string;
  try {
    path = Bun.resolveSync(specifier, folder);
  } catch {
    // The bundler says it better, with the place.
    return undefined;
  }
  // An alias for own code, or a package of the same workspace.
  if (!path.includes(`${sep}node_modules${sep}`)) return undefined;
  for (let n = 1; ; n++) {
    const key = n === 1 ? specifier : `${specifier}#${n}`;
    const known = imports.packages.get(key);
    if (known === undefined) imports.packages.set(key, { specifier, folder, path });
    if (known === undefined || known.path === path) return { path: key, external: true };
  }
}

function placeOf(root: string, importer: string, specifier: string): string {
  const shown = shownPath(root, importer);
  try {
    const lines = readFileSync(importer, "utf8").split("\n");
    const names = (text: string) => text.includes(`"${specifier}"`) || text.includes(`'${specifier}'`);
    const line = lines.findIndex((text) => names(text) && !/^\s*(\/\/|(import|export)\s+type\b)/.test(text));
    return line < 0 ? shown : `${shown}:${line + 1}`;
  } catch {
    return shown;
  }
}
