/**
 * C3: how long a node takes to come back, and a new replica to be filled, by how much is in the
 * log: starts and signals of runs that nobody executes, so that one record is one event.
 */
import type { HopClient } from "#sdk/client";
import { now } from "./clock.ts";
import { Cluster, type ClusterNode, eventually } from "./cluster-product.ts";
import { closedLoop, freshName, payload } from "./load.ts";
import { diskMib } from "./process-usage.ts";
import type { Setting, Workload } from "./workload.ts";

const concurrency = 200;
const runs = 1000;
const restarts = 3;
/** What a node of three misses while it is down. */
const missedEvents = 1000;

/** Events of many runs, as many as are asked for, sent to all nodes. */
class Growth {
  private readonly cluster: Cluster;
  private readonly ids: string[] = [];
  events = 0;

  constructor(cluster: Cluster) {
    this.cluster = cluster;
  }

  /** Sent to the nodes but for one that is down. */
  async to(events: number, down?: ClusterNode): Promise<void> {
    const clients = this.cluster.nodes.filter((node) => node !== down).map(({ client }) => client);
    const client = (i: number) => clients[i % clients.length] as HopClient;
    while (this.ids.length < runs) this.ids.push(freshName("grown"));
    if (this.events === 0) {
      await closedLoop({ concurrency, count: runs }, (i) => client(i).start("waiter", { id: "" }, { instance: this.ids[i] as string }));
      this.events = runs;
    }
    const count = events - this.events;
    await closedLoop({ concurrency, count }, (i) =>
      client(i).signal(`default:${this.ids[i % runs]}`, { name: "grow", value: payload, id: `s${this.events + i}` }),
    );
    this.events = events;
  }
}

async function restart(cluster: Cluster, node: ClusterNode, meanwhile: () => Promise<void>): Promise<number> {
  await node.kill();
  await meanwhile();
  const begun = now();
  await node.start(cluster.seeds);
  await node.serves();
  return now() - begun;
}

/** Time until the shard's leader reports, once a second, that the node has everything. */
async function caughtUp(cluster: Cluster, node: ClusterNode): Promise<number> {
  const begun = now();
  const sinceMs = Date.now();
  await eventually(
    `node ${node.number} to catch up`,
    async () => {
      const { replica, reportedMs } = await cluster.client.cluster.shard(1);
      const isInStep = replica.some((each) => each.node === node.number && each.live && each.lag === 0);
      return isInStep && reportedMs > sinceMs ? true : undefined;
    },
    { everyMs: 10 },
  );
  return now() - begun;
}

/** A child of a split is on three nodes, and is moved to a node that has nothing of it. */
async function fill({ report }: Setting, cluster: Cluster, events: number): Promise<void> {
  const shards = (await cluster.shards()).filter(({ shard }) => shard !== 0);
  if (shards.length === 1) await cluster.splitInto(2);
  const fresh = await cluster.addNode();
  const child = (await cluster.shards()).find(({ shard }) => shard > 1);
  if (child === undefined) throw new Error("The split made no shard");
  const begun = now();
  const tookMs = await eventually("a move to a new node", async () => {
    const { replica, leader } = await cluster.client.cluster.shard(child.shard);
    const voters = replica.filter(({ learner }) => !learner).map(({ node }) => node);
    // The planner may have come first.
    if (voters.includes(fresh.number)) return now() - begun;
    const from = voters.find((node) => node !== leader);
    if (from === undefined) return undefined;
    return cluster.change(cluster.client.cluster.move({ shard: child.shard, from, to: fresh.number }));
  });
  report.value("C3", "new_replica", tookMs, "ms", { nodes: 3, events, n: runs / 2 });
  await cluster.change(cluster.client.cluster.leave(fresh.number));
  await fresh.kill();
  cluster.nodes.pop();
  await cluster.settled(3);
}

export const restartTime: Workload = async (setting) => {
  const { scale, report } = setting;
  for (const nodes of [1, 3]) {
    await using cluster = await Cluster.up({ nodes });
    const growth = new Growth(cluster);
    for (const events of scale.logEvents) {
      const begun = now();
      await growth.to(events);
      const extra = { nodes, events };
      report.value("C3", "grown_in", (now() - begun) / 1000, "s", extra);
      for (let i = 0; i < restarts; i++) {
        const node = nodes === 1 ? (cluster.nodes[0] as ClusterNode) : await follower(cluster);
        const missed = () => (nodes === 1 ? Promise.resolve() : growth.to(growth.events + missedEvents, node));
        report.value("C3", "restart", await restart(cluster, node, missed), "ms", extra);
        if (nodes > 1) report.value("C3", "caught_up_after", await caughtUp(cluster, node), "ms", extra);
      }
      report.value("C3", "disk", diskMib((cluster.nodes[0] as ClusterNode).folder), "MiB", extra);
      if (nodes > 1) await fill(setting, cluster, events);
    }
  }
};

async function follower(cluster: Cluster): Promise<ClusterNode> {
  const leader = await cluster.leaderOf(1);
  return cluster.nodes.find((node) => node !== leader) as ClusterNode;
}
