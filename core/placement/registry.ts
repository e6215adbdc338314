/**
 * Deployments of one namespace: on which bundle new runs of a type start.
 *
 * A version number counts deployments of the namespace. One version of a type is current; a ramp
 * sends a share of the starts to another one. Runs keep the bundle they started on, so no more than
 * the last versions of each type has to be known: those that starts may go to, or go back to.
 */
import { bytesEqual, type Partition, type Rejection, seedOf } from "#core/base";
import type { BundleDeployed, DeploymentRouted, DeployState, Identity } from "#proto";

export interface DeployedVersion {
  /** SHA-256 of the code. */
  readonly bundle: Uint8Array;
  readonly version: number;
  readonly deployedMs: number;
  readonly identity: Identity | undefined;
}

/** A type and its current version. */
export interface DeployedType extends DeployedVersion {
  readonly type: string;
  /** The newest first, the current one among them. */
  readonly versions: readonly DeployedVersion[];
  /** Which was current before; 0 = none. */
  readonly previous: number;
  readonly ramp: Ramp | undefined;
}

/** A share of new starts, in percent from 1 to 99, takes another version than the current one. */
export interface Ramp {
  readonly version: number;
  readonly percent: number;
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
  /** Types that have a current version keep it: this one takes no starts yet. */
  readonly held?: boolean;
}

/** Where new starts of a type go. Without `percent` to that version alone; with it so many of a hundred, 0 = none any more. */
export interface Route {
  readonly type: string;
  readonly version: number;
  readonly percent?: number;
  readonly reason: string;
}

/** Versions of a type that are known beside those in use. */
const versionsKept = 20;

const partitionPrefix = "deploy/";

export const deployPartition = (namespace: string) => `${partitionPrefix}${namespace}` as Partition;

/** Namespace of a deployment partition, or undefined for a partition of another kind. */
export function namespaceOfDeploy(partition: string): string | undefined {
  return partition.startsWith(partitionPrefix) ? partition.slice(partitionPrefix.length) : undefined;
}

export function emptyNamespace(namespace: string): NamespaceDeployments {
  return { namespace, version: 0, types: new Map(), changedIn: 0 };
}

/** The version under which `deploy` is what it wants to be already. */
function versionOf(state: NamespaceDeployments, type: string, { bundle, held = false }: Deploy): number | undefined {
  const deployed = state.types.get(type);
  if (deployed === undefined) return undefined;
  if (bytesEqual(deployed.bundle, bundle)) return deployed.version;
  return held ? deployed.versions.find((one) => bytesEqual(one.bundle, bundle))?.version : undefined;
}

/** The event of a deployment, or undefined where all its types run on this bundle already, or have it where it is held. */
export function decideDeploy(state: NamespaceDeployments, deploy: Deploy): BundleDeployed | undefined {
  const types = [...new Set(deploy.types)].sort();
  if (types.every((type) => versionOf(state, type, deploy) !== undefined)) return undefined;
  return { bundle: deploy.bundle, size: deploy.size, types, version: state.version + 1, held: deploy.held ?? false };
}

/** Version under which `deploy`, whose event was not needed, is known. */
export function deployedVersion(state: NamespaceDeployments, deploy: Deploy): number {
  return Math.max(0, ...deploy.types.map((type) => versionOf(state, type, deploy) ?? 0));
}

interface AppliedAt {
  readonly timeMs: number;
  readonly identity: Identity | undefined;
  readonly version: number;
}

export function applyDeploy(state: NamespaceDeployments, event: BundleDeployed, at: AppliedAt): NamespaceDeployments {
  // The event's bytes are a view into the log's buffer.
  const deployed = { bundle: event.bundle.slice(), version: event.version, deployedMs: at.timeMs, identity: at.identity };
  const types = new Map(state.types);
  for (const type of event.types) {
    const before = types.get(type);
    const versions = [deployed, ...(before?.versions ?? [])];
    const isHeld = event.held && before !== undefined;
    const after = isHeld ? before : { ...deployed, type, previous: before?.version ?? 0, ramp: undefined };
    types.set(type, pruned({ ...after, versions }));
  }
  return { namespace: state.namespace, version: event.version, types, changedIn: at.version };
}

/** What is in use stays, and the last ones. */
function pruned(deployed: DeployedType): DeployedType {
  const { version, previous, ramp, versions } = deployed;
  if (versions.length <= versionsKept) return deployed;
  const inUse = new Set([version, previous, ramp?.version]);
  return { ...deployed, versions: versions.filter((one, i) => i < versionsKept || inUse.has(one.version)) };
}

/** The event of a change of where starts go; undefined where they go there already. */
export function decideRoute(state: NamespaceDeployments, route: Route): DeploymentRouted | Rejection | undefined {
  const { type, version, percent, reason } = route;
  const what = `Cannot route starts of ${JSON.stringify(type)} in namespace ${state.namespace} to version ${version}`;
  const deployed = state.types.get(type);
  if (deployed === undefined) return { reject: "WORKFLOW_NOT_DEPLOYED", message: `${what}: it is not deployed there` };
  if (!deployed.versions.some((one) => one.version === version)) {
    const known = deployed.versions.map((one) => one.version).join(", ");
    return { reject: "BAD_REQUEST", message: `${what}: the versions of it that are known are ${known}` };
  }
  const { ramp } = deployed;
  if (percent === undefined) {
    const isThere = deployed.version === version && ramp === undefined;
    return isThere ? undefined : { type, version, rampVersion: 0, rampPercent: 0, reason };
  }
  if (percent === 0) {
    return ramp?.version === version ? { type, version: deployed.version, rampVersion: 0, rampPercent: 0, reason } : undefined;
  }
  if (version === deployed.version)
    return { reject: "BAD_REQUEST", message: `${what}: it is the current version, and takes all that a ramp leaves` };
  if (!Number.isInteger(percent) || percent < 0 || percent > 99)
    return {
      reject: "BAD_REQUEST",
      message: `${what} at ${percent} percent: want a whole number from 0 to 99; promote it for all of them`,
    };
  if (ramp?.version === version && ramp.percent === percent) return undefined;
  return { type, version: deployed.version, rampVersion: version, rampPercent: percent, reason };
}

export function applyRoute(state: NamespaceDeployments, event: DeploymentRouted, at: AppliedAt): NamespaceDeployments {
  const types = new Map(state.types);
  const before = types.get(event.type);
  const current = before?.versions.find((one) => one.version === event.version);
  if (before !== undefined && current !== undefined) {
    const previous = current.version === before.version ? before.previous : before.version;
    const ramp = event.rampPercent > 0 ? { version: event.rampVersion, percent: event.rampPercent } : undefined;
    types.set(event.type, { ...before, ...current, previous, ramp });
  }
  return { ...state, types, changedIn: at.version };
}

/**
 * On which bundle a start of `run` begins. A name always falls on the same side of a ramp, and those
 * that a small ramp takes a larger one takes too, so that a start that is sent again is the same start.
 */
export function bundleOfStart({ type, bundle, versions, ramp }: DeployedType, run: string): Uint8Array {
  if (ramp === undefined || hash(`${type}\n${ramp.version}\n${run}`) % 100 >= ramp.percent) return bundle;
  return versions.find((one) => one.version === ramp.version)?.bundle ?? bundle;
}

/** With a last mixing, so that names which differ in their end only fall on both sides. */
function hash(text: string): number {
  const seed = seedOf(text);
  const h = Math.imul(seed ^ (seed >>> 16), 0x85ebca6b);
  return (h ^ (h >>> 13)) >>> 0;
}

/** The types of a namespace in alphabetical order. */
export function sortedTypes(state: NamespaceDeployments): DeployedType[] {
  return [...state.types.values()].sort((a, b) => (a.type < b.type ? -1 : 1));
}

export function saveDeployments(state: NamespaceDeployments): DeployState {
  const { namespace, version, changedIn } = state;
  const type = sortedTypes(state).map(({ versions, ramp, ...same }) => {
    const others = versions.filter((one) => one.version !== same.version);
    return { ...same, other: [...others], rampVersion: ramp?.version ?? 0, rampPercent: ramp?.percent ?? 0 };
  });
  return { namespace, version, changedIn, type };
}

export function loadDeployments(saved: DeployState): NamespaceDeployments {
  const { namespace, version, changedIn } = saved;
  const types = saved.type.map(({ type, previous, other, rampVersion, rampPercent, ...own }): [string, DeployedType] => {
    const current = { ...own, bundle: own.bundle.slice() };
    const versions = [current, ...other.map((one) => ({ ...one, bundle: one.bundle.slice() }))].sort((a, b) => b.version - a.version);
    const ramp = rampPercent > 0 ? { version: rampVersion, percent: rampPercent } : undefined;
    return [type, { ...current, type, versions, previous, ramp }];
  });
  return { namespace, version, types: new Map(types), changedIn };
}
