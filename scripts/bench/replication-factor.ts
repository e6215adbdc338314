/**
 * Sets how many replicas each shard of a cluster has, which no command does yet: it says so to
 * placement as a node would, through the port for peers.
 */
import { asNodeId } from "#core/base";
import { decodeReply, encodeCommand } from "#core/placement";
import { decodePlacementAnswered, encodePlacementAsk, fromBytes, toBytes } from "#proto";
import type { ClusterClient } from "#sdk/client";
import { placementCalls } from "../../node/cluster/placement.ts";
import { noLogger } from "../../node/observe/logger.ts";
import { TcpPeerNet } from "../../node/peer/tcp-peer-net.ts";

/** A number that no node of these small clusters has. */
const guest = asNodeId(9999);

interface Wish {
  readonly cluster: ClusterClient;
  /** host:port of the nodes' ports for peers. */
  readonly peers: readonly string[];
  readonly count: number;
}

export async function wantReplicas({ cluster, peers, count }: Wish): Promise<void> {
  const { clusterId, version } = await cluster.status();
  const net = new TcpPeerNet({ host: "127.0.0.1", port: 0, version, identity: { clusterId, nodeId: guest }, logger: noLogger });
  const identity = { issuer: "core", subject: "benchmark", verified: true, causeSeq: 0 };
  const body = toBytes(encodePlacementAsk, { identity, command: encodeCommand({ kind: "set-replication", count }) });
  try {
    for (const address of peers) {
      const { answer } = fromBytes(decodePlacementAnswered, await net.callAt({ address }, placementCalls.command, body));
      if (answer.length === 0) continue;
      const reply = decodeReply(answer);
      if (reply.kind === "rejected") throw new Error(reply.rejection.message);
      return;
    }
    throw new Error("No node leads placement");
  } finally {
    net.close();
  }
}
