/** C4: what 500 shards cost a node at rest, alone and with each of them on three nodes. */

import { now } from "./clock.ts";
import { type Cluster, withCluster } from "./cluster-product.ts";
import { pause } from "./load.ts";
import { memoryMib } from "./process-usage.ts";
import type { Workload } from "./workload.ts";

/** Time for shards in which nothing happens to go to sleep. */
const asleepMs = 4000;

async function restOf(cluster: Cluster, forMs: number): Promise<number[]> {
  const before = cluster.nodes.map((node) => node.cpuMs());
  const begun = now();
  await pause(forMs);
  const wallMs = now() - begun;
  return cluster.nodes.map((node, i) => ((node.cpuMs() - (before[i] as number)) / wallMs) * 100);
}

export const idleShards: Workload = async ({ scale, report }) => {
  const many = scale.idleShards;
  for (const nodes of [1, 3])
    await withCluster({ nodes }, async (cluster) => {
      for (const count of [1, many]) {
        const begun = now();
        await cluster.splitInto(count);
        const tookMs = now() - begun;
        await cluster.settled(nodes);
        await pause(asleepMs);
        const shares = await restOf(cluster, scale.idleMs);
        const shards = (await cluster.shards()).length - 1;
        const extra = { nodes, shards };
        report.value("C4", "idle_cpu", Math.max(...shares), "%", { ...extra, all: shares.map((each) => each.toFixed(1)).join(" ") });
        report.value("C4", "rss", memoryMib(cluster.nodes[0]?.pid ?? 0).rss, "MiB", extra);
        if (count > 1) report.value("C4", "ms_per_split", tookMs / (count - 1), "ms", extra);
      }
    });
};
