/**
 * Keeps the cluster as it should be: on the node that leads placement, once a second, what the
 * planners find is asked of placement, or of a shard's leader.
 *
 * A plan that is lost, refused or half done is made again from what is seen a second later.
 */
import { asNodeId, asShardId, type NodeId, placementShard, type ShardId } from "#core/base";
import { type ClusterView, type NodeReport, type PlanOptions, type PlanStep, planCluster } from "#core/placement";
import { decodeTransferRequest, encodeTransferRequest, fromBytes, type Identity, toBytes } from "#proto";
import type { PeerNet } from "../peer/peer-net.ts";
import { Rounds } from "../rounds.ts";
import { asHopError } from "../service/status.ts";
import type { Placement } from "./placement.ts";

/** Answered by the node that leads the shard: it hands the lead over. */
export const transferCall = "shard.transfer";

const roundMs = 1_000;
const transferMsMax = 1_000;
const planner: Identity = { issuer: "core", subject: "planner", verified: true, causeSeq: 0 };

export interface PlannerLoopParts {
  readonly placement: Placement;
  readonly options?: Partial<PlanOptions>;
}

export class PlannerLoop {
  private readonly parts: PlannerLoopParts;
  private readonly rounds: Rounds;

  constructor(parts: PlannerLoopParts) {
    this.parts = parts;
    this.rounds = new Rounds({ timing: parts.placement.parts.timing, everyMs: roundMs, round: () => this.round() });
  }

  start(): void {
    this.rounds.start();
  }

  close(): void {
    this.rounds.stop();
  }

  private async round(): Promise<void> {
    const { placement } = this.parts;
    for (const step of this.plan()) {
      if (this.rounds.isStopped || placement.leadsSinceMs() === undefined) return;
      try {
        await this.take(step);
      } catch (error) {
        placement.parts.note("info", "a step of the plan failed, and is planned again", {
          step: textOf(step),
          reason: asHopError(error).message,
        });
      }
    }
  }

  /** Times are the wall clock's, as in placement's log; how long ago something was heard comes from the monotonic one. */
  private plan(): readonly PlanStep[] {
    const { placement, options = {} } = this.parts;
    const { timing, self } = placement.parts;
    const since = placement.leadsSinceMs();
    if (since === undefined) return [];
    const nowMs = timing.wallMs();
    const base = nowMs - timing.monotonicMs();
    const reports = new Map<NodeId, NodeReport>();
    for (const [node, report] of placement.reports()) reports.set(node, { ...report, lastHeardMs: base + report.lastHeardMs });
    return planCluster({ view: placement.view, reports, nowMs, self, leadsSinceMs: base + since, options });
  }

  private async take(step: PlanStep): Promise<void> {
    const { placement } = this.parts;
    placement.parts.note("info", "planned", { step: textOf(step), why: step.why });
    if (step.kind === "transfer") return askTransfer(placement, step);
    const reply = await placement.command(planner, step.command, transferMsMax * 5);
    if (reply.kind === "rejected")
      placement.parts.note("info", "placement refused a step of the plan", { step: textOf(step), reason: reply.rejection.message });
  }
}

/** Lets others ask this node to hand over what it leads. `transfer` throws `HopError` NOT_LEADER where it does not. */
export function serveTransfers(net: PeerNet, transfer: (shard: ShardId, to: NodeId) => void): void {
  net.serve(transferCall, (_, body) => {
    const { shard, to } = fromBytes(decodeTransferRequest, body);
    transfer(asShardId(shard), asNodeId(to));
    return new Uint8Array(0);
  });
}

/** Asks the leader of a shard, or of placement, to hand the lead over. Rejects with `HopError`. */
export async function askTransfer(
  placement: Placement,
  transfer: { readonly shard: ShardId; readonly from: NodeId; readonly to: NodeId },
): Promise<void> {
  const { shard, from, to } = transfer;
  await placement.parts.net.call(from, transferCall, toBytes(encodeTransferRequest, { shard, to }), { timeoutMs: transferMsMax });
}

/** Node that leads the shard, placement too, as the view has it. */
export function leaderIn(view: ClusterView, placement: Placement, shard: ShardId): NodeId | undefined {
  return shard === placementShard ? placement.leaderHint : view.shards.get(shard)?.lease?.node;
}

function textOf(step: PlanStep): string {
  if (step.kind === "transfer") return `transfer shard ${step.shard} from node ${step.from} to ${step.to}`;
  const { command } = step;
  switch (command.kind) {
    case "want-replicas":
      return `shard ${command.shard} on nodes ${command.nodes.join(", ")}`;
    case "want-split":
      return `split shard ${command.shard}`;
    case "want-merge":
    case "merge-cancel":
      return `${command.kind} of shards ${command.left} and ${command.right}`;
    case "remove":
      return `remove node ${command.node}`;
    default:
      return command.kind;
  }
}
