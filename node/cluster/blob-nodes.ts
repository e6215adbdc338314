/** What the view says of blobs: who keeps them, with what was heard of the nodes, and which of them are deployed. */
import type { NodeId } from "#core/base";
import { type ClusterView, replicationDefault } from "#core/placement";
import type { BlobNodes } from "./cluster-blobs.ts";
import type { Placement } from "./placement.ts";

/** A node that nothing was heard from for so long is asked last. */
const heardMsMax = 2_000;

export function blobNodes(placement: Placement): BlobNodes {
  const { self, net, timing } = placement.parts;
  const members = (): NodeId[] => {
    const here = [...placement.view.nodes.values()].filter(({ standing }) => standing === "member" || standing === "leaving");
    return here.length === 0 ? [self] : here.map((each) => each.node);
  };
  return {
    self,
    members,
    replicas: () => largestOdd(Math.min(placement.view.replicationWanted || replicationDefault, members().length)),
    isHeard: (node) => net.lastHeardMs(node) > 0 && timing.monotonicMs() - net.lastHeardMs(node) <= heardMsMax,
  };
}

/** Code that new runs are started on, or may be again. */
export function* bundlesIn(view: ClusterView): Generator<Uint8Array> {
  for (const { types } of view.deployments.values())
    for (const { versions } of types.values()) for (const { bundle } of versions) yield bundle;
}

const largestOdd = (count: number) => Math.max(1, count % 2 === 0 ? count - 1 : count);
