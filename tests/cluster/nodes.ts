/** Several nodes of the executable under test that find each other through their seeds, and what is asked of them. */
import { mkdirSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { HopClient } from "#sdk/client";
import { Cluster, type Finished, type RunOptions, Server } from "./harness.ts";

export interface ShardShown {
  readonly shard: number;
  readonly leader: number | null;
  readonly voters: readonly number[];
  readonly learners: readonly number[];
  readonly replicas: readonly { readonly node: number; readonly lag: number; readonly live: boolean }[];
  readonly change: string | null;
}

export interface MemberShown {
  readonly node: number;
  readonly state: string;
  readonly grpc: string;
  readonly shardsLed: number;
  readonly diskBytes: number | null;
  readonly replicas: number;
}

/**
 * Ports that were free just now; all are taken before the first is given back, so no two are the same. They are below those that
 * the system gives to who asks for any: nobody else is given one before its node takes it.
 */
function freePorts(count: number): number[] {
  const held = Array.from({ length: count }, () => {
    for (;;) {
      const port = 20_000 + Math.floor(Math.random() * 12_000);
      try {
        return Bun.listen({ hostname: "127.0.0.1", port, socket: { data() {} } });
      } catch {
        // Taken: another one.
      }
    }
  });
  for (const each of held) each.stop(true);
  return held.map(({ port }) => port);
}

interface Deployed {
  /** Text of a file of workflows. */
  readonly workflows: string;
  /** Folder with `workflow.ts` and `activities.ts`. */
  readonly example: string;
}

export class Nodes implements AsyncDisposable {
  readonly cluster = new Cluster();
  /** In the order of their start; which number the cluster gave each is `numberOf`'s to say. */
  readonly servers: Server[] = [];
  /** host:port of the peers. */
  readonly seeds: readonly string[];
  /** Flags of the nodes that are started from now on. */
  extra: readonly string[] = [];
  private readonly peerPorts: readonly number[];
  private readonly clients: HopClient[] = [];

  /** Room for `count` nodes; `seeds` of them are in the seed list. None is started. */
  constructor(count: number, seeds = count) {
    this.peerPorts = freePorts(count);
    this.seeds = this.peerPorts.slice(0, seeds).map((port) => `127.0.0.1:${port}`);
  }

  /** Starts the next node with an empty folder; it is `joining`. */
  async start(): Promise<Server> {
    const index = this.servers.length;
    const peer = ["--peer-port", String(this.peerPorts[index]), ...this.seeds.flatMap((seed) => ["--seed", seed])];
    const server = new Server(this.cluster, { data: `node-${index}`, args: [...peer, ...this.extra, "--log-format", "json"] });
    this.servers.push(server);
    await server.begin();
    return server;
  }

  /** All nodes started, made a cluster by the first, and whole. */
  async form(count: number): Promise<void> {
    await Promise.all(Array.from({ length: count }, () => this.start()));
    await this.ok(["cluster", "init"], { server: this.at(0) });
    await this.whole(count);
  }

  /** Deploys both, and starts a worker for the example's activities that knows of all nodes. */
  async deploy({ workflows, example }: Deployed): Promise<void> {
    this.project({ "workflows.ts": workflows });
    await this.ok(["deploy", "project/workflows.ts"]);
    await this.ok(["deploy", join(example, "workflow.ts")]);
    const grpc = this.servers.map((each) => each.grpc).join(",");
    await this.cluster.worker({ grpc }, ["--activities", join(example, "activities.ts")]);
  }

  /** Waits until so many nodes are live and every shard has its replicas and a leader. */
  async whole(count: number): Promise<void> {
    await this.ok(["cluster", "status", "--wait-nodes", String(count), "--timeout", "40s"]);
  }

  at(index: number): Server {
    const server = this.servers[index];
    if (server === undefined) throw new Error(`There is no node ${index}`);
    return server;
  }

  run(args: readonly string[], options: RunOptions = {}): Promise<Finished> {
    return this.cluster.run(args, this.addressed(options));
  }

  /** Standard output of a command that ends with 0; asks every node unless `server` says which. */
  ok(args: readonly string[], options: RunOptions = {}): Promise<string> {
    return this.cluster.expectOk(args, this.addressed(options));
  }

  async json<T>(args: readonly string[], options: RunOptions = {}): Promise<T> {
    return JSON.parse(await this.ok([...args, "-o", "json"], options)) as T;
  }

  members(...args: string[]): Promise<MemberShown[]> {
    return this.json(["cluster", "members", ...args]);
  }

  /** Without placement. */
  async shards(): Promise<ShardShown[]> {
    const all = await this.json<ShardShown[]>(["shard", "list"]);
    return all.filter(({ shard }) => shard !== 0);
  }

  async shard(number: number): Promise<ShardShown> {
    return this.json(["shard", "show", String(number)]);
  }

  /** The node's number in the cluster. */
  async numberOf(server: Server): Promise<number> {
    const member = (await this.members()).find(({ grpc }) => grpc === server.grpc);
    if (member === undefined) throw new Error(`No member is at ${server.grpc}`);
    return member.node;
  }

  /** The node of this number. */
  async numbered(node: number): Promise<Server> {
    const member = (await this.members()).find((each) => each.node === node);
    const server = this.servers.find(({ grpc }) => grpc === member?.grpc);
    if (server === undefined) throw new Error(`No node of the test is node ${node}`);
    return server;
  }

  /** The node that leads the shard. */
  async leaderOf(shard: number): Promise<Server> {
    const { leader } = await this.shard(shard);
    if (leader === null) throw new Error(`Shard ${shard} has no leader`);
    return this.numbered(leader);
  }

  /** Writes a project's files below the cluster's folder. */
  project(files: Readonly<Record<string, string>>): string {
    const folder = join(this.cluster.folder, "project");
    mkdirSync(folder, { recursive: true });
    for (const [name, text] of Object.entries(files)) writeFileSync(join(folder, name), text);
    return folder;
  }

  /** Asks that node alone; closed with the nodes. */
  client({ grpc: address }: Server): HopClient {
    const made = HopClient.connect({ address, retryMs: 30_000 });
    this.clients.push(made);
    return made;
  }

  async [Symbol.asyncDispose](): Promise<void> {
    for (const each of this.clients) each.close();
    await this.cluster[Symbol.asyncDispose]();
  }

  private addressed(options: RunOptions): RunOptions {
    if (options.server !== undefined) return options;
    return { ...options, env: { HOP_SERVER: this.servers.map(({ grpc }) => grpc).join(","), ...options.env } };
  }
}
