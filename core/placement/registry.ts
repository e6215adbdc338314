/**
 * Deployments of one namespace: which bundle new runs of a type are pinned to.
 *
 * A version number counts deployments of the namespace; runs keep the bundle they started on, so
 * the newest one of each type is all that a start has to know.
 */
import { bytesEqual, type Partition } from "#core/base";
import { type ChainHead, PartitionChain } from "#core/merkle";
import type { BundleDeployed, Identity } from "#proto";

export interface DeployedType {
  readonly type: string;
  /** SHA-256 of the code. */
  readonly bundle: Uint8Array;
  readonly version: number;
  readonly deployedMs: number;
  readonly identity: Identity | undefined;
}

export interface NamespaceDeployments {
  readonly namespace: string;
  readonly chain: PartitionChain;
  /** Version of the last deployment; 0 before the first. */
  version: number;
  readonly types: Map<string, DeployedType>;
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

export function emptyNamespace(namespace: string, head?: ChainHead): NamespaceDeployments {
  return { namespace, chain: new PartitionChain(deployPartition(namespace), head), version: 0, types: new Map() };
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
  return Math.max(...deploy.types.map((type) => state.types.get(type)?.version ?? 0));
}

export function applyDeploy(
  state: NamespaceDeployments,
  event: BundleDeployed,
  at: { readonly timeMs: number; readonly identity: Identity | undefined },
): void {
  // The event's bytes are a view into the log's buffer.
  const bundle = event.bundle.slice();
  state.version = event.version;
  for (const type of event.types) {
    state.types.set(type, { type, bundle, version: event.version, deployedMs: at.timeMs, identity: at.identity });
  }
}
