/**
 * A whole node in a temporary folder, and a worker whose runs are scripted: what a service does is
 * tested with the real road behind it.
 */
import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { type Client, Metadata } from "@grpc/grpc-js";
import { limits } from "#core/base";
import {
  type Activate,
  type CommandInit,
  CommandKind,
  decodeEvent,
  decodeRunStarted,
  decodeSignalReceived,
  EventKind,
  fromBytes,
  type HelloInit,
  type Payload,
  type ServerItem,
  type WorkerItemInit,
} from "#proto";
import { type Closing, type Connection, connectGrpc, dispatchPath, grpcClient, workerCodec } from "#proto/connection";
import { HopClient } from "#sdk/client";
import { until } from "../tests/until.ts";
import { type NodeConfig, type RunningNode, startNode } from "./index.ts";

export const version = "0.1.0";

export class TestNode implements AsyncDisposable {
  readonly dataDir: string;
  private readonly config: Partial<NodeConfig>;
  private readonly opened: { close(): unknown }[] = [];
  node!: RunningNode;

  private constructor(config: Partial<NodeConfig>) {
    this.config = config;
    this.dataDir = mkdtempSync(join(tmpdir(), "hop-node-"));
  }

  static async start(config: Partial<NodeConfig> = {}): Promise<TestNode> {
    const test = new TestNode(config);
    test.node = await test.boot(0);
    return test;
  }

  client(options: { identity?: string; retryMs?: number; namespace?: string } = {}): HopClient {
    const client = HopClient.connect({ address: this.node.grpc, ...options });
    this.opened.push(client);
    return client;
  }

  /** For calls that a well-behaved client does not make. */
  raw(): Client {
    const client = grpcClient(this.node.grpc, limits);
    this.opened.push(client);
    return client;
  }

  async worker(hello: HelloInit = {}, metadata?: Metadata): Promise<ScriptedWorker> {
    const worker = new ScriptedWorker(this.node.grpc, hello, metadata);
    this.opened.push(worker);
    await until(() => worker.welcome !== undefined || worker.closing !== undefined, { what: "a welcome" });
    return worker;
  }

  /** Stops the node and starts it again on the same folder and port. */
  async restart(): Promise<void> {
    const port = Number(this.node.grpc.split(":")[1]);
    await this.node.close();
    this.node = await this.boot(port);
  }

  async deploy(types: string[] = ["echo", "hold", "fail", "big"]): Promise<Uint8Array> {
    const code = new TextEncoder().encode(`// ${types.join(",")}`);
    return (await this.client().deploy({ code, types })).bundle;
  }

  async [Symbol.asyncDispose](): Promise<void> {
    for (const each of this.opened.reverse()) await each.close();
    await this.node.close();
    rmSync(this.dataDir, { recursive: true, force: true });
  }

  private boot(grpcPort: number): Promise<RunningNode> {
    return startNode({ dataDir: this.dataDir, version, grpcPort, httpPort: 0, ...this.config });
  }
}

interface HeldRun {
  readonly type: string;
  readonly input: Payload | undefined;
  op: number;
}

/**
 * Workflows by type: `echo` completes with its input, `fail` fails, `hold` waits for the signal
 * "go" and completes with its payload, `big` completes with as many bytes as its input says.
 */
export class ScriptedWorker {
  readonly seen: ServerItem[] = [];
  welcome: Extract<ServerItem, { kind: "welcome" }>["value"] | undefined;
  closing: Closing | undefined;
  private readonly grpc: Client;
  private readonly connection: Connection<WorkerItemInit>;
  private readonly runs = new Map<number, HeldRun>();

  constructor(address: string, hello: HelloInit, metadata?: Metadata) {
    this.grpc = grpcClient(address, limits);
    const open = () => ({
      item: (item: ServerItem) => this.item(item),
      ended: () => this.connection.end(),
      closed: (closing: Closing) => {
        this.closing = closing;
      },
    });
    this.connection = connectGrpc(this.grpc, dispatchPath, workerCodec, limits, open, metadata ?? new Metadata());
    const value = {
      workerId: "w1",
      namespace: "default",
      modes: ["v8"],
      activities: [],
      activitySlots: 10,
      runSlots: 100,
      version,
      ...hello,
    };
    this.send({ kind: "hello", value });
  }

  send(item: WorkerItemInit): void {
    this.connection.send(item);
  }

  close(): void {
    this.connection.close("The test is over");
    this.grpc.close();
  }

  private item(item: ServerItem): void {
    this.seen.push(item);
    if (item.kind === "welcome") this.welcome = item.value;
    if (item.kind === "activate") this.activate(item.value);
    if (item.kind === "query") {
      const run = this.runs.get(item.value.handle);
      this.send({
        kind: "queryAnswer",
        value: { query: item.value.query, result: run?.input ?? item.value.input, notCached: run === undefined },
      });
    }
  }

  private activate(message: Activate): void {
    const commands: CommandInit[] = [];
    for (const bytes of message.events) {
      const event = fromBytes(decodeEvent, bytes);
      if (event.kind === EventKind.runStarted) {
        const { type, input } = fromBytes(decodeRunStarted, event.payload);
        this.runs.set(message.handle, { type, input, op: 0 });
        commands.push(...this.begin(this.runs.get(message.handle) as HeldRun));
      } else if (event.kind === EventKind.signalReceived) {
        commands.push({ kind: CommandKind.complete, payload: fromBytes(decodeSignalReceived, event.payload).payload });
      } else if (event.kind === EventKind.cancelRequested) commands.push({ kind: CommandKind.cancelled });
    }
    if (message.more) return;
    this.send({ kind: "activated", value: { handle: message.handle, activation: message.activation, commands } });
  }

  private begin(run: HeldRun): CommandInit[] {
    switch (run.type) {
      case "hold":
        return [{ kind: CommandKind.awaitSignal, op: ++run.op, name: "go" }];
      case "fail":
        return [
          {
            kind: CommandKind.fail,
            failure: { type: "OrderError", message: "out of stock", cause: { type: "HttpError", message: "409" } },
          },
        ];
      case "big": {
        const bytes = Number(new TextDecoder().decode(run.input?.data));
        return [{ kind: CommandKind.complete, payload: { data: new TextEncoder().encode(JSON.stringify("x".repeat(bytes - 2))) } }];
      }
      default:
        return [{ kind: CommandKind.complete, payload: run.input }];
    }
  }
}
