/**
 * Who may rebuild a cluster from its objects, and who may still seal to them.
 *
 * Each restore takes the next restore epoch by putting its claim where there is none, and shows signs of
 * life until it ends. A cluster that sees a claim of a higher epoch than its own seals nothing. What
 * becomes of a claim is one object, its verdict, and who puts it first decides: the restore says that it is
 * kept, before it changes anything; a cluster that sees no sign of life any more says that it is void.
 * Neither looks at the other one's clock.
 */
import { HopError } from "#core/base";
import {
  claimBeatKey,
  claimEpoch,
  claimKey,
  claimPrefix,
  claimVerdictKey,
  type ObjectStore,
  placementNumber,
  placementPrefix,
} from "#store";

/** Of a cluster that was never rebuilt. */
export const firstRestoreEpoch = 1;

export interface Claim {
  readonly epoch: number;
  /** Cluster that is made of the objects. */
  readonly clusterId: string;
  readonly claimedMs: number;
  /** Whoever claimed shows signs of life, and does nothing unless its claim is kept. */
  readonly beats: boolean;
}

/** `open`: it is not decided yet. `kept`: the cluster was rebuilt, or is about to be. */
export interface ClaimSeen {
  readonly epoch: number;
  readonly state: "open" | "kept";
}

/** The highest restore epoch that anybody claimed. */
export async function highestClaim(objects: ObjectStore, cluster: string): Promise<number> {
  const found = await claimedEpochs(objects, cluster);
  return Math.max(firstRestoreEpoch, ...found);
}

/** Epochs that were claimed, and those of verdicts. */
async function claimedEpochs(objects: ObjectStore, cluster: string): Promise<Set<number>> {
  const found = new Set<number>();
  for await (const { key } of objects.list(claimPrefix(cluster))) {
    const epoch = claimEpoch(key);
    if (epoch !== undefined) found.add(epoch);
  }
  // A listing may be old: behind its end it is asked.
  let highest = Math.max(firstRestoreEpoch, ...found);
  while ((await objects.head(claimKey(cluster, highest + 1))) !== undefined) found.add(++highest);
  return found;
}

/** Takes the next restore epoch. Rejects with `HopError` ALREADY_MEMBER where another restore took it at the same time. */
export async function claim(
  objects: ObjectStore,
  cluster: string,
  { clusterId, nowMs }: { clusterId: string; nowMs: number },
): Promise<Claim> {
  const epoch = Math.max(await highestClaim(objects, cluster), await highestUploaded(objects, cluster)) + 1;
  const own: Claim = { epoch, clusterId, claimedMs: nowMs, beats: true };
  if ((await objects.put(claimKey(cluster, epoch), json(own), { ifAbsent: true })) === "stored") return own;
  throw lost(cluster, epoch);
}

/** The claim of a restore that changed nothing there goes. */
export function withdraw(objects: ObjectStore, cluster: string, { epoch }: Claim): Promise<void> {
  return objects.delete([claimBeatKey(cluster, epoch), claimKey(cluster, epoch), claimVerdictKey(cluster, epoch)]);
}

/** Rejects with `HopError` ALREADY_MEMBER where a later restore began. */
export async function requireNewest(objects: ObjectStore, cluster: string, { epoch }: Claim): Promise<void> {
  if ((await highestClaim(objects, cluster)) > epoch) throw lost(cluster, epoch);
}

/** The claim counts from here on, whatever becomes of who made it. Rejects with `HopError` ALREADY_MEMBER where it was taken for dead. */
export async function keep(objects: ObjectStore, cluster: string, { epoch, clusterId }: Claim): Promise<void> {
  const verdict = json({ epoch, verdict: "kept", clusterId });
  if ((await objects.put(claimVerdictKey(cluster, epoch), verdict, { ifAbsent: true })) === "stored") return;
  throw new HopError(
    "ALREADY_MEMBER",
    `Cannot restore ${cluster}: its nodes saw no sign of life of this restore (epoch ${epoch}) for too long and seal on; stop them, then restore again`,
  );
}

/** A claim without sign of life counts for nothing from here on, unless it was kept. */
export async function declareVoid(objects: ObjectStore, cluster: string, epoch: number): Promise<void> {
  if ((await objects.put(claimVerdictKey(cluster, epoch), json({ epoch, verdict: "void" }), { ifAbsent: true })) === "conflict") return;
  await objects.delete([claimBeatKey(cluster, epoch)]);
}

/** Claims above an epoch that count, or may come to. */
export async function claimsAbove(objects: ObjectStore, cluster: string, epoch: number): Promise<ClaimSeen[]> {
  const seen: ClaimSeen[] = [];
  for (const each of [...(await claimedEpochs(objects, cluster))].sort((a, b) => a - b)) {
    if (each <= epoch) continue;
    const state = await stateOf(objects, cluster, each);
    if (state !== "none") seen.push({ epoch: each, state });
  }
  return seen;
}

async function stateOf(objects: ObjectStore, cluster: string, epoch: number): Promise<ClaimSeen["state"] | "none"> {
  const claimed = parsed(await objects.get(claimKey(cluster, epoch)));
  if (claimed === undefined) return "none";
  // Who shows no signs of life is of an earlier version, and its claim counts until somebody deletes it.
  if (claimed.beats !== true) return "kept";
  const verdict = parsed(await objects.get(claimVerdictKey(cluster, epoch)));
  if (verdict === undefined) return "open";
  return verdict.verdict === "void" ? "none" : "kept";
}

/** Why a cluster of this restore epoch may not seal, or undefined. */
export async function rebuiltElsewhere(objects: ObjectStore, cluster: string, epoch: number): Promise<string | undefined> {
  return whyNot(await claimsAbove(objects, cluster, epoch), { url: objects.url, epoch });
}

/** As `rebuiltElsewhere`, of claims that were looked at. */
export function whyNot(above: readonly ClaimSeen[], { url, epoch }: { url: string; epoch: number }): string | undefined {
  const newest = above.at(-1);
  if (newest === undefined) return undefined;
  const epochs = `(restore epoch ${newest.epoch}, here ${epoch})`;
  return above.some(({ state }) => state === "kept")
    ? `this cluster was rebuilt from ${url} elsewhere ${epochs}: it seals nothing there any more`
    : `this cluster is being rebuilt from ${url} elsewhere ${epochs}: it seals nothing there until that ends`;
}

/** A claim may be gone: what was uploaded under its epoch shows it too. */
async function highestUploaded(objects: ObjectStore, cluster: string): Promise<number> {
  let highest = firstRestoreEpoch;
  for await (const { key } of objects.list(placementPrefix(cluster))) highest = Math.max(highest, placementNumber(key)?.epoch ?? 0);
  return highest;
}

const json = (value: object) => new TextEncoder().encode(`${JSON.stringify(value)}\n`);

/** Undefined where there is no such object; what is no JSON says nothing. */
function parsed(bytes: Uint8Array | undefined): { readonly beats?: unknown; readonly verdict?: unknown } | undefined {
  if (bytes === undefined) return undefined;
  try {
    const value: unknown = JSON.parse(new TextDecoder().decode(bytes));
    return typeof value === "object" && value !== null ? value : {};
  } catch {
    return {};
  }
}

const lost = (cluster: string, epoch: number) =>
  new HopError(
    "ALREADY_MEMBER",
    `Cannot restore ${cluster}: another restore of it began at the same time and has restore epoch ${epoch} or a later one; let that one end`,
  );
