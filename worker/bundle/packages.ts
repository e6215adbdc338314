/**
 * Packages of a bundle: which of them are evaluated once for all runs, and what of them is used.
 *
 * A package that keeps state at module level (a counter, a cache of random bytes, settings) would
 * let one run change what another one sees, so packages are evaluated for each run, like own
 * modules, cut down to what is used of them. `shared` ones are evaluated once and frozen.
 */
import { readFileSync } from "node:fs";
import { join } from "node:path";
import type { PackageImport } from "./imports.ts";

/**
 * Shared without being asked for: large, and known to keep nothing between calls that a result
 * depends on. They fill in prototypes and caches as they go, so they are not frozen, only their
 * exports are.
 */
const sharedOpen: readonly string[] = ["zod"];

export interface Sharing {
  isShared(packageName: string): boolean;
  readonly open: readonly string[];
}

/** Reads `hopskip.shared`, a list of package names, from the project's package.json. */
export function sharingOf(root: string): Sharing {
  let listed: readonly unknown[] = [];
  try {
    const project = JSON.parse(readFileSync(join(root, "package.json"), "utf8")) as { hopskip?: { shared?: unknown } };
    if (Array.isArray(project.hopskip?.shared)) listed = project.hopskip.shared;
  } catch {
    // No package.json, no wishes.
  }
  const shared = new Set<unknown>([...sharedOpen, ...listed]);
  return { isShared: (name) => shared.has(name), open: sharedOpen };
}

/** `@scope/name/sub/path` → `@scope/name`. */
export function packageName(specifier: string): string {
  return specifier
    .split("/")
    .slice(0, specifier.startsWith("@") ? 2 : 1)
    .join("/");
}

/** The names that `code` uses of what it requires as `key`; undefined when it could be any. */
export function usedNames(code: string, key: string): string[] | undefined {
  const call = `require(${JSON.stringify(key)})`;
  const asked = code.split(call).length - 1;
  const variables = [...code.matchAll(/([\w$]+)=(?:__toESM\()?(require\("(?:[^"\\]|\\.)*"\))/g)]
    .filter((found) => found[2] === call)
    .map((found) => found[1]!);
  if (asked === 0 || variables.length !== asked) return undefined;
  const names = new Set<string>();
  for (const variable of new Set(variables)) {
    const uses = [
      ...code.matchAll(
        new RegExp(`(?<![\\w$.])${variable.replaceAll("$", "\\$")}(?![\\w$])(?:\\.([\\w$]+)|(=(?:__toESM\\()?require\\())?`, "g"),
      ),
    ];
    for (const [, name, declares] of uses) {
      if (declares !== undefined) continue;
      if (name === undefined) return undefined;
      names.add(name);
    }
  }
  return [...names].sort();
}

/** A module that passes on what is used of a package. */
export function passOn({ specifier }: PackageImport, names: readonly string[] | undefined): string {
  const from = JSON.stringify(specifier);
  // An import for its effects alone, or one that nothing is used of.
  if (names !== undefined && names.length === 0) return `import ${from}; export {};`;
  return names === undefined ? `import * as found from ${from}; export { found };` : `export { ${names.join(", ")} } from ${from};`;
}
