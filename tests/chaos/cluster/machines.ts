/**
 * A cluster whose nodes are processes on machines of a network of their own, with a worker and
 * clients beside it. Everything is gone when it is disposed of.
 */
import { join } from "node:path";
import { HopClient } from "#sdk/client";
import { Cluster, type HopProcess, until } from "#tests/cluster";
import { activityFile, workflowFile } from "../rig.ts";
import { Net } from "./net.ts";

const grpcPort = 7070;
const peerPort = 7072;
const upMsMax = 60_000;

export interface MachinesOptions {
  readonly machines?: number;
  /** Of the network's own draws. */
  readonly seed?: number;
  /** Added to the environment of a machine's node. */
  readonly env?: (machine: number) => Readonly<Record<string, string>>;
  /** Data folder of a machine's node; left out: one below the folder of the test. */
  readonly data?: (machine: number, folder: string) => string;
  readonly workers?: number;
}

export class Machine {
  readonly number: number;
  readonly address: string;
  /** May be another one after a loss of power. */
  data: string;
  /** Number of its node in the cluster. */
  node = 0;
  private current: HopProcess | undefined;
  private readonly start: (machine: Machine) => HopProcess;

  constructor(
    number: number,
    options: { readonly address: string; readonly data: string; readonly start: (machine: Machine) => HopProcess },
  ) {
    this.number = number;
    this.address = options.address;
    this.data = options.data;
    this.start = options.start;
  }

  get grpc(): string {
    return `${this.address}:${grpcPort}`;
  }

  get process(): HopProcess {
    if (this.current === undefined) throw new Error(`Machine ${this.number} was never started`);
    return this.current;
  }

  get isRunning(): boolean {
    return this.current !== undefined && this.current.code === undefined;
  }

  launch(): void {
    this.current = this.start(this);
  }

  /** Starts its node again on what its folder holds; resolves when it serves. */
  async restart(): Promise<void> {
    this.launch();
    await this.process.line(/^ready /m, upMsMax);
  }

  /** Ends its node as a loss of power would, but for the disk. */
  kill(): Promise<void> {
    return this.process.kill();
  }
}

export class Machines implements AsyncDisposable {
  readonly hop: Cluster;
  readonly net: Net;
  readonly all: readonly Machine[];
  /** For questions about the cluster itself. */
  readonly admin: HopClient;

  private constructor(hop: Cluster, net: Net, options: MachinesOptions) {
    this.hop = hop;
    this.net = net;
    const numbers = Array.from({ length: net.machines }, (_, i) => i + 1);
    const seeds = numbers.map((number) => `${net.address(number)}:${peerPort}`).join(",");
    const start = ({ number, address, data }: Machine) => {
      const listen = ["--listen", `${address}:${grpcPort}`, "--http", "127.0.0.1:7071", "--peer-port", String(peerPort)];
      return hop.launch(["server", "start", "--ready-line", "--data", data, ...listen, "--seed", seeds], {
        through: net.enter(number),
        ...(options.env === undefined ? {} : { env: options.env(number) }),
      });
    };
    const dataOf = options.data ?? ((number, folder) => join(folder, `machine-${number}`));
    this.all = numbers.map((number) => new Machine(number, { address: net.address(number), data: dataOf(number, hop.folder), start }));
    this.admin = this.client();
  }

  /** A whole cluster: every shard has its replicas, the workflows are deployed, and the workers are connected. */
  static async up(options: MachinesOptions = {}, hop = new Cluster()): Promise<Machines> {
    const net = await Net.make(options.machines ?? 3, options.seed);
    const machines = new Machines(hop, net, options);
    try {
      for (const machine of machines.all) machine.launch();
      await Promise.all(machines.all.map(({ process }) => process.line(/^joining /m)));
      await hop.expectOk(["cluster", "init"], { server: machines.machine(1) });
      await Promise.all(machines.all.map(({ process }) => process.line(/^ready /m, upMsMax)));
      await machines.untilWhole();
      await machines.learnNodes();
      await hop.expectOk(["deploy", workflowFile], { server: machines });
      for (let i = 0; i < (options.workers ?? 1); i++) await hop.worker(machines, ["--activities", activityFile]);
      return machines;
    } catch (error) {
      const logs = machines.all.map((machine) => `--- machine ${machine.number}\n${machine.isRunning ? machine.process.stderr : "ended"}`);
      await machines[Symbol.asyncDispose]();
      throw new Error(`The cluster does not come up:\n${logs.join("\n")}`, { cause: error });
    }
  }

  /** All addresses, as a list with commas. */
  get grpc(): string {
    return this.all.map(({ grpc }) => grpc).join(",");
  }

  machine(number: number): Machine {
    return this.all[number - 1] as Machine;
  }

  /** A client that knows one machine, or all of them. */
  client(machine?: Machine, retryMs = 30_000): HopClient {
    return HopClient.connect({ address: machine?.grpc ?? this.grpc, retryMs });
  }

  private async learnNodes(): Promise<void> {
    const { member } = await this.admin.cluster.members();
    for (const machine of this.all) machine.node = member.find(({ grpc }) => grpc === machine.grpc)?.node ?? 0;
  }

  /** The machine that leads a shard now; 0 = placement. */
  leader(shard: number): Promise<Machine> {
    return until(
      async () => {
        const { leader } = await this.admin.cluster.shard(shard);
        return this.all.find(({ node, isRunning }) => node === leader && isRunning);
      },
      { what: `a leader of shard ${shard}` },
    );
  }

  /** Waits until all nodes live and every shard has all its replicas and a leader. */
  async untilWhole(): Promise<void> {
    const all = String(this.all.length);
    const status = ["cluster", "status", "--wait-nodes", all, "--timeout", `${upMsMax}ms`];
    await this.hop.expectOk(status, { server: this });
  }

  async [Symbol.asyncDispose](): Promise<void> {
    this.admin.close();
    await this.hop[Symbol.asyncDispose]();
    await this.net[Symbol.asyncDispose]();
  }
}
