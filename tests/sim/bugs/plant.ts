/** Preloaded before a simulation: plants the bug that `HOP_PLANT` names. */
import { plantBug } from "./plant-bug.ts";
import { plantedBugs } from "./planted.ts";

await plantBug(plantedBugs, process.env.HOP_PLANT ?? "");
