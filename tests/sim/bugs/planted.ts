/**
 * Bugs that the simulator must find: small changes to sources, made while they are loaded. Each
 * tells what it breaks and which checkers may notice first.
 */
import { channelBugs } from "./channel-bugs.ts";
import { clusterBugs } from "./cluster-bugs.ts";
import type { PlantedBug } from "./planted-bug.ts";
import { runBugs } from "./run-bugs.ts";
import { storeBugs } from "./store-bugs.ts";

export const plantedBugs: readonly PlantedBug[] = [...clusterBugs, ...runBugs, ...channelBugs, ...storeBugs];
