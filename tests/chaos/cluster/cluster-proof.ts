/**
 * Holds a healed cluster against all that its clients saw.
 *
 * Every run that was named is brought to its end; then the histories of the clients have to be
 * linearizable, every acknowledged start and signal has to be in the audited history once, and
 * all replicas have to be equal.
 */
import { until } from "../../until.ts";
import { brokenPromises, provenHistory } from "../proof.ts";
import type { Outages } from "./cluster-cases.ts";
import type { Machines } from "./machines.ts";
import { byRun, checkRun, type Observed, readState, signalId, staleRead } from "./run-log.ts";
import { Workload, type WorkloadOptions } from "./workload.ts";

const lanes = 4;

/** Number of the one who reads at the end, in what was observed. */
const auditor = -1;

async function eachRun(runs: readonly string[], work: (run: string) => Promise<void>): Promise<void> {
  const left = [...runs];
  await Promise.all(
    Array.from({ length: lanes }, async () => {
      for (let run = left.pop(); run !== undefined; run = left.pop()) await work(run);
    }),
  );
}

export interface Proven {
  readonly runs: number;
  /** Starts and signals that were acknowledged while the faults struck. */
  readonly acks: number;
  /** Requests whose outcome the clients never learned. */
  readonly open: number;
  readonly reads: number;
}

export type Strike = (machines: Machines, workload: Workload) => Promise<Outages>;

/** The load goes on behind the faults for as long as these take: on a slow machine fewer would prove little. */
const acksMin = 60;

const ackCount = (observed: Iterable<Observed>): number => {
  let count = 0;
  for (const { call, endMs } of observed) if (endMs !== undefined && call.kind !== "read") count++;
  return count;
};

/** Strikes a load, and holds what is left against what its clients saw. */
export async function struck(machines: Machines, options: WorkloadOptions, strike: Strike): Promise<Proven & Outages> {
  const workload = new Workload(machines, options);
  try {
    const { outageMs } = await strike(machines, workload);
    await until(() => ackCount(workload.observed) > acksMin, { what: `more than ${acksMin} acknowledgements` });
    return { ...(await proveCluster(machines, workload)), outageMs };
  } finally {
    workload.abandon();
  }
}

export async function proveCluster(machines: Machines, workload: Workload): Promise<Proven> {
  await workload.stop();
  const during = [...workload.observed];
  await machines.untilWhole();
  await endRuns(machines, workload);
  for (const machine of machines.all) {
    const client = machines.client(machine);
    await eachRun(workload.runs, (run) => workload.read(client, auditor, run)).finally(() => client.close());
  }
  for (const operations of byRun(workload.observed).values()) {
    const verdict = checkRun(operations);
    if (verdict !== "ok")
      throw new Error(
        `What clients saw of a run is not linearizable: ${verdict}; ${staleRead(operations) ?? "no read is stale"}\n${shown(operations)}`,
      );
  }
  await proveAcks(machines, workload, byRun(during));
  await machines.hop.expectOk(["shard", "verify", "--all"], { server: machines });
  const answered = during.filter(({ endMs }) => endMs !== undefined);
  const reads = answered.filter(({ call }) => call.kind === "read").length;
  return { runs: workload.runs.length, acks: ackCount(answered), open: during.length - answered.length, reads };
}

/** Sends what may be missing of each run; its result must be the sum of its signals, each counted once. */
async function endRuns(machines: Machines, workload: Workload): Promise<void> {
  const { signals } = workload;
  const sum = (signals * (signals + 1)) / 2;
  const client = machines.client();
  try {
    await eachRun(workload.runs, async (run) => {
      if (!(await workload.start(client, auditor, run))) throw new Error(`${run} can't be started on the healed cluster`);
      const seen = await readState(client, run);
      for (let value = 1; value <= signals; value++)
        if (!seen.includes(`,${value},`)) await workload.append(client, auditor, { run, value });
      const result = await client.handle<number>({ instance: run }).result({ waitMs: 60_000 });
      if (result !== sum) throw new Error(`${run} came to ${result}, want ${sum}: a signal was lost or counted twice`);
    });
  } finally {
    client.close();
  }
}

/** Every acknowledged start and signal is in the audited history once, and the history is the one that clients read. */
async function proveAcks(machines: Machines, workload: Workload, during: ReadonlyMap<string, readonly Observed[]>): Promise<void> {
  const client = machines.client();
  const broken: string[] = [];
  try {
    await eachRun(workload.runs, async (run) => {
      const history = await provenHistory({ hop: machines.hop, server: machines, client }, run);
      const answered = (during.get(run) ?? []).filter(({ endMs }) => endMs !== undefined);
      const values = answered.flatMap(({ call }) => (call.kind === "append" ? [call.value] : []));
      const isStarted = answered.some(({ call }) => call.kind === "start");
      broken.push(...brokenPromises(run, history, { generation: isStarted ? 1 : undefined, signals: new Set(values), result: undefined }));
      const ids = history.flatMap(({ event }) => ("id" in event.body && typeof event.body.id === "string" ? [event.body.id] : []));
      const all = Array.from({ length: workload.signals }, (_, i) => signalId(i + 1));
      if (ids.toSorted().join() !== all.toSorted().join()) broken.push(`${run}: its history has the signals ${ids.join(" ")}`);
    });
  } finally {
    client.close();
  }
  if (broken.length > 0) throw new Error(`${broken.length} promises broken:\n${broken.join("\n")}`);
}

/** The operations on a run, for people. */
function shown(operations: readonly Observed[]): string {
  const whatOf = ({ call }: Observed) =>
    call.kind === "append" ? `append ${call.value}` : call.kind === "read" ? `read ${call.seen}` : call.kind;
  return operations
    .toSorted((a, b) => a.beginMs - b.beginMs)
    .map((each) => `${each.run} client ${each.client} ${each.beginMs.toFixed(1)}–${each.endMs?.toFixed(1) ?? "?"} ${whatOf(each)}`)
    .join("\n");
}
