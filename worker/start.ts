/** Puts a worker together: a session, what executes activities, and what runs workflow code. */
import { hostname } from "node:os";
import type * as grpc from "@grpc/grpc-js";
import { fromHex, HopError } from "#core/base";
import type { WorkerItemInit } from "#proto";
import type { Activities } from "#sdk/activity";
import { ActivityHost } from "./activity/activity-host.ts";
import { type BlobSource, cachedBlobs } from "./blob-source.ts";
import { grpcBlobSource, grpcConnector, localConnector } from "./connector.ts";
import { Executor } from "./executor.ts";
import type { BundleSource, GuestHost } from "./host/guest-host.ts";
import type { OnLog } from "./log.ts";
import { NodeLinks } from "./node-links.ts";
import type { Connect } from "./session.ts";

export interface WorkerOptions {
  /** `host:port` of a node, or of several; the others of its cluster are found through it. */
  readonly address?: string | readonly string[];
  readonly credentials?: grpc.ChannelCredentials;
  readonly metadata?: grpc.Metadata;
  /** Instead of an address: any other road to a node, with `blobs` beside it. */
  readonly connect?: Connect;
  readonly blobs?: BlobSource;
  readonly namespace?: string;
  /** What this worker executes for workflows, by name. */
  readonly activities?: Activities;
  /** Makes what runs workflow code; without it the worker only executes activities. */
  readonly host?: (bundles: BundleSource) => GuestHost | Promise<GuestHost>;
  /** Execution modes that the host runs. */
  readonly modes?: readonly string[];
  /** Activities executed at a time. */
  readonly activitySlots?: number;
  /** Runs kept in memory between their activations. */
  readonly runSlots?: number;
  /** Memory for large payloads and bundles that may be wanted again. */
  readonly blobCacheBytes?: number;
  /** Name of this worker in histories and logs. */
  readonly workerId?: string;
  readonly version?: string;
  /** How long `close` waits for activities that are executing. */
  readonly graceMs?: number;
  readonly onLog?: OnLog;
}

export interface Worker {
  readonly workerId: string;
  /** Resolves when a server has welcomed the worker. */
  readonly ready: Promise<void>;
  readonly isConnected: boolean;
  /** Tells the server which activities there are now, where the map given at the start has changed. */
  announce(): void;
  /** Drains and leaves. The only thing that ends a worker. */
  close(): Promise<void>;
}

const defaults = {
  namespace: "default",
  activitySlots: 100,
  runSlots: 10_000,
  blobCacheBytes: 64 << 20,
  graceMs: 10_000,
  version: "0.1.0",
} as const;

/** Rejects where the options make no worker or its host can't start; a server that is not there is waited for. */
export async function startWorker(options: WorkerOptions): Promise<Worker> {
  const road = roadOf(options);
  const blobs = cachedBlobs(road.blobs, { bytesMax: options.blobCacheBytes ?? defaults.blobCacheBytes });
  const host = await options.host?.(bundlesOf(blobs));
  const onLog = options.onLog ?? (() => {});
  const activitySlots = options.activitySlots ?? defaults.activitySlots;
  const runSlots = options.runSlots ?? defaults.runSlots;
  let links: NodeLinks | undefined;
  const send = (item: WorkerItemInit) => links?.send(item) ?? false;
  const activities = new ActivityHost({ activities: options.activities ?? {}, slots: activitySlots, blobs, onLog, send });
  const workerId = options.workerId ?? defaultId();
  const hello = () => ({
    workerId,
    namespace: options.namespace ?? defaults.namespace,
    modes: host === undefined ? [] : (options.modes ?? ["v8"]),
    activities: activities.names,
    version: options.version ?? defaults.version,
  });
  const started = new NodeLinks({
    ...road,
    hello,
    openExecutor: host === undefined ? undefined : executorsOf(host, blobs),
    activities,
    onLog,
    graceMs: options.graceMs ?? defaults.graceMs,
    room: { activitySlots, runSlots: host === undefined ? 0 : runSlots },
  });
  links = started;
  async function end(): Promise<void> {
    await started.close();
    await host?.close();
    road.close();
  }
  let ending: Promise<void> | undefined;
  return {
    workerId,
    ready: started.ready,
    get isConnected() {
      return started.isJoined;
    },
    announce: () => started.renew(),
    close() {
      ending ??= end();
      return ending;
    },
  };
}

interface WorkerRoad {
  readonly connect: Connect;
  readonly isFixed: boolean;
  readonly connectTo: (address: string) => Connect;
  readonly connectLocal?: (socket: string) => Connect;
  readonly blobs: BlobSource;
  readonly onNodes: (addresses: readonly string[]) => void;
  readonly close: () => void;
}

function roadOf(options: WorkerOptions): WorkerRoad {
  const { address, connect, blobs, credentials, metadata } = options;
  const connectTo = (of: string) => grpcConnector({ addresses: [of], credentials, metadata });
  if (connect !== undefined) {
    if (blobs === undefined) throw new Error("Cannot start a worker: with `connect`, `blobs` must say where large payloads are read");
    return { connect, isFixed: true, connectTo, blobs, onNodes() {}, close() {} };
  }
  const addresses = (typeof address === "string" ? [address] : (address ?? []))
    .flatMap((each) => each.split(","))
    .map((each) => each.trim());
  if (addresses.length === 0) throw new Error("Cannot start a worker: it needs the address of a server, or `connect`");
  const server = { addresses, credentials, metadata };
  const source = grpcBlobSource(server);
  const { onNodes, close } = source;
  return {
    connect: grpcConnector(server),
    isFixed: false,
    connectTo,
    connectLocal: localConnector,
    blobs: blobs ?? source.blobs,
    onNodes,
    close,
  };
}

function bundlesOf(blobs: BlobSource): BundleSource {
  return async (bundle) => {
    const sha256 = fromHex(bundle);
    if (sha256 === undefined) throw new HopError("BLOB_NOT_FOUND", `Cannot load bundle ${JSON.stringify(bundle)}: its name is no SHA-256`);
    return blobs(sha256);
  };
}

type OpenExecutor = (send: (item: WorkerItemInit) => void, runSlots: () => number) => Executor;

function executorsOf(host: GuestHost, blobs: BlobSource): OpenExecutor {
  let key = 0;
  const nextKey = () => ++key;
  return (send, runSlots) => new Executor({ host, blobs, send, runSlots, nextKey });
}

function defaultId(): string {
  return `${hostname().slice(0, 100)}-${process.pid}-${crypto.randomUUID().slice(0, 8)}`;
}
