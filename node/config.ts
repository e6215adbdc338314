/** What a node is told when it starts, and what it takes where it is told nothing. */
import { HopError } from "#core/base";
import { type Logger, noLogger } from "./observe/logger.ts";
import { type IdentitySource, localIdentity } from "./service/identity.ts";

export interface NodeConfig {
  /** One process at a time may use it. */
  readonly dataDir: string;
  /** Version of this build, told to workers. */
  readonly version: string;
  /** Address to listen on; left out: 127.0.0.1. */
  readonly host?: string;
  /** Port of the gRPC services; left out: 7070; 0 = any free one. */
  readonly grpcPort?: number;
  /** Address of metrics and health; left out: that of the services. */
  readonly httpHost?: string;
  /** Port of metrics and health over HTTP; left out: 7071; 0 = any free one. */
  readonly httpPort?: number;
  readonly logger?: Logger;
  /** How callers are identified; left out: a development cluster believes what they say. */
  readonly identify?: IdentitySource;
  /** Called once when the node can't go on: its log takes no more writes. It serves reads until it is closed. */
  readonly onFailed?: (cause: Error) => void;
}

export type CompleteConfig = Required<NodeConfig>;

const portMax = 65_535;

/** Throws `HopError` BAD_REQUEST for a value that can't be one. */
export function completeConfig(config: NodeConfig): CompleteConfig {
  const complete: CompleteConfig = {
    host: "127.0.0.1",
    httpHost: config.host ?? "127.0.0.1",
    grpcPort: 7070,
    httpPort: 7071,
    logger: noLogger,
    identify: localIdentity,
    onFailed: () => {},
    ...config,
  };
  for (const name of ["grpcPort", "httpPort"] as const) {
    const port = complete[name];
    if (!Number.isInteger(port) || port < 0 || port > portMax) {
      throw new HopError("BAD_REQUEST", `Cannot start the node: ${name} is ${port}, want 0–${portMax}`);
    }
  }
  if (complete.dataDir === "") throw new HopError("BAD_REQUEST", "Cannot start the node: its data folder has no name");
  return complete;
}

/** Only this machine reaches it. */
export function isLoopback(host: string): boolean {
  return host === "localhost" || host === "::1" || host.startsWith("127.");
}

/** host:port, an IPv6 host in brackets. */
export const addressOf = (host: string, port: number) => (host.includes(":") ? `[${host}]:${port}` : `${host}:${port}`);
