/** Bugs that random programs must find. Each tells what it does, and how it shows. */
import type { PlantedBug } from "../sim/bugs/planted-bug.ts";

export interface ProgramBug extends Pick<PlantedBug, "name" | "edits"> {
  /** In what is said of the first program that finds it. */
  readonly shows: string;
}

export const programBugs: readonly ProgramBug[] = [
  {
    // What a workflow asks for depends on how many events came at once: a replay, which has them all, asks otherwise.
    name: "deliver-by-batch",
    edits: [
      {
        file: "worker/host/vm/vm-realm.ts",
        find: "    this.goDry();\n    return this.api.collect();",
        put: '    if ((flags & 1) === 0) return "";\n    this.goDry();\n    return this.api.collect();',
      },
    ],
    shows: "diverged",
  },
  {
    // A leader that takes over does not know when its runs' timers are due.
    name: "timers-die-with-core",
    edits: [{ file: "core/shard/reading.ts", find: "  remindAll(ctx, live);\n", put: "" }],
    shows: '"records"',
  },
  {
    // Random numbers go on where another run of the process left them.
    name: "randomness-of-the-process",
    edits: [
      {
        file: "worker/host/v8/kernel-call.ts",
        find: "run.bundle, run.seed]",
        put: "run.bundle, run.seed + run.key]",
      },
    ],
    shows: "diverged",
  },
];
