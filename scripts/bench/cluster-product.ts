/**
 * Several nodes of the compiled executable on one machine, as one cluster: each a process with a
 * data folder of its own, all on one disk.
 *
 * So three nodes share two cores and one disk here, where a cluster of machines has those for each:
 * replicas cost throughput on it that they don't cost there.
 */
import { existsSync, rmSync } from "node:fs";
import { join } from "node:path";
import { HopClient } from "#sdk/client";
import { now } from "./clock.ts";
import { freshName, pause, payload } from "./load.ts";
import { Marks, marksVariable } from "./marks.ts";
import { childrenOf, cpuMs } from "./process-usage.ts";
import { activityFile, type Child, deployTo, executable, freePorts, freshFolder, readyLine, spawn } from "./product.ts";
import { wantReplicas } from "./replication-factor.ts";

export type ShardInfo = Awaited<ReturnType<HopClient["cluster"]["shard"]>>;

interface Ports {
  readonly grpc: string;
  readonly http: string;
  readonly peer: string;
}

function freeAddresses(): Ports {
  const [grpc, http, peer] = freePorts(3).map((port) => `127.0.0.1:${port}`) as [string, string, string];
  return { grpc, http, peer };
}

/** Until `make` resolves with a value, asking again and again; a failure is asked again too. */
export async function eventually<T>(
  what: string,
  make: () => Promise<T | undefined>,
  options: { withinMs?: number; everyMs?: number } = {},
): Promise<T> {
  const end = now() + (options.withinMs ?? 60_000);
  let last = "";
  for (;;) {
    try {
      const made = await make();
      if (made !== undefined) return made;
    } catch (error) {
      last = `: ${error instanceof Error ? error.message : String(error)}`;
    }
    if (now() > end) throw new Error(`Waited ${options.withinMs ?? 60_000} ms for ${what}${last}`);
    await pause(options.everyMs ?? 20);
  }
}

/** One node: a process that can be killed and started again in its folder. */
export class ClusterNode {
  readonly ports: Ports = freeAddresses();
  readonly folder: string;
  /** In the cluster; 0 before it is a member. */
  number = 0;
  client: HopClient;
  private child: Child | undefined;

  constructor(folder: string) {
    this.folder = folder;
    this.client = HopClient.connect({ address: this.ports.grpc });
  }

  /** Starts the process. Resolves when it listens; it may still look for its cluster, or for its shards' leaders. */
  async start(seeds: readonly string[]): Promise<void> {
    const { grpc, http, peer } = this.ports;
    const port = peer.slice(peer.lastIndexOf(":") + 1);
    const where = ["--data", this.folder, "--listen", grpc, "--http", http, "--peer-port", port, "--seed", seeds.join(",")];
    const child = spawn(["server", "start", ...where, "--log-level", "error", "--ready-line"], join(this.folder, ".."), {});
    this.child = child;
    await readyLine(child, "node");
  }

  /** Resolves when it serves. */
  async serves(): Promise<void> {
    await eventually(`node ${this.number} to serve`, async () => ((await this.isHealthy()) ? true : undefined), { everyMs: 5 });
  }

  async isHealthy(): Promise<boolean> {
    const answer = await fetch(`http://${this.ports.http}/healthz`, { signal: AbortSignal.timeout(1000) });
    return answer.ok;
  }

  get pid(): number {
    return this.child?.pid ?? 0;
  }

  cpuMs(): number {
    return cpuMs(this.pid);
  }

  async kill(): Promise<void> {
    this.child?.kill("SIGKILL");
    await this.child?.exited;
  }
}

export interface ClusterOptions {
  readonly nodes: number;
  /** Workers with 100 slots each, in processes of their own. */
  readonly workers?: number;
  /** Replicas of each shard; left out: as the cluster grows to by itself, at most three. */
  readonly replicas?: number;
}

export class Cluster implements AsyncDisposable {
  readonly nodes: ClusterNode[] = [];
  readonly marks: Marks;
  /** Is told of all nodes, and goes on when its own is gone. */
  client: HopClient;
  private readonly folder: string;
  private readonly workers: Child[] = [];
  private folders = 0;

  private constructor(nodes: number) {
    this.folder = freshFolder();
    this.marks = new Marks(join(this.folder, "marks.sock"));
    while (this.nodes.length < nodes) this.nodes.push(this.newNode());
    this.client = HopClient.connect({ address: this.addresses });
  }

  static async up({ nodes, workers = 0, replicas }: ClusterOptions): Promise<Cluster> {
    if (!existsSync(executable)) throw new Error("Cannot measure: dist/hop is not there, run npm run build");
    const cluster = new Cluster(nodes);
    try {
      await cluster.begin(replicas);
      for (let i = 0; i < workers; i++) await cluster.startWorker();
      if (workers > 0) await cluster.client.execute("steps", { n: 1, payload }, { instance: freshName("warm") });
      return cluster;
    } catch (error) {
      await cluster[Symbol.asyncDispose]();
      throw error;
    }
  }

  get addresses(): string[] {
    return this.nodes.map(({ ports }) => ports.grpc);
  }

  get seeds(): string[] {
    return this.nodes.map(({ ports }) => ports.peer);
  }

  /** A node more, with an empty folder. Resolves when it is a member. */
  async addNode(): Promise<ClusterNode> {
    const node = this.newNode();
    await node.start(this.seeds);
    this.nodes.push(node);
    await this.joined(node);
    return node;
  }

  async shards(): Promise<ShardInfo[]> {
    const found: ShardInfo[] = [];
    for (let pageToken = ""; ; ) {
      const reply = await this.client.cluster.shards({ limit: 200, pageToken });
      found.push(...reply.shard);
      pageToken = reply.nextPageToken;
      if (pageToken === "") return found;
    }
  }

  node(number: number): ClusterNode {
    const node = this.nodes.find((each) => each.number === number);
    if (node === undefined) throw new Error(`The cluster has no node ${number}`);
    return node;
  }

  /** The node that leads a shard now. */
  async leaderOf(shard: number): Promise<ClusterNode> {
    const leader = await eventually(`a leader of shard ${shard}`, async () => {
      const info = await this.client.cluster.shard(shard);
      return info.leader === 0 ? undefined : info.leader;
    });
    return this.node(leader);
  }

  /** Until every shard has its replicas, all in step, and a leader. */
  async settled(replicas: number, withinMs = 60_000): Promise<void> {
    await eventually(
      `${replicas} replicas of every shard`,
      async () => {
        const shards = await this.shards();
        const isWhole = ({ shard, leader, replica, change }: ShardInfo) =>
          leader !== 0 && change === "" && (shard === 0 || replica.filter(({ learner, live }) => !learner && live).length >= replicas);
        return shards.length > 0 && shards.every(isWhole) ? true : undefined;
      },
      { withinMs, everyMs: 100 },
    );
  }

  /** Follows a change of a shard to its end. Resolves with how long it took. */
  async change(progress: AsyncIterable<{ readonly finished: boolean }>): Promise<number> {
    const begun = now();
    for await (const { finished } of progress) if (finished) return now() - begun;
    throw new Error("The cluster stopped telling how far a change is");
  }

  /** Splits the shards in the middle until there are `count`. */
  async splitInto(count: number): Promise<void> {
    for (;;) {
      const shards = (await this.shards()).filter(({ shard }) => shard !== 0);
      if (shards.length >= count) return;
      const wide = shards.sort((a, b) => b.last - b.first - (a.last - a.first)).slice(0, Math.min(8, count - shards.length));
      await Promise.all(
        wide.map(({ shard }) => eventually(`a split of shard ${shard}`, () => this.change(this.client.cluster.split({ shard })))),
      );
    }
  }

  async startWorker(): Promise<void> {
    const args = ["worker", "--server", this.addresses.join(","), "--activities", activityFile, "--ready-line", "--log-level", "error"];
    const worker = spawn(args, this.folder, { [marksVariable]: this.marks.path });
    this.workers.push(worker);
    await readyLine(worker, "worker");
  }

  /** CPU time of all processes of the product. */
  cpuMs(): number {
    const pids = [...this.nodes.map(({ pid }) => pid), ...this.workers.flatMap(({ pid }) => [pid, ...childrenOf(pid)])];
    return pids.reduce((sum, pid) => sum + cpuMs(pid), 0);
  }

  async [Symbol.asyncDispose](): Promise<void> {
    this.client.close();
    for (const worker of this.workers) worker.kill("SIGKILL");
    for (const node of this.nodes) {
      node.client.close();
      await node.kill();
    }
    this.marks.close();
    rmSync(this.folder, { recursive: true, force: true });
  }

  private async begin(replicas: number | undefined): Promise<void> {
    const { nodes } = this;
    const first = nodes[0] as ClusterNode;
    await Promise.all(nodes.map((node) => node.start(this.seeds)));
    await first.client.cluster.init();
    await Promise.all(nodes.map((node) => this.joined(node)));
    if (replicas !== undefined) await wantReplicas({ cluster: first.client.cluster, peers: this.seeds, count: replicas });
    await this.settled(Math.min(replicas ?? 3, nodes.length % 2 === 0 ? nodes.length - 1 : nodes.length));
    await deployTo(this.addresses.join(","), this.folder);
  }

  private newNode(): ClusterNode {
    return new ClusterNode(join(this.folder, `node-${this.folders++}`));
  }

  private async joined(node: ClusterNode): Promise<void> {
    node.number = await eventually("a node to join", async () => {
      const status = await node.client.cluster.status();
      return status.node === 0 ? undefined : status.node;
    });
    await node.serves();
  }
}

/** Runs `measure` on a fresh cluster, which is gone afterwards. */
export async function withCluster(options: ClusterOptions, measure: (cluster: Cluster) => Promise<void>): Promise<void> {
  await using cluster = await Cluster.up(options);
  await measure(cluster);
}
