/**
 * Breaks the compiled executable under load in every way that this machine allows, and holds it
 * against what its clients were promised. docs/CHAOS.md says what each row means.
 *
 *     npm run chaos -- [--writes N] [--only NAME,…] [--seed S]
 *
 * `--writes`: strike at each of the first N writes of the log (40). Progress goes to standard
 * error, the table to standard output. Ends with 1 where a case failed.
 */
import { parseArgs } from "node:util";
import { Prng } from "#core/base";
import {
  faultAtStart,
  fullByInjection,
  fullDisk,
  largeLog,
  lyingDisk,
  powerLoss,
  stopWhileFull,
  tornWrite,
} from "../tests/chaos/disk-cases.ts";
import { whyNoFaketime, whyNoLoop, whyNoTmpfs } from "../tests/chaos/host.ts";
import { clockJumps, killUnderLoad, restarts, stopServer, stopWorker, twoServers, victims } from "../tests/chaos/process-cases.ts";
import { Rig } from "../tests/chaos/rig.ts";
import { whyNoStrace } from "../tests/chaos/strace.ts";
import { faults, readyMsMax, writeFault } from "../tests/chaos/write-faults.ts";
import { clusterJobs } from "./chaos-cluster.ts";
import { always, attempt, type Job, type Row, upTo } from "./chaos-row.ts";

const { values } = parseArgs({
  options: { writes: { type: "string", default: "40" }, only: { type: "string" }, seed: { type: "string", default: "1" } },
});
const writes = Number(values.writes);
const seed = Number(values.seed);
if (!(Number.isInteger(writes) && writes > 0 && Number.isInteger(seed))) throw new Error("--writes and --seed must be whole numbers");

/** Runs `each` on one rig; a new one is made after a failure, as the old one may be beyond use. */
async function onRig<T>(
  row: Row,
  inputs: readonly T[],
  what: (input: T) => string,
  each: (rig: Rig, input: T) => Promise<void>,
): Promise<void> {
  let rig: Rig | undefined;
  try {
    for (const input of inputs) {
      rig ??= await Rig.up();
      const use = rig;
      if (await attempt(row, what(input), () => each(use, input))) continue;
      await use[Symbol.asyncDispose]();
      rig = undefined;
    }
  } finally {
    await rig?.[Symbol.asyncDispose]();
  }
}

const jobs: Record<string, Job> = {};

for (const fault of faults) {
  jobs[`write-${fault}`] = {
    needs: whyNoStrace,
    run: async (row) => {
      const struck = new Set<number>();
      await onRig(
        row,
        upTo(writes),
        (when) => `write ${when}`,
        async (rig, when) => {
          const result = await writeFault(rig, fault, when);
          row.acks += result.acks;
          struck.add(result.struckAt);
          if (result.readyMs !== undefined) row.readyMs.push(result.readyMs);
        },
      );
      row.note = `struck the writes ${Math.min(...struck)} to ${Math.max(...struck)}, ${struck.size} different ones`;
    },
  };
}

jobs["torn-write"] = {
  needs: always,
  run: async (row, prng) => {
    const offsets = upTo(20).map(() => 1 + prng.below(40_000));
    await onRig(
      row,
      offsets,
      (offset) => `at byte ${offset}`,
      async (rig, offset) => {
        const { acks, readyMs } = await tornWrite(rig, offset);
        row.acks += acks;
        row.readyMs.push(readyMs);
      },
    );
  },
};
jobs["lying-disk"] = {
  needs: whyNoStrace,
  run: (row) =>
    onRig(
      row,
      [1],
      () => "1000 bytes never written",
      async (rig) => {
        row.note = await lyingDisk(rig);
      },
    ),
};
jobs["full-injected"] = { needs: whyNoStrace, run: (row) => onRig(row, upTo(5), String, async (rig) => void (await fullByInjection(rig))) };
jobs["full-stop"] = { needs: whyNoStrace, run: (row) => onRig(row, upTo(5), String, async (rig) => void (await stopWhileFull(rig))) };
jobs["full-disk"] = {
  needs: whyNoTmpfs,
  run: async (row) => {
    await attempt(row, "a tmpfs of 100 MB", async () => {
      const { acks, refused } = await fullDisk(100);
      row.acks += acks;
      row.note = `${refused} refusals`;
    });
  },
};
jobs["fault-at-start"] = {
  needs: whyNoStrace,
  run: async (row) => {
    for (const fault of ["error=EIO", "error=ENOSPC", "signal=KILL", "retval=0"]) {
      for (const calls of [["pwrite64"], ["fsync"], ["rename"]]) {
        await attempt(row, `${calls[0]} ${fault}`, async () => void (await faultAtStart({ calls, fault, when: "1" }, "data")));
      }
    }
  },
};
jobs["power-cut"] = {
  needs: whyNoLoop,
  run: async (row) => {
    await attempt(row, "six cuts", async () => {
      const { acks, readyMs } = await powerLoss(6);
      row.acks += acks.reduce((sum, each) => sum + each, 0);
      row.readyMs.push(...readyMs);
    });
  },
};
jobs["large-log"] = {
  needs: always,
  run: async (row) => {
    await attempt(row, "100 MB", async () => {
      const { checkpointMs, replayMs } = await largeLog(100);
      row.readyMs.push(checkpointMs, replayMs);
      row.note = `with its checkpoint ${Math.round(checkpointMs)} ms, from the log alone ${Math.round(replayMs)} ms`;
      if (Math.max(checkpointMs, replayMs) > readyMsMax) throw new Error(row.note);
    });
  },
};
for (const victim of victims) {
  jobs[`kill-${victim}`] = {
    needs: always,
    run: (row) =>
      onRig(row, upTo(10), String, async (rig, i) => void (await killUnderLoad(rig, victim, { times: 2, seed: seed * 100 + i }))),
  };
}
jobs["stop-worker"] = {
  needs: always,
  run: (row) =>
    onRig(row, upTo(3), String, async (rig) => {
      const { acks } = await stopWorker(rig);
      row.acks += acks;
    }),
};
jobs["stop-server"] = {
  needs: always,
  run: (row) =>
    onRig(
      row,
      [100, 1000, 20_000],
      (ms) => `for ${ms} ms`,
      async (rig, ms) => {
        const { acks } = await stopServer(rig, ms);
        row.acks += acks;
      },
    ),
};
jobs["two-servers"] = {
  needs: always,
  run: (row) =>
    onRig(row, upTo(3), String, async (rig) => {
      row.note = await twoServers(rig);
    }),
};
jobs.restarts = {
  needs: always,
  run: async (row) => {
    await attempt(row, "stop, kill, port, address", async () => {
      const figures = await restarts();
      row.readyMs.push(...Object.values(figures));
    });
  },
};
jobs["clock-jumps"] = {
  needs: whyNoFaketime,
  run: async (row) =>
    void (await attempt(row, "a sleep of 6 s", async () => {
      const { wokeMs } = await clockJumps(6000);
      row.note = `woke after ${wokeMs} ms`;
    })),
};

Object.assign(jobs, clusterJobs(seed));

function tableOf(rows: readonly Row[]): string {
  const most = (numbers: readonly number[]) => (numbers.length === 0 ? "" : `${Math.round(Math.max(...numbers))}`);
  const lines = rows.map((row) => [
    row.name,
    String(row.cases),
    String(row.failures.length),
    row.acks === 0 ? "" : String(row.acks),
    most(row.readyMs),
    row.note,
  ]);
  const table = [["case", "runs", "failed", "promises", "ready ms, at most", "note"], ...lines];
  const widths = table[0]?.map((_, column) => Math.max(...table.map((line) => (column === 5 ? 0 : (line[column] as string).length)))) ?? [];
  return table
    .map((line) =>
      line
        .map((cell, column) => cell.padEnd(widths[column] as number))
        .join("  ")
        .trimEnd(),
    )
    .join("\n");
}

async function main(): Promise<number> {
  const names = values.only?.split(",") ?? Object.keys(jobs);
  const unknown = names.find((name) => !Object.hasOwn(jobs, name));
  if (unknown !== undefined) throw new Error(`Unknown case ${unknown}. Cases: ${Object.keys(jobs).join(", ")}`);
  const rows: Row[] = [];
  for (const name of names) {
    const { needs, run } = jobs[name] as Job;
    const row: Row = { name, cases: 0, failures: [], readyMs: [], acks: 0, note: "" };
    rows.push(row);
    const reason = needs();
    console.error(reason === undefined ? name : `${name}: skipped: ${reason}`);
    if (reason === undefined) await run(row, new Prng(seed));
    else row.note = `skipped: ${reason}`;
  }
  console.log(tableOf(rows));
  const failures = rows.flatMap((row) => row.failures.map((failure) => `${row.name}: ${failure}`));
  for (const failure of failures) console.log(`failed: ${failure}`);
  return failures.length === 0 ? 0 : 1;
}

try {
  process.exit(await main());
} catch (error) {
  console.error(error instanceof Error ? error.message : error);
  process.exit(2);
}
