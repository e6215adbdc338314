/** Paths as bundles and messages show them. */
import { relative, sep } from "node:path";

/** A path relative to `root`, or from `node_modules` on: it does not tell where the project lies. */
export function shownPath(root: string, path: string): string {
  const packages = path.lastIndexOf(`${sep}node_modules${sep}`);
  return posixPath(packages >= 0 ? path.slice(packages + 1) : relative(root, path));
}

export function posixPath(path: string): string {
  return path.split(sep).join("/");
}
