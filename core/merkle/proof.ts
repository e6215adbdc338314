/**
 * Builds inclusion and consistency proofs from a range whose nodes can be read.
 *
 * Paths are the draft's: siblings from a node up to its peak, and for consistency one path for
 * each peak of the shorter range.
 */
import { assert, type Hasher, type Rejection } from "#core/base";
import { heightAt, Mmr, pathPositions, peakPositions } from "./mmr.ts";
import { type ConsistencyProof, hashBytes, hashNode, type InclusionProof, nodeCount } from "./verify.ts";

/** Reads nodes of one range. */
export interface NodeReader {
  /** Leaves that can be read. */
  readonly size: number;
  /** The 32 bytes at a position below nodeCount(size). */
  node(position: number): Uint8Array;
}

/** A range of which only the peaks are known: who goes on from there needs no other node of it. */
export interface KnownRange {
  readonly size: number;
  /** 32 bytes each, left to right. */
  readonly peaks: Uint8Array;
}

/** A range in memory, 64 bytes a leaf, from the hashes of its leaves: of all of them, or of those behind a known range. */
export class NodeList implements NodeReader {
  size = 0;
  /** Leaves below it are under the peaks of a known range: sizes from there on can be read. */
  readonly firstSeq: number;
  private readonly hasher: Hasher;
  private nodes = new Uint8Array(64 * hashBytes);
  /** Nodes below this position are known by the peaks alone. */
  private readonly first: number;
  private readonly peaks = new Map<number, Uint8Array>();

  constructor(hasher: Hasher, leaves: Iterable<Uint8Array> = [], after: KnownRange = { size: 0, peaks: new Uint8Array(0) }) {
    this.hasher = hasher;
    this.firstSeq = after.size;
    this.size = after.size;
    this.first = nodeCount(after.size);
    for (const [i, position] of peakPositions(after.size).entries())
      this.peaks.set(position, after.peaks.slice(i * hashBytes, (i + 1) * hashBytes));
    for (const leaf of leaves) this.append(leaf);
  }

  append(leaf: Uint8Array): void {
    assert(leaf.length === hashBytes, "a leaf has 32 bytes");
    const first = nodeCount(this.size);
    const end = nodeCount(this.size + 1);
    this.reserve(end - this.first);
    this.node(first).set(leaf);
    for (let position = first + 1; position < end; position++) {
      const left = this.node(position - 2 ** heightAt(position));
      hashNode(this.hasher, position, left, 0, this.node(position - 1), 0, this.node(position));
    }
    this.size++;
  }

  node(position: number): Uint8Array {
    if (position < this.first) {
      const peak = this.peaks.get(position);
      assert(peak !== undefined, `node ${position} is below the peaks of ${this.firstSeq} leaves`);
      return peak;
    }
    const at = (position - this.first) * hashBytes;
    return this.nodes.subarray(at, at + hashBytes);
  }

  private reserve(nodes: number): void {
    if (nodes * hashBytes <= this.nodes.length) return;
    const grown = new Uint8Array(Math.max(this.nodes.length * 2, nodes * hashBytes));
    grown.set(this.nodes);
    this.nodes = grown;
  }
}

/** Peaks of the first `size` leaves, 32 bytes each, left to right. */
export function peaksOf(reader: NodeReader, size: number): Uint8Array {
  const positions = peakPositions(size);
  const peaks = new Uint8Array(positions.length * hashBytes);
  for (const [i, position] of positions.entries()) peaks.set(reader.node(position), i * hashBytes);
  return peaks;
}

/** The compact root of the first `size` leaves. */
export function rootOf(reader: NodeReader, size: number, hasher: Hasher): Uint8Array {
  return new Mmr(size, peaksOf(reader, size)).root(hasher);
}

/** Proof that leaf `seq` is in the first `size` leaves; refuses with BAD_REQUEST what the range does not hold. */
export function inclusionProof(reader: NodeReader, range: { readonly seq: number; readonly size: number }): InclusionProof | Rejection {
  const { seq, size } = range;
  if (!isWithin(size, reader.size)) return refuse(`the size is ${size}, want 0 to ${reader.size}`);
  if (!isWithin(seq, size - 1)) return refuse(`seq is ${seq}, want 0 to ${size - 1}`);
  return { seq, size, path: nodesAt(reader, pathPositions(nodeCount(seq), size)), peaks: peaksOf(reader, size) };
}

/** Proof that the first `toSize` leaves extend the first `fromSize`; refuses with BAD_REQUEST what the range does not hold. */
export function consistencyProof(
  reader: NodeReader,
  range: { readonly fromSize: number; readonly toSize: number },
): ConsistencyProof | Rejection {
  const { fromSize, toSize } = range;
  if (!isWithin(toSize, reader.size)) return refuse(`the later size is ${toSize}, want 0 to ${reader.size}`);
  if (!isWithin(fromSize, toSize)) return refuse(`the earlier size is ${fromSize}, want 0 to ${toSize}`);
  const paths = peakPositions(fromSize).map((peak) => nodesAt(reader, pathPositions(peak, toSize)));
  return { fromSize, toSize, paths, fromPeaks: peaksOf(reader, fromSize), toPeaks: peaksOf(reader, toSize) };
}

/** Copies, so that a proof outlives its reader. */
function nodesAt(reader: NodeReader, positions: readonly number[]): Uint8Array[] {
  return positions.map((position) => reader.node(position).slice());
}

function isWithin(value: number, max: number): boolean {
  return Number.isSafeInteger(value) && value >= 0 && value <= max;
}

function refuse(what: string): Rejection {
  return { reject: "BAD_REQUEST", message: `Cannot prove anything about this range: ${what}` };
}
