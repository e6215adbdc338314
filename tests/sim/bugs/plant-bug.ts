/**
 * Plants a bug, in memory only: sources that it changes are changed while they are loaded.
 *
 * A bug whose text is not found exactly once ends the process: sources have moved on and the bug
 * must follow them.
 */
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import type { PlantedBug } from "./planted-bug.ts";

const root = fileURLToPath(new URL("../../..", import.meta.url));

/** Plants the bug of this name. Rejects where there is none. */
export async function plantBug(bugs: readonly Pick<PlantedBug, "name" | "edits">[], name: string): Promise<void> {
  const bug = bugs.find((each) => each.name === name);
  if (bug === undefined) throw new Error(`Cannot plant bug ${JSON.stringify(name)}. Bugs: ${bugs.map((each) => each.name).join(", ")}`);
  for (const { file, find, put } of bug.edits) {
    const path = join(root, file);
    const source = await Bun.file(path).text();
    const count = source.split(find).length - 1;
    if (count !== 1) throw new Error(`Cannot plant bug ${name}: its text is in ${file} ${count} times, want once: ${find}`);
    const changed = source.replace(find, () => put);
    Bun.plugin({
      name,
      setup(build) {
        const pattern = new RegExp(`${path.replace(/[.*+?^${}()|[\]\\]/g, "\\$&")}$`);
        build.onLoad({ filter: pattern }, () => ({ contents: changed, loader: "ts" }));
      },
    });
  }
}
