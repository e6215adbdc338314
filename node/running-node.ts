/** A node as whoever started it holds it. */
import type { ServerItemInit, WorkerItem } from "#proto";
import type { Open } from "#proto/connection";

export interface RunningNode {
  /** host:port of the gRPC services. */
  readonly grpc: string;
  /** host:port of metrics and health. */
  readonly http: string;
  /** host:port of the port for peers; empty where it has none. */
  readonly peer: string;
  readonly dataDir: string;
  /** Empty while it looks for a cluster. */
  readonly clusterId: string;
  /** False while it looks for a cluster: then it answers ClusterAdmin alone. */
  readonly isMember: boolean;
  /** Resolves when it is a member and serves; rejects where it never will. */
  readonly member: Promise<void>;
  /** Takes a worker's stream over any kind of connection, such as one within this process. */
  readonly acceptWorker: Open<ServerItemInit, WorkerItem>;
  /** Bytes of a blob, for a worker within this process. */
  blob(sha256: Uint8Array): Promise<Uint8Array>;
  /** Stops taking work, makes durable what was acknowledged, and lets go of the data folder. */
  close(): Promise<void>;
}
