/**
 * Checks Merkle Mountain Range proofs. This file and core/base are all that a verifier needs.
 *
 * What the format hashes is defined here, and the writing side imports it: a node commits to its
 * position, and the root commits to the number of leaves. Sizes are leaf counts. Nothing here
 * trusts its input: whatever is malformed is refused, and nothing throws.
 * Source: draft-bryce-cose-merkle-mountain-range-proofs.
 */
import { bytesEqual, type Hasher, putU64 } from "#core/base";

export const hashBytes = 32;
/** Most leaves in a range: every node's number then stays a safe integer. */
export const sizeMax = 2 ** 52;
const heightMax = 52;

/** How many bits of a safe integer are set: the number of peaks of a range with `value` leaves. */
export function bitCount(value: number): number {
  return value < 0x100000000 ? bitCount32(value) : bitCount32(value >>> 0) + bitCount32(Math.floor(value / 0x100000000));
}

function bitCount32(value: number): number {
  let bits = value - ((value >>> 1) & 0x55555555);
  bits = (bits & 0x33333333) + ((bits >>> 2) & 0x33333333);
  return Math.imul((bits + (bits >>> 4)) & 0x0f0f0f0f, 0x01010101) >>> 24;
}

/** Nodes of a range with `size` leaves, which is also the position of the leaf that comes next. */
export function nodeCount(size: number): number {
  return 2 * size - bitCount(size);
}

// Reused for every hash: nothing in Core runs concurrently, and nothing is kept in it.
const preimage = new Uint8Array(8 + 2 * hashBytes);

/**
 * SHA-256(u64be(position + 1) || left || right) into `out`, which may be `left` or `right`.
 *
 * The hashes are read at `leftAt` and `rightAt`.
 */
export function hashNode(
  hasher: Hasher,
  position: number,
  left: Uint8Array,
  leftAt: number,
  right: Uint8Array,
  rightAt: number,
  out: Uint8Array,
): void {
  putU64(preimage, 0, position + 1);
  for (let i = 0; i < hashBytes; i++) {
    preimage[8 + i] = left[leftAt + i] as number;
    preimage[40 + i] = right[rightAt + i] as number;
  }
  hasher.sha256(preimage, out);
}

/**
 * The one compact root of a range: its peaks (32 bytes each, left to right) bagged right to left.
 *
 * bag = 32 zero bytes; for each peak, the rightmost first: bag = SHA-256(u64be(nodeCount(size) + 1) || peak || bag).
 * The range without leaves has the root of 32 zero bytes. Position nodeCount(size) belongs to a
 * leaf in every longer range and leaves are not hashed again, so no inner node shares the prefix,
 * and roots of two sizes differ even where their peaks agree. An event's bytes begin with the tag
 * of its partition and a preimage of this file with a zero byte, so neither passes for the other.
 */
export function bagPeaks(hasher: Hasher, size: number, peaks: Uint8Array): Uint8Array {
  const bag = new Uint8Array(hashBytes);
  const position = nodeCount(size);
  for (let at = (bitCount(size) - 1) * hashBytes; at >= 0; at -= hashBytes) hashNode(hasher, position, peaks, at, bag, 0, bag);
  return bag;
}

/** A node named by its height and by how many nodes of that height are left of it. */
export interface NodePlace {
  readonly height: number;
  readonly ordinal: number;
}

/** Hash of the ancestor `path.length` levels above a node, whose siblings on the way up are `path`. */
export function climb(hasher: Hasher, place: NodePlace, value: Uint8Array, path: readonly Uint8Array[]): Uint8Array {
  const hash = value.slice();
  let { height, ordinal } = place;
  for (const sibling of path) {
    const isRight = ordinal % 2 === 1;
    ordinal = Math.floor(ordinal / 2);
    height++;
    // A parent follows the last leaf below it and that leaf's other completed ancestors.
    const position = nodeCount((ordinal + 1) * 2 ** height - 1) + height;
    if (isRight) hashNode(hasher, position, sibling, 0, hash, 0, hash);
    else hashNode(hasher, position, hash, 0, sibling, 0, hash);
  }
  return hash;
}

/** The peak over leaf `seq` in a range of `size` leaves: which one it is from the left, and its height. */
export function peakOver(seq: number, size: number): { readonly index: number; readonly height: number } {
  let index = 0;
  let leavesLeft = 0;
  for (let height = heightMax; height > 0; height--) {
    const width = 2 ** height;
    if (Math.floor(size / width) % 2 === 0) continue;
    if (seq < leavesLeft + width) return { index, height };
    leavesLeft += width;
    index++;
  }
  return { index, height: 0 };
}

/** Proof that an event is the one at `seq` in the first `size` events. */
export interface InclusionProof {
  readonly seq: number;
  readonly size: number;
  /** Sibling hashes, leaf to peak. */
  readonly path: readonly Uint8Array[];
  /** All peaks of the range, 32 bytes each, left to right. */
  readonly peaks: Uint8Array;
}

export interface InclusionClaim {
  /** Hash of the event. */
  readonly leaf: Uint8Array;
  readonly proof: InclusionProof;
  /** The root that is trusted. */
  readonly root: Uint8Array;
}

/** Whether the claim holds. */
export function verifyInclusion(hasher: Hasher, claim: InclusionClaim): boolean {
  const { leaf, proof, root } = claim;
  const { seq, size, path, peaks } = proof;
  if (!isSize(size) || !isSize(seq) || seq >= size) return false;
  if (leaf.length !== hashBytes || !standsOn(hasher, size, peaks, root)) return false;
  const peak = peakOver(seq, size);
  if (!isPath(path, peak.height)) return false;
  return bytesEqual(climb(hasher, { height: 0, ordinal: seq }, leaf, path), peakAt(peaks, peak.index));
}

/** Proof that the range of `toSize` leaves extends the one of `fromSize` leaves. */
export interface ConsistencyProof {
  readonly fromSize: number;
  readonly toSize: number;
  /** For each peak of the shorter range: sibling hashes from it up to the longer range's peak. */
  readonly paths: readonly (readonly Uint8Array[])[];
  readonly fromPeaks: Uint8Array;
  readonly toPeaks: Uint8Array;
}

export interface ConsistencyClaim {
  readonly proof: ConsistencyProof;
  /** The root that was saved, and the later one. */
  readonly fromRoot: Uint8Array;
  readonly toRoot: Uint8Array;
}

/** Whether the claim holds. A range without leaves is extended by every range. */
export function verifyConsistency(hasher: Hasher, claim: ConsistencyClaim): boolean {
  const { fromSize, toSize, paths, fromPeaks, toPeaks } = claim.proof;
  if (!isSize(fromSize) || !isSize(toSize) || fromSize > toSize || paths.length !== bitCount(fromSize)) return false;
  if (!standsOn(hasher, fromSize, fromPeaks, claim.fromRoot) || !standsOn(hasher, toSize, toPeaks, claim.toRoot)) return false;
  let leavesLeft = 0;
  for (let i = 0; i < paths.length; i++) {
    const old = peakOver(leavesLeft, fromSize);
    const peak = peakOver(leavesLeft, toSize);
    const path = paths[i] as readonly Uint8Array[];
    if (!isPath(path, peak.height - old.height)) return false;
    const place = { height: old.height, ordinal: leavesLeft / 2 ** old.height };
    if (!bytesEqual(climb(hasher, place, peakAt(fromPeaks, i), path), peakAt(toPeaks, peak.index))) return false;
    leavesLeft += 2 ** old.height;
  }
  return true;
}

/** Whether `peaks` are as many as `size` leaves have and bag to `root`. */
function standsOn(hasher: Hasher, size: number, peaks: Uint8Array, root: Uint8Array): boolean {
  return peaks.length === bitCount(size) * hashBytes && bytesEqual(bagPeaks(hasher, size, peaks), root);
}

function peakAt(peaks: Uint8Array, index: number): Uint8Array {
  return peaks.subarray(index * hashBytes, (index + 1) * hashBytes);
}

function isSize(value: number): boolean {
  return Number.isSafeInteger(value) && value >= 0 && value <= sizeMax;
}

function isPath(path: readonly Uint8Array[], length: number): boolean {
  return path.length === length && path.every((hash) => hash.length === hashBytes);
}
