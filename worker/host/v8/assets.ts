/** Where the V8 host finds its parts. */
import { existsSync, readFileSync } from "node:fs";
import { join } from "node:path";

export interface V8Assets {
  /** Paths. */
  readonly node: string;
  readonly addon: string;
  readonly child: string;
  /** Text of the guest kernel. */
  readonly kernel: string;
}

/** The parts as a development tree has them: node from its package, the rest from dist/v8. */
export function developmentAssets(root: string = join(import.meta.dir, "../../..")): V8Assets {
  const node = join(root, `node_modules/node-linux-${process.arch}/bin/node`);
  const built = (name: string) => join(root, "dist/v8", name);
  for (const path of [node, built("hopv8.node"), built("kernel.js"), built("child.cjs")]) {
    if (!existsSync(path)) throw new Error(`Cannot run V8 guests: ${path} is missing; build it with "bun scripts/build-v8.ts"`);
  }
  return { node, addon: built("hopv8.node"), child: built("child.cjs"), kernel: readFileSync(built("kernel.js"), "utf8") };
}
