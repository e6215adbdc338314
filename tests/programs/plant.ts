/** Preloaded before random programs: plants the bug that `HOP_PLANT` names. */
import { plantBug } from "../sim/bugs/plant-bug.ts";
import { programBugs } from "./bugs.ts";

await plantBug(programBugs, process.env.HOP_PLANT ?? "");
