/** What a node says of itself to others. */
import type { NodeInfo } from "#proto";
import { addressOf, advertisedHost, type CompleteConfig, peerPortDefault } from "./config.ts";

const protocolVersion = 1;

/** Where it listens; an address is empty where it does not, and `peer` undefined. */
export interface NodePlaces {
  /** As it is advertised. */
  readonly peer: string | undefined;
  readonly grpc: string;
  readonly http: string;
  readonly disk: string;
}

export function nodeInfo(config: CompleteConfig, { peer, grpc, http, disk }: NodePlaces): NodeInfo {
  const host = advertisedHost(config);
  const shown = (address: string) => (address === "" ? "" : addressOf(host, Number(address.slice(address.lastIndexOf(":") + 1))));
  return {
    peer: peer ?? addressOf(host, config.peerPort || peerPortDefault),
    grpc: shown(grpc),
    http: shown(http),
    zone: config.zone,
    version: config.version,
    protocol: protocolVersion,
    disk,
  };
}
