/**
 * C6: the node that leads the shard is killed under load; how long until starts succeed again.
 * Callers are clients that were given all nodes, as clients of a cluster are.
 */
import { HopClient } from "#sdk/client";
import { now } from "./clock.ts";
import { type Cluster, withCluster } from "./cluster-product.ts";
import { freshName, pause, payload } from "./load.ts";
import { quantile } from "./result.ts";
import type { Workload } from "./workload.ts";

const nodes = 3;
const callers = 8;
const gapMs = 5;
const steadyMs = 1500;
const backMs = 6000;

interface Answer {
  readonly begunMs: number;
  readonly endedMs: number;
}

interface Failover {
  /** Kill → the first start that began after it is acknowledged. */
  readonly first: number;
  /** Of each caller: kill → its first acknowledged start after that. */
  readonly callers: readonly number[];
  readonly failed: number;
}

async function failOver(cluster: Cluster): Promise<Failover> {
  const leader = await cluster.leaderOf(1);
  const clients = Array.from({ length: callers }, () => HopClient.connect({ address: cluster.addresses }));
  const answers: Answer[][] = clients.map(() => []);
  let isOver = false;
  let failed = 0;
  const loops = clients.map(async (client, i) => {
    while (!isOver) {
      const begunMs = now();
      try {
        await client.start("steps", { n: 1, payload }, { instance: freshName("failover") });
        answers[i]?.push({ begunMs, endedMs: now() });
      } catch {
        failed++;
      }
      await pause(gapMs);
    }
  });
  await pause(steadyMs);
  const killedMs = now();
  await leader.kill();
  await pause(backMs);
  isOver = true;
  await Promise.all(loops);
  for (const client of clients) client.close();
  const since = answers.map((each) => each.filter(({ endedMs }) => endedMs > killedMs));
  const fresh = since.flat().filter(({ begunMs }) => begunMs > killedMs);
  // What was under way at the kill may be answered by what the leader had sent already.
  const back = since.map(
    (each) =>
      (each.find(({ endedMs, begunMs }) => begunMs > killedMs || endedMs > killedMs + 20)?.endedMs ?? Number.POSITIVE_INFINITY) - killedMs,
  );
  await leader.start(cluster.seeds);
  await leader.serves();
  await cluster.settled(nodes);
  return { first: Math.min(...fresh.map(({ endedMs }) => endedMs)) - killedMs, callers: back, failed };
}

export const failover: Workload = ({ scale, report }) =>
  withCluster({ nodes, workers: 0 }, async (cluster) => {
    const seen: Failover[] = [];
    for (let i = 0; i < scale.repetitions; i++) seen.push(await failOver(cluster));
    const failed = seen.reduce((sum, each) => sum + each.failed, 0);
    const first = seen.map((each) => each.first);
    report.value("C6", "first_success_p50", quantile(first, 0.5) as number, "ms", { n: first.length, max: Math.round(Math.max(...first)) });
    report.quantiles(
      "C6",
      "caller_success",
      seen.flatMap((each) => [...each.callers]),
      { kills: seen.length, failed },
    );
  });
