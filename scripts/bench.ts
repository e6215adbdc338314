/**
 * Measures the compiled executable: workloads W1 to W11 on one node, C1 to C7 on clusters of several
 * processes, S1 with object storage, and what the disk gives in the same run. docs/BENCHMARKS.md says what each figure means.
 *
 *     npm run bench -- [--cluster | --sealing] [--quick] [--json] [--only W1,C2] [--embedded] [--peers] [--runs N]
 *
 * Left out, `--only` means W1 to W11, with `--cluster` C1 to C7, with `--sealing` S1. `--json`: one line a value on standard output, the table on standard error. `--embedded`: also
 * with the worker in the server's process, in turns. `--peers`: other systems too, when installed.
 */

import { rmSync } from "node:fs";
import { parseArgs } from "node:util";
import { now } from "./bench/clock.ts";
import { crashRecovery } from "./bench/crash.ts";
import { durableAppend } from "./bench/durable-append.ts";
import { calling, streaming } from "./bench/exchange.ts";
import { failover } from "./bench/failover.ts";
import { flood } from "./bench/flood.ts";
import { measureFloor } from "./bench/floor.ts";
import { serverStart, sleepingRuns } from "./bench/footprint.ts";
import { idleShards } from "./bench/idle.ts";
import { keyChanges } from "./bench/key-changes.ts";
import { signalLatency, startLatency, stepLatency } from "./bench/latency.ts";
import { measurePeers } from "./bench/peers.ts";
import { type Config, freshFolder } from "./bench/product.ts";
import { replicatedAck, replicatedThroughput } from "./bench/replication.ts";
import { restartTime } from "./bench/restart.ts";
import { Report, type Result } from "./bench/result.ts";
import { sealingCost } from "./bench/sealing.ts";
import { tableOf } from "./bench/table.ts";
import { eventThroughput, runThroughput } from "./bench/throughput.ts";
import { fullScale, quickScale, type Scale, type Workload } from "./bench/workload.ts";

const alone: Readonly<Record<string, Workload>> = {
  W1: startLatency,
  W2: stepLatency,
  W3: runThroughput,
  W4: signalLatency,
  W5: eventThroughput,
  W6: sleepingRuns,
  W7: serverStart,
  W8: crashRecovery,
  W9: streaming,
  W10: calling,
  W11: flood,
};
/** Of the worker's place these know nothing: they are measured in one configuration. */
const clustered: Readonly<Record<string, Workload>> = {
  C1: replicatedAck,
  C2: replicatedThroughput,
  C3: restartTime,
  C4: idleShards,
  C5: keyChanges,
  C6: failover,
  C7: durableAppend,
};
const storage: Readonly<Record<string, Workload>> = { S1: sealingCost };
const workloads = { ...alone, ...clustered, ...storage };

function options() {
  const { values } = parseArgs({
    options: {
      quick: { type: "boolean", default: false },
      cluster: { type: "boolean", default: false },
      sealing: { type: "boolean", default: false },
      json: { type: "boolean", default: false },
      embedded: { type: "boolean", default: false },
      peers: { type: "boolean", default: false },
      only: { type: "string" },
      runs: { type: "string", default: "1" },
    },
  });
  const names =
    values.only?.split(",").map((name) => name.trim().toUpperCase()) ??
    Object.keys(values.sealing ? storage : values.cluster ? clustered : alone);
  const unknown = names.find((name) => !Object.hasOwn(workloads, name));
  if (unknown !== undefined) throw new Error(`Unknown workload ${unknown}. Workloads: ${Object.keys(workloads).join(", ")}`);
  const runs = Number(values.runs);
  if (!(Number.isInteger(runs) && runs > 0)) throw new Error(`--runs must be a whole number from 1 on, got ${values.runs}`);
  const configs: readonly Config[] = values.embedded ? ["default", "embedded"] : ["default"];
  return { ...values, names, runs, configs, scale: values.quick ? quickScale : fullScale };
}

type Sink = (result: Result) => void;

function floor(run: number, scale: Scale, sink: Sink): void {
  const folder = freshFolder();
  try {
    measureFloor(new Report({ peer: "floor", config: "disk", run }, sink), folder, scale.samples);
  } finally {
    rmSync(folder, { recursive: true, force: true });
  }
}

async function measure(name: string, setting: { config: Config; scale: Scale; run: number }, sink: Sink): Promise<void> {
  const { config, scale, run } = setting;
  const report = new Report({ peer: "hopskip", config, run }, sink);
  const begun = now();
  try {
    await (workloads[name] as Workload)({ config, scale, report });
    console.error(`${name} ${config}: ${Math.round((now() - begun) / 1000)} s`);
  } catch (error) {
    report.failure(name, error);
    console.error(`${name} ${config}:`, error);
  }
}

async function main(): Promise<number> {
  const { names, runs, configs, scale, json, peers, quick } = options();
  const results: Result[] = [];
  const sink: Sink = (result) => {
    results.push(result);
    if (json) console.log(JSON.stringify(result));
  };
  for (let run = 1; run <= runs; run++) {
    floor(run, scale, sink);
    for (const name of names) {
      for (const config of Object.hasOwn(alone, name) ? configs : configs.slice(0, 1)) await measure(name, { config, scale, run }, sink);
    }
    floor(run, scale, sink);
  }
  const brief = { BENCH_SECONDS: String(scale.seconds), BENCH_SAMPLES: String(scale.samples), BENCH_EVENTS: String(scale.events) };
  if (peers) await measurePeers(names, { runs, env: quick ? brief : {} }, sink);
  (json ? console.error : console.log)(tableOf(results));
  return results.some(({ metric }) => metric === "failed") ? 1 : 0;
}

try {
  process.exit(await main());
} catch (error) {
  console.error(error instanceof Error ? error.message : error);
  process.exit(2);
}
