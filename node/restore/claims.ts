/**
 * Who may rebuild a cluster from its objects, and who may still seal to them.
 *
 * Each restore takes the next restore epoch by putting its claim where there is none. A cluster
 * that sees a claim of a higher epoch than its own was rebuilt elsewhere: it seals nothing any more.
 */
import { HopError } from "#core/base";
import { claimEpoch, claimKey, claimPrefix, type ObjectStore, placementNumber, placementPrefix } from "#store";

/** Of a cluster that was never rebuilt. */
export const firstRestoreEpoch = 1;

export interface Claim {
  readonly epoch: number;
  /** Cluster that is made of the objects. */
  readonly clusterId: string;
  readonly claimedMs: number;
}

/** The highest restore epoch that anybody claimed. */
export async function highestClaim(objects: ObjectStore, cluster: string): Promise<number> {
  let highest = firstRestoreEpoch;
  for await (const { key } of objects.list(claimPrefix(cluster))) highest = Math.max(highest, claimEpoch(key) ?? 0);
  // A listing may be old: behind its end it is asked.
  while ((await objects.head(claimKey(cluster, highest + 1))) !== undefined) highest++;
  return highest;
}

/** Takes the next restore epoch. Rejects with `HopError` ALREADY_MEMBER where another restore took it at the same time. */
export async function claim(
  objects: ObjectStore,
  cluster: string,
  { clusterId, nowMs }: { clusterId: string; nowMs: number },
): Promise<Claim> {
  const epoch = Math.max(await highestClaim(objects, cluster), await highestUploaded(objects, cluster)) + 1;
  const own: Claim = { epoch, clusterId, claimedMs: nowMs };
  const bytes = new TextEncoder().encode(`${JSON.stringify(own)}\n`);
  if ((await objects.put(claimKey(cluster, epoch), bytes, { ifAbsent: true })) === "stored") return own;
  throw lost(cluster, epoch);
}

/** The claim of a restore that changed nothing there goes. */
export function withdraw(objects: ObjectStore, cluster: string, { epoch }: Claim): Promise<void> {
  return objects.delete([claimKey(cluster, epoch)]);
}

/** Rejects with `HopError` ALREADY_MEMBER where a later restore began. */
export async function requireNewest(objects: ObjectStore, cluster: string, { epoch }: Claim): Promise<void> {
  if ((await highestClaim(objects, cluster)) > epoch) throw lost(cluster, epoch);
}

/** Why a cluster of this restore epoch may not seal, or undefined. */
export async function rebuiltElsewhere(objects: ObjectStore, cluster: string, epoch: number): Promise<string | undefined> {
  const highest = await highestClaim(objects, cluster);
  if (highest <= epoch) return undefined;
  return `this cluster was rebuilt from ${objects.url} elsewhere (restore epoch ${highest}, here ${epoch}): it seals nothing there any more`;
}

/** A claim may be gone: what was uploaded under its epoch shows it too. */
async function highestUploaded(objects: ObjectStore, cluster: string): Promise<number> {
  let highest = firstRestoreEpoch;
  for await (const { key } of objects.list(placementPrefix(cluster))) highest = Math.max(highest, placementNumber(key)?.epoch ?? 0);
  return highest;
}

const lost = (cluster: string, epoch: number) =>
  new HopError(
    "ALREADY_MEMBER",
    `Cannot restore ${cluster}: another restore of it began at the same time and has restore epoch ${epoch} or a later one; let that one end`,
  );
