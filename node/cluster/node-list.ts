/** gRPC addresses of the members, for clients and workers: from the view, told again when they change. */
import type { ClusterView } from "#core/placement";
import type { NodesInit } from "#proto";
import type { NodeList } from "../service/cluster-control.ts";
import type { Placement } from "./placement.ts";

export class MemberAddresses implements NodeList {
  private current: NodesInit = { address: [], version: 0 };
  private readonly listeners = new Set<(nodes: NodesInit) => void>();
  private readonly stop: () => void;

  constructor(placement: Placement) {
    this.take(placement.view);
    this.stop = placement.onView((view) => this.take(view));
  }

  close(): void {
    this.stop();
    this.listeners.clear();
  }

  /** Empty for a cluster of one: there is nowhere else to go. */
  nodes(): NodesInit {
    return this.current;
  }

  onNodes(listener: (nodes: NodesInit) => void): () => void {
    this.listeners.add(listener);
    return () => void this.listeners.delete(listener);
  }

  private take(view: ClusterView): void {
    const address = addressesIn(view);
    if (address.join() === this.current.address?.join()) return;
    this.current = { address, version: view.version };
    for (const listener of [...this.listeners]) listener(this.current);
  }
}

function addressesIn(view: ClusterView): string[] {
  const here = [...view.nodes.values()].filter(({ standing }) => standing === "member" || standing === "leaving");
  if (here.length < 2) return [];
  return here.map(({ info }) => info.grpc).filter((address) => address !== "");
}
