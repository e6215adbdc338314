/** Deployments as clients see and change them: placement's, read from this node's view of it. */
import { HopError } from "#core/base";
import { type Deploy, type DeployedType, deployedTypes, newestBundle } from "#core/placement";
import type { Identity } from "#proto";
import type { Deployments } from "../service/calls.ts";
import type { DeploymentRegistry } from "../service/client-service.ts";
import type { Placement } from "./placement.ts";

/** Who deployed through this node finds it here; a view that is late by more is late for other reasons. */
const seenMsMax = 2_000;

export class ClusterDeployments implements Deployments, DeploymentRegistry {
  private readonly placement: Placement;

  constructor(placement: Placement) {
    this.placement = placement;
  }

  newest(namespace: string, type: string): Uint8Array | undefined {
    return newestBundle(this.placement.view, namespace, type);
  }

  types(namespace: string): string[] {
    return this.deployments(namespace).map((each) => each.type);
  }

  deployments(namespace: string): DeployedType[] {
    return deployedTypes(this.placement.view, namespace);
  }

  refresh(): Promise<void> {
    return this.placement.refresh();
  }

  /** Resolves with the deployment's version when it is committed, and this node knows it. Rejects with `HopError`. */
  async deploy(identity: Identity, namespace: string, deploy: Deploy): Promise<number> {
    const reply = await this.placement.demand(identity, { kind: "deploy", namespace, deploy });
    if (reply.kind !== "version") throw new HopError("INTERNAL", `Placement answered a deployment with ${reply.kind}, want its version`);
    const { version } = reply;
    const isSeen = () => (this.placement.view.deployments.get(namespace)?.version ?? 0) >= version;
    await this.placement.until(isSeen, seenMsMax, `deployment ${version} of namespace ${namespace}`).catch(() => {});
    return version;
  }
}
