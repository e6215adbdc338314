/** A node's way into a cluster: it asks a member that it found, which asks placement for it. */
import type { NodeId } from "#core/base";
import { HopError } from "#core/base";
import { decodeCommand, decodeReply, encodeCommand, encodeReply, type Join } from "#core/placement";
import {
  decodePlacementAnswered,
  decodePlacementAsk,
  encodePlacementAnswered,
  encodePlacementAsk,
  fromBytes,
  type Identity,
  toBytes,
} from "#proto";
import type { PeerNet } from "../peer/peer-net.ts";
import { asHopError } from "../service/status.ts";
import { type Placement, placementCalls } from "./placement.ts";

const joinMsMax = 8_000;

/** Takes in nodes that are of no cluster yet, and tells nothing else to them. */
export function serveJoining(placement: Placement): void {
  const handle = async (_: NodeId, body: Uint8Array): Promise<Uint8Array> => {
    const { identity, command: bytes } = fromBytes(decodePlacementAsk, body);
    const command = decodeCommand(bytes);
    if (command.kind !== "join")
      throw new HopError("BAD_REQUEST", `Cannot ask placement for ${command.kind}: a node that is joining may only join`);
    // Who is no member yet vouches for nobody.
    const who: Identity = { issuer: "", subject: "", causeSeq: 0, ...identity, verified: false };
    const reply = await placement.command(who, command, joinMsMax);
    return toBytes(encodePlacementAnswered, { answer: encodeReply(reply), leader: placement.leaderHint ?? 0 });
  };
  placement.parts.net.serve(placementCalls.join, handle, { forStrangers: true });
}

/** Who this node is in the cluster from now on. Rejects with `HopError`: what placement refused it with, or the last address's failure. */
export async function joinThrough(
  net: Pick<PeerNet, "callAt">,
  addresses: readonly string[],
  join: Join,
  options: { readonly identity: Identity; readonly signal?: AbortSignal },
): Promise<{ readonly clusterId: string; readonly node: NodeId; readonly objects?: string; readonly restoreEpoch?: number }> {
  const body = toBytes(encodePlacementAsk, { identity: options.identity, command: encodeCommand(join) });
  let failed: unknown = new HopError("STORE_UNAVAILABLE", "Cannot join: no member of the cluster is known");
  for (const address of addresses) {
    try {
      const answer = await net.callAt({ address }, placementCalls.join, body, { timeoutMs: joinMsMax + 1_000, signal: options.signal });
      const reply = decodeReply(fromBytes(decodePlacementAnswered, answer).answer);
      if (reply.kind === "rejected") throw HopError.from(reply.rejection);
      if (reply.kind !== "joined") throw new HopError("INTERNAL", `Placement answered a join with ${reply.kind}`);
      const { kind: _, ...joined } = reply;
      return joined;
    } catch (error) {
      failed = error;
      const { reason } = asHopError(error);
      // Another member would say the same.
      if (reason !== "STORE_UNAVAILABLE" && reason !== "BUDGET_EXPIRED" && reason !== "NOT_LEADER") break;
      if (options.signal?.aborted === true) break;
    }
  }
  throw failed;
}
