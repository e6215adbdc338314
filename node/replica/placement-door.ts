/** What the replicas of this node ask of placement, wherever it is led. */
import { type NodeId, placementShard, type Rejection } from "#core/base";
import { type ClusterView, type PlacementCommand, type PlacementReply, shardOf } from "#core/placement";
import type { Identity } from "#proto";
import type { Placement } from "../cluster/placement.ts";
import { asHopError } from "../service/status.ts";
import { FirstLeases } from "./first-leases.ts";
import type { AskedLease, Lease, PlacementDoor } from "./surroundings.ts";

const itself: Identity = { issuer: "core", subject: "node", verified: true, causeSeq: 0 };
/** Whoever asks looks again by itself: an answer that is late is of no use. */
const answerMsMax = 2000;

export function placementDoor(placement: Placement, self: NodeId): PlacementDoor {
  const ask = (command: PlacementCommand, done: (reply: PlacementReply) => void = () => {}): void => {
    placement.command(itself, command, answerMsMax).then(done, (error: unknown) => {
      const { reason, message } = asHopError(error);
      done({ kind: "rejected", rejection: { reject: reason, message } });
    });
  };
  // What is told again and again, until it is known: one telling at a time.
  const telling = new Set<string>();
  const tell = (command: PlacementCommand): void => {
    const key = JSON.stringify(command);
    if (telling.has(key)) return;
    telling.add(key);
    ask(command, () => telling.delete(key));
  };
  const askLease = ({ shard, term, replicas }: AskedLease, isAhead: boolean, done: (result: Lease | Rejection) => void): void => {
    const born = birthOf(placement.view, shard);
    const birth = born === undefined ? {} : { born: { ...born, replicas } };
    ask({ kind: "lease", shard, node: self, term, ...birth, ...(isAhead ? { isAhead } : {}) }, (reply) => {
      if (reply.kind === "leased") done({ epoch: reply.epoch, version: reply.version });
      else
        done(
          reply.kind === "rejected" ? reply.rejection : { reject: "INTERNAL", message: `Placement answered a lease with ${reply.kind}` },
        );
    });
  };
  const first = new FirstLeases(placement.parts.timing, askLease);
  return {
    lease: (asked, done) => first.take(asked, done),
    leaseAhead: (asked) => first.ask(asked),
    replicasChanged: (shard, replicas) => tell({ kind: "replicas-changed", shard, replicas }),
    frozen: (report) => tell({ kind: "merge-frozen", ...report }),
    absorbed: (left, right) => tell({ kind: "merge-done", left, right }),
    entry: (shard) => shardOf(placement.view, shard),
    retired: (shard) => placement.view.retired.get(shard),
    version: () => placement.view.version,
  };
}

/** A shard that the map does not have yet is the child of a split that is under way. */
function birthOf(view: ClusterView, child: number) {
  if (child === placementShard || view.shards.has(child as never)) return undefined;
  for (const { shard, change } of view.shards.values())
    if (change?.kind === "split" && change.child === child) return { parent: shard, at: change.at };
  return undefined;
}
