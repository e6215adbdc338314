/**
 * What is where in object storage: `<cluster>/<kind>/<name>`, three segments each.
 *
 * Everything is named by what it holds or by a number that is used once, so nothing is
 * ever written over. Numbers have leading zeros: the order of names is theirs.
 */
import { type Index, type ShardId, toHex } from "#core/base";

const indexDigits = 16;
const manifestDigits = 12;
const shardDigits = 10;
/** Of a hash, in names that hold a place too: enough to tell writers apart. */
const hashBytesInName = 8;

const padded = (value: number, digits: number) => String(value).padStart(digits, "0");
const shardName = (shard: ShardId) => `s${padded(shard, shardDigits)}`;

/** Records [first, last] of a shard's log, in an object with this hash. */
export interface NamedRange {
  readonly shard: ShardId;
  readonly first: Index;
  readonly last: Index;
  readonly sha256: Uint8Array;
}

function rangeName({ shard, first, last, sha256 }: NamedRange): string {
  const hash = toHex(sha256.subarray(0, hashBytesInName));
  return `${shardName(shard)}-${padded(first, indexDigits)}-${padded(last, indexDigits)}-${hash}`;
}

export const manifestKey = (cluster: string, shard: ShardId, number: number) =>
  `${manifestPrefix(cluster, shard)}${padded(number, manifestDigits)}.json`;

/** Begins the keys of a shard's manifests. */
export const manifestPrefix = (cluster: string, shard: ShardId) => `${cluster}/manifest/${shardName(shard)}-`;

/** Number of the manifest under a key, or undefined. */
export function manifestNumber(key: string): number | undefined {
  const found = /-(\d{12})\.json$/.exec(key);
  return found === null ? undefined : Number(found[1]);
}

/** A sealed segment: Parquet. */
export const segmentKey = (cluster: string, range: NamedRange) => `${cluster}/segment/${rangeName(range)}.parquet`;

/** Where in the segment a history is. */
export const segmentIndexKey = (cluster: string, range: NamedRange) => `${cluster}/index/${rangeName(range)}.idx`;

/** States of a shard as of `last`. */
export const checkpointKey = (cluster: string, range: NamedRange) => `${cluster}/checkpoint/${rangeName(range)}.states`;

/** Records of a shard's log as they are in it: what its checkpoint does not cover. */
export const recordsKey = (cluster: string, range: NamedRange) => `${cluster}/records/${rangeName(range)}.log`;

export const blobKey = (cluster: string, sha256: Uint8Array) => `${cluster}/blob/${toHex(sha256)}`;

/** Who rebuilds the cluster from its objects, or has: each restore epoch has one claim. */
export const claimKey = (cluster: string, epoch: number) => `${claimPrefix(cluster)}${padded(epoch, manifestDigits)}.json`;
/** A sign of life of who claimed: other bytes each time. */
export const claimBeatKey = (cluster: string, epoch: number) => `${claimPrefix(cluster)}${padded(epoch, manifestDigits)}.beat`;
/** Whether the claim counts for ever or for nothing: whoever puts it first decides. */
export const claimVerdictKey = (cluster: string, epoch: number) => `${claimPrefix(cluster)}${padded(epoch, manifestDigits)}.verdict`;
export const claimPrefix = (cluster: string) => `${cluster}/claim/e`;

/** Placement's states, numbered in each restore epoch. */
export const placementKey = (cluster: string, { epoch, number }: PlacementNumber) =>
  `${placementPrefix(cluster)}${padded(epoch, manifestDigits)}-${padded(number, manifestDigits)}.states`;
export const placementPrefix = (cluster: string) => `${cluster}/placement/e`;

export interface PlacementNumber {
  readonly epoch: number;
  readonly number: number;
}

/** Restore epoch of the key of a claim or its verdict, or undefined. */
export function claimEpoch(key: string): number | undefined {
  const found = /\/claim\/e(\d{12})\.(?:json|verdict)$/.exec(key);
  return found === null ? undefined : Number(found[1]);
}

/** Of the key of placement's states, or undefined. */
export function placementNumber(key: string): PlacementNumber | undefined {
  const found = /\/placement\/e(\d{12})-(\d{12})\.states$/.exec(key);
  return found === null ? undefined : { epoch: Number(found[1]), number: Number(found[2]) };
}

/** Begin the keys of what manifests of the shard name, blobs aside. */
export const shardPrefixes = (cluster: string, shard: ShardId) =>
  ["segment", "index", "checkpoint", "records"].map((kind) => `${cluster}/${kind}/${shardName(shard)}-`);

/** Last index that a key names, and of what kind the object is; undefined where it names none. */
export function rangeEnd(key: string): { readonly kind: string; readonly last: number } | undefined {
  const found = /^[^/]+\/(\w+)\/s\d{10}-\d{16}-(\d{16})-[0-9a-f]{16}\.\w+$/.exec(key);
  return found === null ? undefined : { kind: found[1] as string, last: Number(found[2]) };
}
