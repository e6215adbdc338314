/**
 * Composes one node: storage, the shard and placement on its log, services, metrics; and takes
 * it down again in an order that loses nothing that was acknowledged.
 */
import { logVerbosity, Server, ServerCredentials, setLogVerbosity } from "@grpc/grpc-js";
import type { Epoch, Hasher } from "#core/base";
import { asTerm, HopError, limits } from "#core/base";
import type { ServerItemInit, WorkerItem } from "#proto";
import { type Connection, channelOptions, type Open } from "#proto/connection";
import { addressOf, type CompleteConfig, completeConfig, isLoopback, type NodeConfig } from "./config.ts";
import { type HttpServer, serveHttp } from "./observe/http.ts";
import { errorFields, type Logger } from "./observe/logger.ts";
import { Metrics } from "./observe/metrics.ts";
import { countRecord } from "./observe/record-figures.ts";
import { PlacementHost } from "./placement-host.ts";
import { firstDataShard, Router, singleShardMap } from "./router.ts";
import { Calls } from "./service/calls.ts";
import { ClientService } from "./service/client-service.ts";
import { addDispatch } from "./service/dispatch-service.ts";
import { HealthService } from "./service/health.ts";
import { PayloadEdge } from "./service/payloads.ts";
import { addReflection } from "./service/reflection.ts";
import type { Edge } from "./service/unary.ts";
import { ShardHost } from "./shard/shard-host.ts";
import { openStorage, type Storage } from "./storage.ts";
import { type LocalServer, serveLocal } from "./stream/local-server.ts";
import { WorkerRegistry } from "./stream/registry.ts";
import { WorkerStream, type WorkerStreamParts } from "./stream/worker-stream.ts";
import { VisibilityPump } from "./visibility-pump.ts";

export interface RunningNode {
  /** host:port of the gRPC services. */
  readonly grpc: string;
  /** host:port of metrics and health. */
  readonly http: string;
  readonly dataDir: string;
  readonly clusterId: string;
  /** Takes a worker's stream over any kind of connection, such as one within this process. */
  readonly acceptWorker: Open<ServerItemInit, WorkerItem>;
  /** Bytes of a blob, for a worker within this process. */
  blob(sha256: Uint8Array): Promise<Uint8Array>;
  /** Stops taking work, makes durable what was acknowledged, and lets go of the data folder. */
  close(): Promise<void>;
}

const hasher: Hasher = {
  sha256(data, out) {
    Bun.SHA256.hash(data, out);
  },
};
const firstEpoch = 1 as Epoch;
/** Calls that are still open when the node closes get this long to end. */
const graceMs = 1000;
/** What was appended gets this long to become durable. */
const settleMs = 5000;

/** Resolves when the node serves. Rejects with `HopError` that says what to do. */
export async function startNode(given: NodeConfig): Promise<RunningNode> {
  const config = completeConfig(given);
  // What goes wrong is in this node's own log, with its context.
  setLogVerbosity(logVerbosity.NONE);
  const metrics = new Metrics();
  const warn = (message: string): void => config.logger.warn(message);
  const storage = await openStorage({ dataDir: config.dataDir, warn, onFlush: (ms) => metrics.flushed(ms) });
  const node = new Node(config, storage, metrics);
  try {
    await node.start();
  } catch (error) {
    await node.close();
    throw error;
  }
  return node;
}

class Node implements RunningNode {
  readonly dataDir: string;
  readonly clusterId: string;
  grpc = "";
  http = "";
  private readonly config: CompleteConfig;
  private readonly logger: Logger;
  private readonly storage: Storage;
  private readonly metrics: Metrics;
  private readonly server: Server;
  private readonly health = new HealthService();
  private readonly workers = new WorkerRegistry();
  private readonly edge: Edge;
  private placement: PlacementHost | undefined;
  private shard: ShardHost | undefined;
  private pump: VisibilityPump | undefined;
  private client: ClientService | undefined;
  private httpServer: HttpServer | undefined;
  private localServer: LocalServer | undefined;
  private workerParts: WorkerStreamParts | undefined;
  private isDraining = false;
  private poisoned: Error | undefined;
  private closing: Promise<void> | undefined;

  constructor(config: CompleteConfig, storage: Storage, metrics: Metrics) {
    this.config = config;
    this.logger = config.logger;
    this.storage = storage;
    this.metrics = metrics;
    this.dataDir = config.dataDir;
    this.clusterId = storage.clusterId;
    this.server = new Server({ ...channelOptions(limits), "grpc.keepalive_time_ms": 10_000, "grpc.keepalive_timeout_ms": 5_000 });
    this.edge = {
      identify: config.identify,
      isDraining: () => this.isDraining,
      observe: (path, result, ms) => metrics.answered(path.slice(path.lastIndexOf("/") + 1), result, ms),
      fault: (path, error) => this.fault(path, error),
    };
  }

  async start(): Promise<void> {
    await this.openHosts();
    this.addServices();
    const { host, grpcPort, httpHost, httpPort } = this.config;
    if (!isLoopback(host)) this.logger.warn("Callers are not verified: whoever reaches the address may act under any name", { host });
    this.localServer = this.serveLocal();
    this.grpc = addressOf(host, await this.listen(addressOf(host, grpcPort)));
    this.httpServer = this.serveHttp(httpHost, httpPort);
    this.http = this.httpServer.address;
    this.health.set(true);
    this.logger.info("node ready", { grpc: this.grpc, http: this.http, data: this.dataDir, cluster: this.clusterId });
  }

  readonly acceptWorker = (connection: Connection<ServerItemInit>): WorkerStream => this.accept(connection, "in-process");

  private accept(connection: Connection<ServerItemInit>, address: string): WorkerStream {
    if (this.workerParts === undefined) throw new HopError("STORE_UNAVAILABLE", "Cannot take the worker: the node has not started");
    return new WorkerStream(connection, address, this.workerParts);
  }

  blob(sha256: Uint8Array): Promise<Uint8Array> {
    return this.storage.blobs.get(sha256);
  }

  close(): Promise<void> {
    this.closing ??= this.end();
    return this.closing;
  }

  private async openHosts(): Promise<void> {
    const { log, checkpoint, segments, projector } = this.storage;
    log.onDurable = () => {
      this.shard?.onDurable();
      this.placement?.onDurable();
      this.pump?.onDurable();
    };
    log.onPoison = (cause) => this.onPoison(cause);
    this.placement = await PlacementHost.open(log, hasher);
    const note = (level: "info" | "warn" | "error", what: string, fields?: Record<string, string | number>): void =>
      this.logger[level](what, fields);
    this.shard = await ShardHost.open({
      shard: firstDataShard,
      term: asTerm(1),
      log,
      hasher,
      checkpoint,
      segments,
      note,
      onStopped: (cause) => this.onPoison(cause),
    });
    const before = log.lastIndex(firstDataShard);
    this.pump = new VisibilityPump({
      shard: firstDataShard,
      log,
      projector,
      // What an earlier life appended was counted there.
      onRecord: ({ index, body }) => void (index > before && countRecord(body, this.metrics)),
      onFault: (error) => this.fault("visibility", error),
      warn: (message) => this.logger.warn(message),
    });
  }

  private addServices(): void {
    const { shard, placement, pump, server, metrics, workers } = this;
    if (shard === undefined || placement === undefined || pump === undefined)
      throw new HopError("INTERNAL", "Services are added before their hosts");
    const { blobs } = this.storage;
    const router = new Router(singleShardMap(firstEpoch), new Map([[firstDataShard, shard]]));
    const payloads = new PayloadEdge(blobs);
    const calls = new Calls({ router, edge: payloads, deployments: placement });
    this.client = new ClientService({ calls, router, blobs, runs: pump, registry: placement }, this.edge);
    this.workerParts = {
      clusterId: this.clusterId,
      version: this.config.version,
      epoch: () => router.epoch,
      shard: () => shard,
      localSocket: () => this.localServer?.path ?? "",
      edge: payloads,
      registry: workers,
      note: (what, fields) => this.logger.info(what, fields),
      onFault: (error) => this.fault("Dispatch/Connect", error),
    };
    this.client.addTo(server);
    addDispatch(server, this.edge, this.workerParts);
    this.health.addTo(server);
    addReflection(server);
    const client = this.client;
    metrics.watch({
      activeRuns: () => shard.figures().residentRuns,
      readyTasks: () => shard.figures().readyTasks,
      workers: () => workers.size,
      clientSessions: () => client.sessionCount,
    });
  }

  private listen(address: string): Promise<number> {
    return new Promise((resolve, reject) => {
      this.server.bindAsync(address, ServerCredentials.createInsecure(), (error, port) => {
        if (error === null) resolve(port);
        else reject(cannotListen(address, error));
      });
    });
  }

  /** A shorter road for workers on this machine. Without it they speak over gRPC like any other. */
  private serveLocal(): LocalServer | undefined {
    try {
      return serveLocal(this.dataDir, (connection) => this.accept(connection, "local socket"));
    } catch (error) {
      this.logger.warn("workers on this machine speak over gRPC: no unix socket could be made", errorFields(error));
      return undefined;
    }
  }

  private serveHttp(hostname: string, port: number): HttpServer {
    try {
      return serveHttp({
        hostname,
        port,
        metrics: this.metrics,
        isAlive: () => this.poisoned === undefined,
        whyNotReady: () => this.whyNotReady(),
      });
    } catch (error) {
      throw cannotListen(addressOf(hostname, port), error);
    }
  }

  private whyNotReady(): string | undefined {
    if (this.poisoned !== undefined) return `the log takes no more writes: ${this.poisoned.message}`;
    if (!this.health.isServing) return "not serving";
    return this.storage.log.hasRoom() ? undefined : "appends are refused: the log's disk is full, or too far behind";
  }

  private fault(where: string, error: unknown): void {
    this.logger.error("fault", { where, ...errorFields(error) });
  }

  private onPoison(cause: Error): void {
    if (this.poisoned !== undefined) return;
    this.poisoned = cause;
    this.health.set(false);
    this.logger.error("the log takes no more writes", errorFields(cause));
    this.shard?.onPoison(cause);
    this.placement?.onPoison(cause);
    this.config.onFailed(cause);
  }

  /** A disk that is full is not waited for: nothing that was acknowledged is on its way to it. */
  private async settle(): Promise<void> {
    const { over, stop } = patience(settleMs);
    const closed = this.shard?.close().catch((error: unknown) => this.fault("shutdown", error));
    await Promise.race([closed, over]);
    stop();
  }

  private async end(): Promise<void> {
    this.isDraining = true;
    this.health.set(false);
    this.health.close();
    // Answers what is open with a refusal that clients retry, and saves a checkpoint.
    await this.settle();
    this.workers.closeAll("The node is stopping");
    this.client?.closeSessions("The node is stopping");
    this.localServer?.close();
    await shutDown(this.server);
    await this.pump?.close();
    if (this.pump === undefined) this.storage.projector.close();
    await this.storage.close();
    await this.httpServer?.close();
    this.logger.info("node stopped");
  }
}

/** Resolves after `ms` milliseconds; `stop` lets the process end before. */
function patience(ms: number): { readonly over: Promise<void>; readonly stop: () => void } {
  const { promise, resolve } = Promise.withResolvers<void>();
  const timer = setTimeout(resolve, ms);
  return { over: promise, stop: () => clearTimeout(timer) };
}

function cannotListen(address: string, cause: unknown): HopError {
  const why = cause instanceof Error ? cause.message : "unknown cause";
  return new HopError(
    "STORE_UNAVAILABLE",
    `Cannot listen on ${address}: it is in use or not an address of this machine (${why}); stop what uses it or choose another port`,
    { cause },
  );
}

/** Lets open calls end, but not for ever. */
function shutDown(server: Server): Promise<void> {
  return new Promise((resolve) => {
    const timer = setTimeout(() => {
      server.forceShutdown();
      resolve();
    }, graceMs);
    server.tryShutdown(() => {
      clearTimeout(timer);
      resolve();
    });
  });
}
