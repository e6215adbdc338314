/**
 * Deployments of one namespace: which bundle new runs of a type are pinned to.
 *
 * A version number counts deployments of the namespace; runs keep the bundle they started on, so
 * the newest one of each type is all that a start has to know.
 */
import { bytesEqual, type Partition } from "#core/base";
import type { BundleDeployed, DeployState, Identity } from "#proto";

export interface DeployedType {
  readonly type: string;
  /** SHA-256 of the code. */
  readonly bundle: Uint8Array;
  readonly version: number;
  readonly deployedMs: number;
  readonly identity: Identity | undefined;
}

/** Replaced with each deployment, never changed. */
export interface NamespaceDeployments {
  readonly namespace: string;
  /** Version of the last deployment; 0 before the first. */
  readonly version: number;
  readonly types: ReadonlyMap<string, DeployedType>;
  /** Version of the view in which it changed last. */
  readonly changedIn: number;
}

export interface Deploy {
  readonly bundle: Uint8Array;
  /** Bytes of code. */
  readonly size: number;
  readonly types: readonly string[];
}

const partitionPrefix = "deploy/";

export const deployPartition = (namespace: string) => `${partitionPrefix}${namespace}` as Partition;

/** Namespace of a deployment partition, or undefined for a partition of another kind. */
export function namespaceOfDeploy(partition: string): string | undefined {
  return partition.startsWith(partitionPrefix) ? partition.slice(partitionPrefix.length) : undefined;
}

export function emptyNamespace(namespace: string): NamespaceDeployments {
  return { namespace, version: 0, types: new Map(), changedIn: 0 };
}

/** The event of a deployment, or undefined where all its types run on this bundle already. */
export function decideDeploy(state: NamespaceDeployments, deploy: Deploy): BundleDeployed | undefined {
  const types = [...new Set(deploy.types)].sort();
  const isCurrent = types.every((type) => {
    const deployed = state.types.get(type);
    return deployed !== undefined && bytesEqual(deployed.bundle, deploy.bundle);
  });
  return isCurrent ? undefined : { bundle: deploy.bundle, size: deploy.size, types, version: state.version + 1 };
}

/** Version under which `deploy`, whose event was not needed, is known. */
export function deployedVersion(state: NamespaceDeployments, deploy: Deploy): number {
  return Math.max(0, ...deploy.types.map((type) => state.types.get(type)?.version ?? 0));
}

export function applyDeploy(
  state: NamespaceDeployments,
  event: BundleDeployed,
  at: { readonly timeMs: number; readonly identity: Identity | undefined; readonly version: number },
): NamespaceDeployments {
  // The event's bytes are a view into the log's buffer.
  const bundle = event.bundle.slice();
  const types = new Map(state.types);
  for (const type of event.types) types.set(type, { type, bundle, version: event.version, deployedMs: at.timeMs, identity: at.identity });
  return { namespace: state.namespace, version: event.version, types, changedIn: at.version };
}

/** Newest deployment of each type, by type. */
export function sortedTypes(state: NamespaceDeployments): DeployedType[] {
  return [...state.types.values()].sort((a, b) => (a.type < b.type ? -1 : 1));
}

export function saveDeployments(state: NamespaceDeployments): DeployState {
  const { namespace, version, changedIn } = state;
  return { namespace, version, changedIn, type: sortedTypes(state) };
}

export function loadDeployments(saved: DeployState): NamespaceDeployments {
  const { namespace, version, changedIn } = saved;
  const types = new Map(saved.type.map((each) => [each.type, { ...each, bundle: each.bundle.slice() }]));
  return { namespace, version, types, changedIn };
}
