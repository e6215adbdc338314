/**
 * C7: the durable append on three members, beside etcd and Restate: one value of 128 bytes that a quorum has on
 * disk when it is acknowledged. All are asked by one client in this process: Hopskip and etcd over gRPC with the same
 * library and one connection to the member that leads, etcd for `KV/Put` of rising keys, Hopskip for a
 * signal to a run, whose record also holds hashes, names and a place in the run's history; Restate over HTTP
 * for an invocation that is to be made in an hour.
 */
import { now } from "./clock.ts";
import { Cluster } from "./cluster-product.ts";
import { etcdAppender } from "./etcd-cluster.ts";
import { closedLoop, freshName } from "./load.ts";
import { restateAppender } from "./restate-cluster.ts";
import type { Extra } from "./result.ts";
import type { Setting, Workload } from "./workload.ts";

const members = 3;
const value = "v".repeat(128);
const warmUp = 50;
const concurrency = 50;

/** A cluster that makes values durable. */
export interface Appender {
  /** Resolves when the value is acknowledged. */
  readonly append: (i: number) => Promise<unknown>;
  readonly stop: () => void;
}

async function measure({ scale, report }: Setting, what: string, append: Appender["append"], extra: Extra): Promise<void> {
  const times: number[] = [];
  let made = 0;
  for (let i = -warmUp; i < scale.samples; i++) {
    const begun = now();
    await append(made++);
    if (i >= 0) times.push(now() - begun);
  }
  report.quantiles("C7", `${what}_append`, times, extra);
  const loop = { concurrency, seconds: Math.max(scale.seconds / 4, 3) };
  const { done, ms } = await closedLoop(loop, () => append(made++));
  report.value("C7", `${what}_appends_per_s`, (done / ms) * 1000, "1/s", { ...extra, concurrency });
}

async function other(setting: Setting, what: string, appender: Appender | undefined): Promise<void> {
  if (appender === undefined) return;
  try {
    await measure(setting, what, appender.append, { members });
  } finally {
    appender.stop();
  }
}

async function hopskip(setting: Setting): Promise<void> {
  await using cluster = await Cluster.up({ nodes: members });
  const { client } = await cluster.leaderOf(1);
  // Many runs, as etcd has many keys.
  const ids = Array.from({ length: 100 }, () => freshName("appended"));
  for (const id of ids) await client.start("waiter", { id: "" }, { instance: id });
  const signal: Appender["append"] = (i) => client.signal(`default:${ids[i % ids.length]}`, { name: "append", value, id: `s${i}` });
  await measure(setting, "hopskip", signal, { members });
}

/** In turns, so that all have the same machine. */
export const durableAppend: Workload = async (setting) => {
  await other(setting, "etcd", await etcdAppender(members, value));
  await other(setting, "restate", await restateAppender(members, value));
  await hopskip(setting);
};
