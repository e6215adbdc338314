/** C1 and C2: what it costs that a record is on several nodes before it is acknowledged. */
import type { HopClient } from "#sdk/client";
import { now } from "./clock.ts";
import { type Cluster, type ClusterOptions, withCluster } from "./cluster-product.ts";
import { closedLoop, freshName, pause, payload } from "./load.ts";
import type { Extra } from "./result.ts";
import type { Setting, Workload } from "./workload.ts";

const nodes = 3;
const warmUp = 50;

async function startTimes(client: HopClient, samples: number): Promise<number[]> {
  const times: number[] = [];
  for (let i = -warmUp; i < samples; i++) {
    const begun = now();
    await client.start("one", { id: "", payload }, { instance: freshName("ack") });
    if (i >= 0) times.push(now() - begun);
  }
  return times;
}

async function acknowledged({ scale, report }: Setting, cluster: Cluster, extra: Extra): Promise<void> {
  const leader = await cluster.leaderOf(1);
  const other = cluster.nodes.find((node) => node !== leader);
  const asked = { leader, ...(other === undefined ? {} : { other }) };
  for (const [at, node] of Object.entries(asked)) {
    report.quantiles("C1", "start_acked", await startTimes(node.client, scale.samples), { ...extra, at });
  }
}

/** A start that is sent to the shard's leader, or to another node, until it is acknowledged; no worker is there. */
export const replicatedAck: Workload = async (setting) => {
  for (const count of [1, nodes])
    await withCluster({ nodes: count }, async (cluster) => acknowledged(setting, cluster, { replicas: count }));
  await withCluster({ nodes, workers: 1 }, async (cluster) => {
    const { client } = await cluster.leaderOf(1);
    const times: number[] = [];
    for (let i = -warmUp; i < setting.scale.samples; i++) {
      const id = freshName("one");
      const seen = cluster.marks.next(`step:${id}`);
      const begun = now();
      await client.start("one", { id, payload }, { instance: id });
      const { t } = await seen;
      if (i >= 0) times.push(t - begun);
    }
    setting.report.quantiles("C1", "start_to_step", times, { replicas: nodes });
  });
};

const concurrency = 50;
const warmUpSeconds = 3;

async function throughput({ scale, report }: Setting, cluster: Cluster, extra: Extra): Promise<void> {
  // Each client stays with one node, as clients of a cluster do; together they are at all of them.
  const clients = cluster.nodes.map(({ client }) => client);
  const client = (i: number) => clients[i % clients.length] as HopClient;
  const seconds = Math.max(scale.seconds / 4, 3);
  const run = (i: number) => client(i).execute("steps", { n: 1, payload }, { instance: freshName("run") });
  await closedLoop({ concurrency, seconds: warmUpSeconds }, run);
  const before = cluster.cpuMs();
  const { done, ms } = await closedLoop({ concurrency, seconds }, run);
  const used = cluster.cpuMs() - before;
  report.value("C2", "workflows_per_s", (done / ms) * 1000, "1/s", { ...extra, concurrency, done });
  report.value("C2", "cpu_per_workflow", (used * 1000) / done, "µs", { ...extra, cores: Number((used / ms).toFixed(2)) });
}

const settleMs = 2000;

/** Runs of one step, 50 at a time: on clusters of as many nodes as there are replicas, then on three nodes by shards. */
export const replicatedThroughput: Workload = async (setting) => {
  const measure = (options: ClusterOptions, shards: readonly number[]) =>
    withCluster({ ...options, workers: 1 }, async (cluster) => {
      for (const count of shards) {
        await cluster.splitInto(count);
        await cluster.settled(options.replicas ?? options.nodes);
        await pause(settleMs);
        await throughput(setting, cluster, { replicas: options.replicas ?? options.nodes, shards: count });
      }
    });
  await measure({ nodes: 1 }, [1, 4, 16]);
  await measure({ nodes: 3 }, [1, 4, 16]);
  await measure({ nodes: 5, replicas: 5 }, [1]);
};
