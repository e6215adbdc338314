/**
 * Merkle Mountain Range over one partition's events: where nodes are, and the append.
 *
 * Positions count nodes from 0 in the order in which they come to be; `size` counts leaves.
 * Only the peaks are kept, so a range costs 32 bytes for each set bit of its size.
 * Invariant: a range of `size` leaves has one peak for each set bit of `size`, the widest first.
 * Source: draft-bryce-cose-merkle-mountain-range-proofs.
 */
import { assert, type Hasher } from "#core/base";
import { bagPeaks, bitCount, hashBytes, hashNode, nodeCount, sizeMax } from "./verify.ts";

/** Position of the leaf `seq`. */
export function leafPosition(seq: number): number {
  return nodeCount(seq);
}

/** Leaves of the longest range that `nodes` nodes hold whole. */
export function leafCount(nodes: number): number {
  let left = nodes;
  let size = 0;
  for (let width = sizeMax; width >= 1; width /= 2) {
    if (left < 2 * width - 1) continue;
    left -= 2 * width - 1;
    size += width;
  }
  return size;
}

/** Height of a node; leaves have 0. */
export function heightAt(position: number): number {
  let left = position;
  for (let height = 52; height > 0; height--) {
    // Step over the whole left tree of this height, if there is one; its own top is what may be left.
    const nodes = 2 ** (height + 1) - 1;
    if (left >= nodes) left -= nodes;
    if (left === nodes - 1) return height;
  }
  return 0;
}

/** Positions of the peaks of a range, left to right. */
export function peakPositions(size: number): number[] {
  const positions: number[] = [];
  let end = 0;
  let left = size;
  for (let width = sizeMax; width >= 1; width /= 2) {
    if (left < width) continue;
    left -= width;
    end += 2 * width - 1;
    positions.push(end - 1);
  }
  return positions;
}

/** Positions of the siblings from a node up to its peak in a range of `size` leaves. */
export function pathPositions(position: number, size: number): number[] {
  const path: number[] = [];
  const end = nodeCount(size);
  let at = position;
  for (let height = heightAt(position); ; height++) {
    const span = 2 ** (height + 1);
    const isRight = heightAt(at + 1) > height;
    const sibling = isRight ? at - span + 1 : at + span - 1;
    if (sibling >= end) return path;
    path.push(sibling);
    at = isRight ? at + 1 : at + span;
  }
}

const merged = new Uint8Array(hashBytes);

/** The peaks of a growing range. */
export class Mmr {
  /** Leaves. */
  size = 0;
  /** Peaks left to right, then room for more. */
  private buffer: Uint8Array;

  /** Takes over a range of `size` leaves; `peaks` is copied. */
  constructor(size = 0, peaks: Uint8Array = new Uint8Array(0)) {
    assert(Number.isSafeInteger(size) && size >= 0 && size <= sizeMax, `Cannot open a range: its size is ${size}`);
    const want = bitCount(size) * hashBytes;
    assert(peaks.length === want, `Cannot open a range of ${size} leaves: its peaks have ${peaks.length} bytes, want ${want}`);
    this.size = size;
    this.buffer = new Uint8Array(Math.max(want, 2 * hashBytes));
    this.buffer.set(peaks);
  }

  /** Adds one leaf. Merges as many peaks as `size` has trailing ones: one hash an append, on average. */
  append(leaf: Uint8Array, hasher: Hasher): void {
    assert(leaf.length === hashBytes && this.size < sizeMax, "a leaf has 32 bytes and fits the range");
    const size = this.size;
    let at = bitCount(size) * hashBytes;
    if (at === this.buffer.length) this.grow();
    const buffer = this.buffer;
    let top = leaf;
    let position = nodeCount(size);
    for (let rest = size; rest % 2 === 1; rest = (rest - 1) / 2) {
      at -= hashBytes;
      hashNode(hasher, ++position, buffer, at, top, 0, merged);
      top = merged;
    }
    for (let i = 0; i < hashBytes; i++) buffer[at + i] = top[i] as number;
    this.size = size + 1;
  }

  /** A copy of the peaks, left to right. */
  peaks(): Uint8Array {
    return this.buffer.slice(0, bitCount(this.size) * hashBytes);
  }

  root(hasher: Hasher): Uint8Array {
    return bagPeaks(hasher, this.size, this.buffer);
  }

  private grow(): void {
    const grown = new Uint8Array(this.buffer.length * 2);
    grown.set(this.buffer);
    this.buffer = grown;
  }
}
