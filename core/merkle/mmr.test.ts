import { expect, test } from "bun:test";
import fc from "fast-check";
import { fromHex, InvariantError, present, putU64, toHex } from "#core/base";
import {
  bagPeaks,
  bitCount,
  heightAt,
  leafCount,
  leafPosition,
  Mmr,
  NodeList,
  nodeCount,
  pathPositions,
  peakPositions,
  peaksOf,
  rootOf,
  sizeMax,
} from "#core/merkle";
import kat from "../../tests/golden/mmr-kat39.json";
import { bunHasher, digest, nobleHasher } from "../../tests/hashers.ts";

const hex = (text: string) => present(fromHex(text), "hex");
const concat = (...parts: Uint8Array[]) => Uint8Array.from(parts.flatMap((part) => [...part]));
const u64 = (value: number) => {
  const out = new Uint8Array(8);
  putU64(out, 0, value);
  return out;
};
const leafOf = (seed: number) => digest(u64(seed));

/** The range by its definition: two neighbours of one height get a parent, at once. */
class NaiveRange {
  readonly nodes: { hash: Uint8Array; height: number; left: number; right: number }[] = [];
  peaks: number[] = [];

  append(leaf: Uint8Array): void {
    this.nodes.push({ hash: leaf, height: 0, left: -1, right: -1 });
    this.peaks.push(this.nodes.length - 1);
    for (;;) {
      const [left, right] = this.peaks.slice(-2);
      if (left === undefined || right === undefined || this.nodes[left]?.height !== this.nodes[right]?.height) return;
      const [a, b] = [present(this.nodes[left], "left"), present(this.nodes[right], "right")];
      const hash = digest(concat(u64(this.nodes.length + 1), a.hash, b.hash), nobleHasher);
      this.nodes.push({ hash, height: a.height + 1, left, right });
      this.peaks.splice(-2, 2, this.nodes.length - 1);
    }
  }

  hashAt(position: number): Uint8Array {
    return present(this.nodes[position], "node").hash;
  }

  root(): Uint8Array {
    const prefix = u64(this.nodes.length + 1);
    return this.peaks.reduceRight<Uint8Array>(
      (bag, peak) => digest(concat(prefix, this.hashAt(peak), bag), nobleHasher),
      new Uint8Array(32),
    );
  }
}

test("the published range of 39 nodes comes out of its 21 leaves", () => {
  const list = new NodeList(bunHasher);
  for (let seq = 0; nodeCount(list.size) < 39; seq++) list.append(hex(present(kat.nodeValues[leafPosition(seq)], "leaf")));
  expect(list.size).toBe(21);
  expect(kat.nodeValues.map((_, position) => toHex(list.node(position)))).toEqual(kat.nodeValues);
});

test("the published leaves are the hashes of their positions", () => {
  for (let seq = 0; seq < 21; seq++) expect(toHex(digest(u64(leafPosition(seq))))).toBe(present(kat.nodeValues[leafPosition(seq)], "leaf"));
});

test("heightAt(), leafCount() and bitCount() give the published heights, leaf counts and peaks", () => {
  expect(kat.heights.map((_, position) => heightAt(position))).toEqual(kat.heights);
  expect(kat.leafCounts.map((_, position) => leafCount(position + 1))).toEqual(kat.leafCounts);
  expect(kat.peakMasks.map((_, position) => leafCount(position + 1).toString(2))).toEqual(kat.peakMasks);
  for (const mask of kat.peakMasks) expect(bitCount(Number.parseInt(mask, 2))).toBe(mask.replaceAll("0", "").length);
});

test("the published peaks of each size are found, and kept by an append", () => {
  const mmr = new Mmr();
  for (const { nodes, size, positions } of kat.peaks) {
    mmr.append(hex(present(kat.nodeValues[leafPosition(size - 1)], "leaf")), bunHasher);
    expect({ size: mmr.size, nodes: nodeCount(size), positions: peakPositions(size) }).toEqual({ size, nodes, positions });
    expect(toHex(mmr.peaks())).toBe(positions.map((position) => kat.nodeValues[position]).join(""));
  }
});

test("append, peaks, root and places agree with the range by its definition", () => {
  const naive = new NaiveRange();
  const list = new NodeList(bunHasher);
  const mmr = new Mmr();
  expect(mmr.root(bunHasher)).toEqual(new Uint8Array(32));
  for (let size = 1; size <= 300; size++) {
    const leaf = leafOf(size);
    naive.append(leaf);
    list.append(leaf);
    mmr.append(leaf, bunHasher);
    expect(peakPositions(size)).toEqual(naive.peaks);
    expect(mmr.peaks()).toEqual(concat(...naive.peaks.map((peak) => naive.hashAt(peak))));
    expect(peaksOf(list, size)).toEqual(mmr.peaks());
    expect(mmr.root(bunHasher)).toEqual(naive.root());
    expect(rootOf(list, size, nobleHasher)).toEqual(naive.root());
  }
  expect(naive.nodes.map((_, position) => heightAt(position))).toEqual(naive.nodes.map((node) => node.height));
  expect(naive.nodes.map((_, position) => list.node(position))).toEqual(naive.nodes.map((node) => node.hash));
  for (const node of naive.nodes.filter(({ left }) => left >= 0)) {
    expect(pathPositions(node.left, 300)[0]).toBe(node.right);
    expect(pathPositions(node.right, 300)[0]).toBe(node.left);
  }
});

test("a range goes on from its size and peaks alone", () => {
  fc.assert(
    fc.property(fc.integer({ min: 0, max: 70 }), fc.integer({ min: 0, max: 70 }), (before, after) => {
      const whole = new Mmr();
      for (let i = 0; i < before; i++) whole.append(leafOf(i), bunHasher);
      const resumed = new Mmr(whole.size, whole.peaks());
      for (let i = before; i < before + after; i++) for (const mmr of [whole, resumed]) mmr.append(leafOf(i), bunHasher);
      expect(resumed.peaks()).toEqual(whole.peaks());
      expect(resumed.root(bunHasher)).toEqual(whole.root(bunHasher));
    }),
    { numRuns: 60 },
  );
});

test("places stay exact up to the largest range", () => {
  const bigNodes = (size: bigint) => 2n * size - BigInt(Array.from(size.toString(2)).filter((bit) => bit === "1").length);
  const sizes = fc.oneof(
    fc.integer({ min: 0, max: sizeMax }),
    fc.integer({ min: 0, max: 52 }).map((bit) => 2 ** bit - 1),
    fc.integer({ min: 0, max: 52 }).map((bit) => 2 ** bit),
  );
  fc.assert(
    fc.property(sizes, (size) => {
      expect(BigInt(nodeCount(size))).toBe(bigNodes(BigInt(size)));
      expect(leafCount(nodeCount(size))).toBe(size);
      expect(peakPositions(size).length).toBe(bitCount(size));
      expect(peakPositions(size).at(-1) ?? -1).toBe(nodeCount(size) - 1);
      if (size < sizeMax) expect(heightAt(leafPosition(size))).toBe(0);
      for (const [i, position] of peakPositions(size).entries()) {
        const width = size.toString(2).length - 1;
        const heights = Array.from(size.toString(2)).flatMap((bit, at) => (bit === "1" ? [width - at] : []));
        expect(heightAt(position)).toBe(present(heights[i], "height"));
        expect(pathPositions(position, size)).toEqual([]);
      }
    }),
  );
  expect(nodeCount(sizeMax)).toBe(Number.MAX_SAFE_INTEGER);
});

test("an append near the largest range numbers its nodes exactly", () => {
  const size = 2 ** 52 - 1;
  const peaks = concat(...Array.from({ length: 52 }, (_, i) => leafOf(i)));
  const mmr = new Mmr(size, peaks);
  mmr.append(leafOf(99), bunHasher);
  let want = leafOf(99);
  for (let i = 51; i >= 0; i--) want = digest(concat(u64(nodeCount(size) + 52 - i + 1), leafOf(i), want));
  expect(mmr.peaks()).toEqual(want);
  expect(() => mmr.append(leafOf(1), bunHasher)).toThrow(InvariantError);
});

test("peaks that do not belong to the size, and leaves that are no hash, are bugs", () => {
  expect(() => new Mmr(3, new Uint8Array(32))).toThrow("Cannot open a range of 3 leaves: its peaks have 32 bytes, want 64");
  expect(() => new Mmr(-1)).toThrow(InvariantError);
  expect(() => new Mmr(1.5)).toThrow(InvariantError);
  expect(() => new Mmr(2 ** 53)).toThrow(InvariantError);
  expect(() => new Mmr().append(new Uint8Array(31), bunHasher)).toThrow(InvariantError);
});

test("the root commits to the size, even under one peak", () => {
  const peak = leafOf(1);
  const roots = [1, 2, 4, 2 ** 31, 2 ** 52].map((size) => toHex(bagPeaks(bunHasher, size, peak)));
  expect(new Set([...roots, toHex(peak)]).size).toBe(6);
});
