/** What a node is told when it starts, and what it takes where it is told nothing. */
import { networkInterfaces } from "node:os";
import { HopError } from "#core/base";
import { type Logger, noLogger } from "./observe/logger.ts";
import type { SealPolicy } from "./seal/seal-policy.ts";
import { type IdentitySource, localIdentity } from "./service/identity.ts";

/** Proves nodes to each other; PEM texts. Every node of a cluster has it, or none. */
export interface PeerTls {
  readonly ca: string;
  readonly cert: string;
  readonly key: string;
}

export interface NodeConfig {
  /** One process at a time may use it. */
  readonly dataDir: string;
  /** Version of this build, told to workers and peers. */
  readonly version: string;
  /** Address to listen on; left out: 127.0.0.1. */
  readonly host?: string;
  /** Port of the gRPC services; left out: 7070; 0 = any free one. */
  readonly grpcPort?: number;
  /** Address of metrics and health; left out: that of the services. */
  readonly httpHost?: string;
  /** Port of metrics and health over HTTP; left out: 7071; 0 = any free one. */
  readonly httpPort?: number;
  /** Peers to find the cluster through: host:port, or a host alone for port 7072. Names are resolved again each round. */
  readonly seeds?: readonly string[];
  /** host:port at which peers reach this node; left out: made of `host` and `peerPort`. Its host also stands before the gRPC and HTTP ports that others are told. */
  readonly advertise?: string | undefined;
  /** Port for peers; left out: 7072 for a node of a cluster, none for one alone; 0 = any free one. */
  readonly peerPort?: number | undefined;
  /** Where the machine stands: replicas of a shard are spread over zones. Left out: none. */
  readonly zone?: string;
  /** With an empty data folder: makes a new cluster of this node. */
  readonly bootstrap?: boolean;
  /** Left out: links between nodes are not encrypted. */
  readonly peerTls?: PeerTls | undefined;
  /** Where sealed segments go: file:///folder or s3://bucket/prefix?…; left out: nowhere, and the log is kept whole. */
  readonly objectStore?: string | undefined;
  /** How long objects stay that nobody needs any more, expired history among them; left out: a day. */
  readonly objectGraceMs?: number;
  /** When the log is sealed, and how much of it is kept. */
  readonly sealing?: Partial<SealPolicy>;
  /** A blob that no event names is kept so long after it was stored or asked for; left out: a day. */
  readonly blobGraceMs?: number;
  readonly logger?: Logger;
  /** How callers are identified; left out: a development cluster believes what they say. */
  readonly identify?: IdentitySource;
  /** Called once when the node can't go on: its disk failed, or a shard met what it can't go on from. It serves reads until it is closed. */
  readonly onFailed?: (cause: Error) => void;
}

export type CompleteConfig = Required<NodeConfig>;

/** What a node with an empty data folder does. */
export type Founding =
  /** Makes a cluster of itself at once: it was told to, or is alone on a loopback address for development. */
  | "found"
  /** Asks its seeds for ever, and makes a cluster only when `hop cluster init` tells it to. */
  | "seek";

export const peerPortDefault = 7072;
const portMax = 65_535;
const zoneCharsMax = 64;
const seedsMax = 64;
/** What is written again must be named within half of it. */
const objectGraceMsMin = 1000;

const refuse = (why: string) => new HopError("BAD_REQUEST", `Cannot start the node: ${why}`);

/** Throws `HopError` BAD_REQUEST for a value that can't be one. */
export function completeConfig(config: NodeConfig): CompleteConfig {
  const complete: CompleteConfig = {
    host: "127.0.0.1",
    httpHost: config.host ?? "127.0.0.1",
    grpcPort: 7070,
    httpPort: 7071,
    seeds: [],
    advertise: undefined,
    peerPort: undefined,
    zone: "",
    bootstrap: false,
    peerTls: undefined,
    objectStore: undefined,
    sealing: {},
    blobGraceMs: 24 * 3600 * 1000,
    objectGraceMs: 24 * 3600 * 1000,
    logger: noLogger,
    identify: localIdentity,
    onFailed: () => {},
    ...config,
  };
  for (const name of ["grpcPort", "httpPort", "peerPort"] as const) {
    const port = complete[name];
    if (port !== undefined && (!Number.isInteger(port) || port < 0 || port > portMax))
      throw refuse(`${name} is ${port}, want 0–${portMax}`);
  }
  if (complete.objectGraceMs < objectGraceMsMin)
    throw refuse(
      `objects are to stay for ${complete.objectGraceMs} ms, want ${objectGraceMsMin} at least: hours, where somebody reads them`,
    );
  if (complete.dataDir === "") throw refuse("its data folder has no name");
  checkCluster(complete);
  return complete;
}

function checkCluster({ seeds, advertise, zone, bootstrap }: CompleteConfig): void {
  if (bootstrap && seeds.length > 0)
    throw refuse("it is to make a new cluster and to join the one of its seeds; want a bootstrap or seeds, not both");
  if (seeds.length > seedsMax) throw refuse(`it has ${seeds.length} seeds, want at most ${seedsMax}`);
  for (const seed of seeds) hostAndPort(seed, "a seed");
  if (advertise !== undefined) {
    const { host, port } = hostAndPort(advertise, "the advertised address");
    if (isWildcard(host)) throw refuse(`it would advertise ${advertise}, which is no address that a peer could reach`);
    if (port === 0) throw refuse(`it would advertise ${advertise}; want a port that peers can reach`);
  }
  if (zone.length > zoneCharsMax || /[^\w.-]/.test(zone))
    throw refuse(`its zone is ${JSON.stringify(zone)}, want at most ${zoneCharsMax} letters, digits, ".", "-" and "_"`);
}

/** The node has a port for peers: it is, or is to become, part of a cluster of several. */
export function isClustered(config: CompleteConfig): boolean {
  return config.seeds.length > 0 || config.bootstrap || config.advertise !== undefined || config.peerPort !== undefined;
}

/** What to do where the data folder is empty. Throws `HopError` BAD_REQUEST where it was not said. */
export function foundingOf(config: CompleteConfig): Founding {
  if (config.seeds.length > 0) return "seek";
  if (config.bootstrap || isLoopback(config.host)) return "found";
  throw refuse(
    `it listens on ${config.host}, its data folder is new, and nothing says which cluster it belongs to; name its peers with --seed, or make a new cluster with --bootstrap`,
  );
}

/** host:port at which peers reach the node, where it listens for them on `peerPort`. Throws `HopError` BAD_REQUEST. */
export function advertisedPeer(config: CompleteConfig, peerPort: number): string {
  if (config.advertise !== undefined) {
    const { host, port } = hostAndPort(config.advertise, "the advertised address");
    return addressOf(host, port ?? peerPort);
  }
  return addressOf(advertisedHost(config), peerPort);
}

/** The host that others are told, also for gRPC and HTTP. Throws `HopError` BAD_REQUEST. */
export function advertisedHost(config: CompleteConfig): string {
  if (config.advertise !== undefined) return hostAndPort(config.advertise, "the advertised address").host;
  if (!isWildcard(config.host)) return config.host;
  const own = [...new Set(machineAddresses())];
  if (own.length === 1) return own[0] as string;
  const found = own.length === 0 ? "has none but loopback" : `has ${own.length} (${own.slice(0, 5).join(", ")})`;
  throw refuse(`it listens on every address, and the machine ${found}; say with --advertise HOST:PORT where peers reach it`);
}

/** Addresses of this machine that others may reach; IPv4 before IPv6, link-local ones left out. */
function machineAddresses(): string[] {
  const all = Object.values(networkInterfaces()).flatMap((each) => each ?? []);
  const usable = all.filter(({ address, internal }) => !internal && !address.toLowerCase().startsWith("fe80:"));
  const v4 = usable.filter(({ family }) => family === "IPv4");
  return (v4.length > 0 ? v4 : usable).map(({ address }) => address);
}

/** `host` or `host:port`, an IPv6 host in brackets. */
export function hostAndPort(text: string, what: string): { readonly host: string; readonly port: number | undefined } {
  const match = /^(?:\[([0-9a-fA-F:.]+)\]|([^\s:/[\]]+))(?::(\d{1,5}))?$/.exec(text);
  const port = match?.[3] === undefined ? undefined : Number(match[3]);
  if (match === null || (port ?? 0) > portMax)
    throw refuse(`${what} is ${JSON.stringify(text)}, want host:port, such as 10.0.0.1:${peerPortDefault} or [fd00::1]:${peerPortDefault}`);
  return { host: (match[1] ?? match[2]) as string, port };
}

const isWildcard = (host: string) => host === "0.0.0.0" || host === "::" || host === "0:0:0:0:0:0:0:0";

/** Only this machine reaches it. */
export function isLoopback(host: string): boolean {
  return host === "localhost" || host === "::1" || host.startsWith("127.") || host.startsWith("::ffff:127.");
}

/** host:port, an IPv6 host in brackets. */
export const addressOf = (host: string, port: number) => (host.includes(":") ? `[${host}]:${port}` : `${host}:${port}`);
