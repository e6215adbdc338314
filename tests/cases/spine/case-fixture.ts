/** A server with a worker in its process and the workflows of the cases deployed. */
import { fileURLToPath } from "node:url";
import { HopClient } from "#sdk/client";
import { Cluster, type Server, type ServerOptions } from "#tests/cluster";

const guest = (name: string) => fileURLToPath(new URL(`guest-${name}.ts`, import.meta.url));

export class CaseServer implements AsyncDisposable {
  readonly hop: Cluster;
  readonly server: Server;
  client: HopClient;

  private constructor(hop: Cluster, server: Server) {
    this.hop = hop;
    this.server = server;
    this.client = HopClient.connect({ address: server.grpc });
  }

  static async up(options: ServerOptions = {}): Promise<CaseServer> {
    const hop = new Cluster();
    try {
      const server = await hop.server({ ...options, args: ["--worker", "--activities", guest("activities"), ...(options.args ?? [])] });
      await hop.expectOk(["deploy", guest("workflows")], { server });
      return new CaseServer(hop, server);
    } catch (error) {
      await hop[Symbol.asyncDispose]();
      throw error;
    }
  }

  /** Starts the server again after it was stopped or killed. */
  async again(): Promise<void> {
    this.client.close();
    await this.server.restart();
    this.client = HopClient.connect({ address: this.server.grpc });
  }

  ok(args: readonly string[]): Promise<string> {
    return this.hop.expectOk(args, { server: this.server });
  }

  async [Symbol.asyncDispose](): Promise<void> {
    this.client.close();
    await this.hop[Symbol.asyncDispose]();
  }
}
