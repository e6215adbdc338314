/**
 * What is known of nodes and loads just now: only placement's leader hears everybody, so it is
 * asked. It is what was last told, and rests on no log.
 */
import type { NodeId, ShardId } from "#core/base";
import { decodeReport, encodeReport, type NodeReport, type ShardLoadReport } from "#core/placement";
import { decodeClusterFigures, decodeNodeReport, encodeClusterFigures, encodeNodeReport, fromBytes, toBytes } from "#proto";
import { notLeading, type Placement, placementCalls } from "./placement.ts";

export interface HeardNode {
  readonly loads: ReadonlyMap<ShardId, ShardLoadReport>;
  /** Milliseconds since it was heard last. */
  readonly silentMs: number;
}

export interface Figures {
  /** Placement's leader. */
  readonly leader: NodeId | undefined;
  /** Nodes that it heard of since it leads; undefined where no leader answered. */
  readonly nodes: ReadonlyMap<NodeId, HeardNode> | undefined;
}

const askMsMax = 1_000;
const noBody = new Uint8Array(0);
/** A node that was silent for longer counts as unreachable. */
export const silentMsMax = 3_000;

export function serveFigures(placement: Placement): void {
  placement.parts.net.serve(placementCalls.figures, () => {
    if (placement.leadsSinceMs() === undefined) throw notLeading();
    const node = [...own(placement)].map(([id, { loads, silentMs }]) => ({
      // The report's own form inside.
      report: fromBytes(decodeNodeReport, encodeReport(id, loads)),
      silentMs: Math.round(silentMs),
    }));
    return toBytes(encodeClusterFigures, { leader: placement.parts.self, node });
  });
}

function own(placement: Placement): Map<NodeId, HeardNode> {
  const nowMs = placement.parts.timing.monotonicMs();
  return new Map(
    [...placement.reports()].map(([node, { loads, lastHeardMs }]: [NodeId, NodeReport]) => [
      node,
      { loads, silentMs: nowMs - lastHeardMs },
    ]),
  );
}

/** Never rejects: without an answer nothing is known. */
export async function clusterFigures(placement: Placement): Promise<Figures> {
  const { leaderHint: leader, parts } = placement;
  if (leader === undefined) return { leader, nodes: heardHere(placement) };
  try {
    const figures = fromBytes(decodeClusterFigures, await parts.net.call(leader, placementCalls.figures, noBody, { timeoutMs: askMsMax }));
    // A leader that has just begun has not heard everybody yet.
    const nodes = heardHere(placement);
    for (const { report, silentMs } of figures.node) {
      if (report === undefined) continue;
      const heard = decodeReport(toBytes(encodeNodeReport, report), 0);
      nodes.set(heard.node, { loads: heard.report.loads, silentMs });
    }
    return { leader, nodes };
  } catch {
    return { leader, nodes: heardHere(placement) };
  }
}

/** What this node's own links tell: who was heard, and nothing of loads. */
function heardHere({ view, parts: { net, self, timing } }: Placement): Map<NodeId, HeardNode> {
  const nowMs = timing.monotonicMs();
  const silence = (node: NodeId) =>
    node === self ? 0 : net.lastHeardMs(node) === 0 ? Number.POSITIVE_INFINITY : nowMs - net.lastHeardMs(node);
  return new Map([...view.nodes.keys()].map((node) => [node, { loads: new Map(), silentMs: silence(node) }]));
}

/** Heard lately, as far as is known. */
export function isReachable(figures: Figures, node: NodeId, self: NodeId): boolean {
  if (node === self) return true;
  return figures.nodes !== undefined && (figures.nodes.get(node)?.silentMs ?? Number.POSITIVE_INFINITY) <= silentMsMax;
}
