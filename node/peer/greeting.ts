/**
 * Who may speak with whom: the hello of a node that dials, judged by the one that was dialed, and
 * the welcome, judged by the one that dialed.
 */
import type { NodeId } from "#core/base";
import { bytesEqual, HopError } from "#core/base";
import type { PeerHello, PeerWelcome } from "#proto";
import { hostAndPort, isLoopback } from "../config.ts";
import { compatible, isVersion } from "../version.ts";

/** Versions of the protocol between nodes that this build speaks. */
export const protocol = { min: 1, max: 1 } as const;

export const lifeBytes = 16;

/** Who this node is, to its peers. */
export interface Self {
  /** Empty while joining. */
  readonly clusterId: string;
  /** 0 while joining. */
  readonly nodeId: NodeId;
  readonly version: string;
  /** host:port under which peers reach it. */
  readonly advertised: string;
  /** Drawn at the start of the process. */
  readonly life: Uint8Array;
}

export type Rule =
  | "BAD_HELLO"
  | "ITSELF"
  | "FOREIGN_CLUSTER"
  | "VERSION_APART"
  | "PROTOCOL_APART"
  | "WRONG_NODE"
  | "NOT_A_MEMBER"
  | "NODE_REMOVED"
  | "NODE_ID_TAKEN"
  | "LOOPBACK_ADVERTISED";

export interface Refusal {
  readonly rule: Rule;
  /** A clause: what the one who dialed is, and what was wanted. */
  readonly message: string;
}

/** A node that is linked already, under the same number. */
export interface Namesake {
  readonly life: Uint8Array;
  readonly advertised: string;
}

export interface HelloContext {
  readonly isRemoved: (node: NodeId) => boolean;
  /** Who is linked under this number now, and lives. */
  readonly linked: (node: NodeId) => Namesake | undefined;
  /** Where the node is by what this one was told. */
  readonly known: (node: NodeId) => string | undefined;
}

const quoted = (text: string) => JSON.stringify(text.slice(0, 64));

/** Why the hello is refused, or undefined. The rules that any stranger can break come first. */
export function helloProblem(self: Self, hello: PeerHello, context: HelloContext): Refusal | undefined {
  return (
    formProblem(hello) ??
    selfProblem(self, hello) ??
    clusterProblem(self, hello) ??
    versionProblem(self, hello) ??
    nodeProblem(self, hello, context)
  );
}

function formProblem(hello: PeerHello): Refusal | undefined {
  const bad = (message: string): Refusal => ({ rule: "BAD_HELLO", message });
  if (hello.life.length !== lifeBytes) return bad(`its life has ${hello.life.length} bytes, want ${lifeBytes}`);
  if ((hello.node === 0) !== (hello.clusterId === "")) return bad("it names a cluster without a node, or a node without a cluster");
  if (!isVersion(hello.version)) return bad(`its version is ${quoted(hello.version)}, want major.minor.patch`);
  const address = addressProblem(hello.advertised);
  return address === undefined ? undefined : bad(address);
}

function addressProblem(advertised: string): string | undefined {
  try {
    const { port } = hostAndPort(advertised, "its advertised address");
    return port === undefined || port === 0 ? `its advertised address is ${quoted(advertised)}, want host:port` : undefined;
  } catch (error) {
    if (error instanceof HopError) return `its advertised address is ${quoted(advertised)}, want host:port`;
    throw error;
  }
}

function selfProblem(self: Self, hello: PeerHello): Refusal | undefined {
  return bytesEqual(hello.life, self.life) ? { rule: "ITSELF", message: "it is this node itself" } : undefined;
}

function clusterProblem(self: Self, hello: PeerHello): Refusal | undefined {
  if (hello.clusterId === "" || hello.clusterId === self.clusterId) return undefined;
  if (self.clusterId === "")
    return {
      rule: "NOT_A_MEMBER",
      message: `it is of cluster ${quoted(hello.clusterId)}, and this node is joining: it belongs to no cluster yet`,
    };
  return { rule: "FOREIGN_CLUSTER", message: `it is of cluster ${quoted(hello.clusterId)}, this is ${self.clusterId}` };
}

function versionProblem(self: Self, hello: PeerHello): Refusal | undefined {
  if (!compatible(self.version, hello.version))
    return {
      rule: "VERSION_APART",
      message: `its version is ${hello.version}, this is ${self.version}; at most one minor may lie between`,
    };
  if (hello.protocolMin > protocol.max || hello.protocolMax < protocol.min || hello.protocolMin > hello.protocolMax)
    return {
      rule: "PROTOCOL_APART",
      message: `it speaks versions ${hello.protocolMin} to ${hello.protocolMax} of the protocol, this node ${protocol.min} to ${protocol.max}`,
    };
  return undefined;
}

function nodeProblem(self: Self, hello: PeerHello, context: HelloContext): Refusal | undefined {
  if (hello.wanted !== 0 && hello.wanted !== self.nodeId)
    return {
      rule: "WRONG_NODE",
      message: `it wants node ${hello.wanted}, this is ${self.nodeId === 0 ? "a node that is joining" : `node ${self.nodeId}`}`,
    };
  if (isLoopback(hostOf(hello.advertised)) && !isLoopback(hostOf(self.advertised)))
    return {
      rule: "LOOPBACK_ADVERTISED",
      message: `it advertises ${hello.advertised}, which only its own machine can reach; start it with --advertise HOST:PORT`,
    };
  const node = hello.node as NodeId;
  if (node === 0) return undefined;
  if (context.isRemoved(node))
    return { rule: "NODE_REMOVED", message: `node ${node} was removed from the cluster; empty its data folder to join as a new one` };
  return namesakeProblem(self, hello, context);
}

/** One number, two nodes: the one that is where the cluster knows it to be stays. */
function namesakeProblem(self: Self, hello: PeerHello, context: HelloContext): Refusal | undefined {
  const node = hello.node as NodeId;
  const taken = (where: string): Refusal => ({
    rule: "NODE_ID_TAKEN",
    message: `it says that it is node ${node} at ${hello.advertised}, and that is ${where}; two nodes must not share a copy of one data folder`,
  });
  if (node === self.nodeId) return taken(`this node, at ${self.advertised}`);
  const linked = context.linked(node);
  if (linked === undefined || bytesEqual(linked.life, hello.life) || linked.advertised === hello.advertised) return undefined;
  if (context.known(node) === hello.advertised) return undefined;
  return taken(`linked at ${linked.advertised}`);
}

const hostOf = (address: string) => hostAndPort(address, "an advertised address").host;

/** Why the node that answered is not the one that was meant, or undefined. */
export function welcomeProblem(self: Self, wanted: NodeId, welcome: PeerWelcome): Refusal | undefined {
  if (bytesEqual(welcome.life, self.life)) return { rule: "ITSELF", message: "it is this node itself" };
  // One that is joining asks anybody; one that is of a cluster asks its own.
  if (self.clusterId !== "" && welcome.clusterId !== self.clusterId)
    return { rule: "FOREIGN_CLUSTER", message: `it is of cluster ${quoted(welcome.clusterId)}, this is ${self.clusterId}` };
  if (!compatible(self.version, welcome.version))
    return { rule: "VERSION_APART", message: `its version is ${quoted(welcome.version)}, this is ${self.version}` };
  if (welcome.protocol < protocol.min || welcome.protocol > protocol.max)
    return { rule: "PROTOCOL_APART", message: `it speaks version ${welcome.protocol} of the protocol` };
  if (wanted !== 0 && welcome.node !== wanted) return { rule: "WRONG_NODE", message: `it is node ${welcome.node}, want node ${wanted}` };
  return undefined;
}
