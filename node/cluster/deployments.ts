/** Deployments as clients see and change them: placement's, read from this node's view of it. */
import { HopError } from "#core/base";
import { bundleFor, type Deploy, type DeployedType, deployedTypes, type Route } from "#core/placement";
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

  bundle(namespace: string, of: { readonly type: string; readonly run?: string }): Uint8Array | undefined {
    return bundleFor(this.placement.view, namespace, of);
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

  /** Resolves with the type as it is then, when the change is committed and this node knows it. Rejects with `HopError`. */
  async route(identity: Identity, namespace: string, route: Route): Promise<DeployedType> {
    const before = this.placement.view.version;
    const reply = await this.placement.demand(identity, { kind: "route", namespace, route });
    if (reply.kind !== "done") throw new HopError("INTERNAL", `Placement answered a routing with ${reply.kind}, want that it is done`);
    const found = () => this.deployments(namespace).find((each) => each.type === route.type);
    const isSeen = () => this.placement.view.version > before && isRouted(found(), route);
    if (!isRouted(found(), route)) await this.placement.until(isSeen, seenMsMax, `the routing of ${route.type}`).catch(() => {});
    const deployed = found();
    if (deployed === undefined)
      throw new HopError("WORKFLOW_NOT_DEPLOYED", `Workflow ${route.type} is not deployed in namespace ${namespace}`);
    return deployed;
  }
}

function isRouted(deployed: DeployedType | undefined, { version, percent }: Route): boolean {
  if (percent === undefined) return deployed?.version === version && deployed.ramp === undefined;
  return percent === 0 ? deployed?.ramp?.version !== version : deployed?.ramp?.version === version && deployed.ramp.percent === percent;
}
