/**
 * Preloaded before seeds are run: plants the bug that `RAFT_BUG` names, in memory only. A bug
 * whose text is not found exactly once ends the process: it must follow the sources.
 */
import { join } from "node:path";
import { plantedBugs } from "./planted.ts";

const name = process.env.RAFT_BUG ?? "";
const bug = plantedBugs.find((each) => each.name === name);
if (bug === undefined)
  throw new Error(`Cannot plant bug ${JSON.stringify(name)}. Bugs: ${plantedBugs.map((each) => each.name).join(", ")}`);
const path = join(import.meta.dir, "../../..", bug.file);
const source = await Bun.file(path).text();
const count = source.split(bug.find).length - 1;
if (count !== 1) throw new Error(`Cannot plant bug ${name}: its text is in ${bug.file} ${count} times, want once: ${bug.find}`);
const contents = source.replace(bug.find, () => bug.put);
Bun.plugin({
  name,
  setup(build) {
    const filter = new RegExp(`${path.replace(/[.*+?^${}()|[\]\\]/g, "\\$&")}$`);
    build.onLoad({ filter }, () => ({ contents, loader: "ts" }));
  },
});
