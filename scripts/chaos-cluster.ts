/** The rows of `npm run chaos` that break a cluster of three machines. */

import {
  badWeather,
  cutLeaders,
  cuts,
  killLeaders,
  type Outages,
  pauseLeaders,
  percentile,
  splitUnderLoad,
  storm,
  turmoil,
} from "../tests/chaos/cluster/cluster-cases.ts";
import { type Proven, type Strike, struck } from "../tests/chaos/cluster/cluster-proof.ts";
import { type DiskFault, diskFaults, leadersDisk, powerLosses, type Victims, wrongClocks } from "../tests/chaos/cluster/host-cases.ts";
import { Machines } from "../tests/chaos/cluster/machines.ts";
import { whyNoNet } from "../tests/chaos/cluster/net.ts";
import { whyNoFaketime, whyNoLoop } from "../tests/chaos/host.ts";
import { whyNoStrace } from "../tests/chaos/strace.ts";
import { attempt, type Job, type Row, upTo } from "./chaos-row.ts";

/** Longest time that a client may be without an answer, at the 99th percentile, when a leader dies. */
const failoverMsMax = 2000;

const figuresOf = ({ outageMs }: Outages) =>
  outageMs.length === 0
    ? ""
    : `${outageMs.length} silences of clients: p50 ${Math.round(percentile(outageMs, 0.5))}, p99 ${Math.round(percentile(outageMs, 0.99))}, most ${Math.round(Math.max(...outageMs))} ms`;

class Sum {
  private readonly proven: Proven[] = [];
  readonly outageMs: number[] = [];

  add(row: Row, proven: Proven): void {
    this.proven.push(proven);
    row.acks += proven.acks;
  }

  get note(): string {
    const sumOf = (key: keyof Proven) => this.proven.reduce((sum, each) => sum + each[key], 0);
    const seen = `${sumOf("runs")} runs, ${sumOf("reads")} reads, ${sumOf("open")} without outcome`;
    return [figuresOf(this), seen].filter(Boolean).join("; ");
  }
}

/** Strikes one cluster again and again; what is left is proven after each time. */
async function strikes(row: Row, seed: number, all: Readonly<Record<string, Strike>>): Promise<Sum> {
  const sum = new Sum();
  let machines: Machines | undefined;
  try {
    for (const [what, strike] of Object.entries(all)) {
      const isWell = await attempt(row, what, async () => {
        machines ??= await Machines.up({ seed });
        const proven = await struck(machines, { prefix: `${row.name}-${row.cases}`, seed: seed + row.cases }, strike);
        sum.outageMs.push(...proven.outageMs);
        sum.add(row, proven);
      });
      if (isWell) continue;
      await machines?.[Symbol.asyncDispose]();
      machines = undefined;
    }
  } finally {
    await machines?.[Symbol.asyncDispose]();
  }
  row.note = sum.note;
  return sum;
}

/** Cases that have a cluster each. */
async function clusters(row: Row, all: Readonly<Record<string, () => Promise<Proven>>>): Promise<void> {
  const sum = new Sum();
  for (const [what, run] of Object.entries(all)) await attempt(row, what, async () => sum.add(row, await run()));
  row.note = sum.note;
}

const rounds = (count: number, strike: Strike) => Object.fromEntries(upTo(count).map((i) => [`round ${i}`, strike]));

export const clusterJobs = (seed: number): Record<string, Job> => ({ ...networkJobs(seed), ...machineJobs(seed) });

/** Leaders that are gone or cut off, and bad networks. */
function networkJobs(seed: number): Record<string, Job> {
  return {
    "cluster-kill-leader": {
      needs: whyNoNet,
      run: async (row) => {
        const { outageMs, note } = await strikes(
          row,
          seed,
          rounds(5, (machines, workload) => killLeaders(machines, workload, 10)),
        );
        if (percentile(outageMs, 0.99) > failoverMsMax) row.failures.push(`failover takes longer than ${failoverMsMax} ms: ${note}`);
      },
    },
    "cluster-kill-placement": {
      needs: whyNoNet,
      run: async (row) => void (await strikes(row, seed, { "10 kills": (machines, workload) => killLeaders(machines, workload, 10, 0) })),
    },
    "cluster-stop-leader": {
      needs: whyNoNet,
      run: async (row) =>
        void (await strikes(
          row,
          seed,
          rounds(3, (machines, workload) => pauseLeaders(machines, workload, [1000, 1500, 2000, 3000])),
        )),
    },
    "cluster-cut-leader": {
      needs: whyNoNet,
      run: async (row) =>
        void (await strikes(
          row,
          seed,
          rounds(3, (machines, workload) => cutLeaders(machines, workload, cuts, 2500)),
        )),
    },
    "cluster-weather": {
      needs: whyNoNet,
      run: async (row) =>
        void (await strikes(row, seed, {
          "delay 30 ms": (machines, workload) => storm(machines, workload, { delayMs: 30, jitterMs: 70 }, 8000),
          "loss 10 %": (machines, workload) => storm(machines, workload, { loss: 0.1 }, 8000),
          "doubled 50 %": (machines, workload) => storm(machines, workload, { duplication: 0.5, jitterMs: 10, reorder: 0.2 }, 8000),
          "all of it": (machines, workload) => storm(machines, workload, badWeather, 8000),
        })),
    },
  };
}

/** Faults of machines, and several at a time. */
function machineJobs(seed: number): Record<string, Job> {
  return {
    "cluster-clocks": {
      needs: () => whyNoNet() ?? whyNoFaketime(),
      run: (row) => clusters(row, Object.fromEntries(upTo(3).map((i) => [`20 jumps, seed ${seed + i}`, () => wrongClocks(20, seed + i)]))),
    },
    "cluster-disk": {
      needs: () => whyNoNet() ?? whyNoStrace(),
      run: async (row) => {
        const faults = Object.keys(diskFaults) as DiskFault[];
        const twice = [...faults, ...faults].map((fault, i): [string, Strike] => [
          `${fault}, ${i < faults.length ? "first" : "again"}`,
          (machines, workload) => leadersDisk(machines, workload, fault, 3000),
        ]);
        await strikes(row, seed, Object.fromEntries(twice));
      },
    },
    "cluster-power": {
      needs: () => whyNoNet() ?? whyNoLoop(),
      run: (row) => {
        const losses: readonly (readonly Victims[])[] = [
          ["leader", "leader", "leader"],
          ["all", "all", "all"],
        ];
        return clusters(row, Object.fromEntries(losses.map((each) => [each.join(), () => powerLosses(each, seed)])));
      },
    },
    "cluster-split": {
      needs: whyNoNet,
      run: async (row) => void (await strikes(row, seed, { "split, killed, merged": splitUnderLoad })),
    },
    "cluster-turmoil": {
      needs: whyNoNet,
      run: async (row) =>
        void (await strikes(
          row,
          seed,
          Object.fromEntries(
            upTo(4).map((i): [string, Strike] => [
              `12 faults, seed ${seed + i}`,
              (machines, workload) => turmoil(machines, workload, { steps: 12, seed: seed + i }),
            ]),
          ),
        )),
    },
  };
}
