/** A server, a worker and a client under load, on one data folder that outlives their crashes. */
import { statSync } from "node:fs";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { HopClient } from "#sdk/client";
import { Cluster, type HopProcess, type Server, type ServerOptions, until } from "#tests/cluster";

const guest = (name: string) => fileURLToPath(new URL(`guest/${name}`, import.meta.url));
export const workflowFile = guest("workflows.ts");
export const activityFile = guest("activities.ts");

/** A segment of the log is filled with zeros ahead of its records up to this size. */
export const segmentBytes = 64 << 20;

export class Rig implements AsyncDisposable {
  readonly hop: Cluster;
  readonly server: Server;
  worker: HopProcess;
  client: HopClient;

  private constructor(hop: Cluster, server: Server, worker: HopProcess) {
    this.hop = hop;
    this.server = server;
    this.worker = worker;
    this.client = this.connect();
  }

  static async up(options: ServerOptions = {}, hop = new Cluster()): Promise<Rig> {
    try {
      const server = await hop.server(options);
      await hop.expectOk(["deploy", workflowFile], { server });
      return new Rig(hop, server, await startWorker(hop, server));
    } catch (error) {
      await hop[Symbol.asyncDispose]();
      throw error;
    }
  }

  /** `retryMs` 0: a client that gives up at once where the server is gone, and so knows what it was not promised. */
  connect(retryMs = 20_000): HopClient {
    return HopClient.connect({ address: this.server.grpc, retryMs });
  }

  /** Starts the server again on the same folder and ports; resolves with the milliseconds until it was ready. */
  async restart(): Promise<number> {
    this.client.close();
    const begun = performance.now();
    await this.server.restart();
    const readyMs = performance.now() - begun;
    this.client = this.connect();
    return readyMs;
  }

  async restartWorker(): Promise<void> {
    this.worker = await startWorker(this.hop, this.server);
  }

  segment(number = 1): string {
    return join(this.server.data, "log", `wal-${String(number).padStart(10, "0")}.log`);
  }

  /** Resolves when the first segment is laid out, so that only records are written from now on. */
  async untilLaidOut(): Promise<void> {
    await until(() => statSync(this.segment()).size >= segmentBytes, {
      what: () => `a log of ${segmentBytes} bytes, it has ${statSync(this.segment()).size}`,
    });
  }

  async [Symbol.asyncDispose](): Promise<void> {
    this.client.close();
    await this.hop[Symbol.asyncDispose]();
  }
}

function startWorker(hop: Cluster, server: Server): Promise<HopProcess> {
  return hop.worker(server, ["--activities", activityFile]);
}
