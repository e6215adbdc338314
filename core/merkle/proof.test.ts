import { expect, test } from "bun:test";
import { fromHex, present } from "#core/base";
import {
  consistencyProof,
  heightAt,
  inclusionProof,
  leafCount,
  leafPosition,
  NodeList,
  nodeCount,
  pathPositions,
  peakPositions,
  peaksOf,
  rootOf,
  verifyConsistency,
  verifyInclusion,
} from "#core/merkle";
import kat from "../../tests/golden/mmr-kat39.json";
import { bunHasher } from "../../tests/hashers.ts";
import { climb } from "./verify.ts";

const valueAt = (position: number) => present(fromHex(present(kat.nodeValues[position], "node")), "hex");
const list = new NodeList(
  bunHasher,
  Array.from({ length: 21 }, (_, seq) => valueAt(leafPosition(seq))),
);

test("all 417 published inclusion rows are built, and lead to their peaks", () => {
  expect(kat.inclusion.length).toBe(417);
  for (const { position, nodes, path, accumulator, peak } of kat.inclusion) {
    const size = leafCount(nodes);
    expect(pathPositions(position, size)).toEqual(path);
    expect(peakPositions(size)).toEqual(accumulator);
    // The last leaf below a node comes as many positions before it as the node is high.
    const height = heightAt(position);
    const lastSeq = leafCount(position - height);
    const place = { height, ordinal: (lastSeq + 1) / 2 ** height - 1 };
    const top = climb(bunHasher, place, valueAt(position), path.map(valueAt));
    expect(top).toEqual(valueAt(present(accumulator[peak], "peak")));
  }
});

test("the published rows of leaves pass the verifier as whole proofs", () => {
  let leaves = 0;
  for (const { position, nodes, path } of kat.inclusion.filter((row) => heightAt(row.position) === 0)) {
    const size = leafCount(nodes);
    const seq = leafCount(position);
    const proof = inclusionProof(list, { seq, size });
    if ("reject" in proof) throw new Error(proof.message);
    expect(proof.path).toEqual(path.map(valueAt));
    expect(verifyInclusion(bunHasher, { leaf: valueAt(position), proof, root: rootOf(list, size, bunHasher) })).toBe(true);
    leaves++;
  }
  expect(leaves).toBe(231);
});

test("all 231 published consistency pairs are built and verified", () => {
  expect(kat.consistency.length).toBe(231);
  for (const row of kat.consistency) {
    const [fromSize, toSize] = [leafCount(row.from), leafCount(row.to)];
    expect(peakPositions(fromSize)).toEqual(row.peaks);
    const proof = consistencyProof(list, { fromSize, toSize });
    if ("reject" in proof) throw new Error(proof.message);
    expect(proof.paths).toEqual(row.paths.map((path) => path.map(valueAt)));
    const claim = { proof, fromRoot: rootOf(list, fromSize, bunHasher), toRoot: rootOf(list, toSize, bunHasher) };
    expect(verifyConsistency(bunHasher, claim)).toBe(true);
  }
});

test("what the range does not hold is refused, with the bounds", () => {
  expect(inclusionProof(list, { seq: 5, size: 5 })).toEqual({
    reject: "BAD_REQUEST",
    message: "Cannot prove anything about this range: seq is 5, want 0 to 4",
  });
  expect(inclusionProof(list, { seq: 0, size: 22 })).toEqual({
    reject: "BAD_REQUEST",
    message: "Cannot prove anything about this range: the size is 22, want 0 to 21",
  });
  expect(consistencyProof(list, { fromSize: 4, toSize: 3 })).toEqual({
    reject: "BAD_REQUEST",
    message: "Cannot prove anything about this range: the earlier size is 4, want 0 to 3",
  });
  for (const seq of [-1, 0.5, Number.NaN, 2 ** 60]) expect(inclusionProof(list, { seq, size: 21 })).toHaveProperty("reject", "BAD_REQUEST");
  for (const toSize of [-1, 0.5, Number.NaN, 2 ** 60])
    expect(consistencyProof(list, { fromSize: 0, toSize })).toHaveProperty("reject", "BAD_REQUEST");
  expect(inclusionProof(new NodeList(bunHasher), { seq: 0, size: 0 })).toHaveProperty("reject", "BAD_REQUEST");
  expect(nodeCount(list.size)).toBe(39);
});

test("a proof is unchanged by what the range takes in later", () => {
  const growing = new NodeList(bunHasher, [valueAt(0), valueAt(1), valueAt(3)]);
  const before = structuredClone(inclusionProof(growing, { seq: 1, size: 3 }));
  const kept = inclusionProof(growing, { seq: 1, size: 3 });
  for (let i = 0; i < 200; i++) growing.append(valueAt(i % 39));
  expect(kept).toEqual(before);
  expect(inclusionProof(growing, { seq: 1, size: 3 })).toEqual(before);
});

test("NodeList behind a known range reads what the whole one reads, from the range's size on", () => {
  const leaf = (seq: number) => valueAt(leafPosition(seq));
  for (let size = 0; size <= 21; size++) {
    const rest = Array.from({ length: 21 - size }, (_, i) => leaf(size + i));
    const behind = new NodeList(bunHasher, rest, { size, peaks: peaksOf(list, size) });
    expect([behind.size, behind.firstSeq]).toEqual([21, size]);
    for (let at = size; at <= 21; at++) expect(rootOf(behind, at, bunHasher)).toEqual(rootOf(list, at, bunHasher));
    for (let seq = size; seq < 21; seq++)
      expect(inclusionProof(behind, { seq, size: 21 })).toEqual(inclusionProof(list, { seq, size: 21 }));
    expect(consistencyProof(behind, { fromSize: size, toSize: 21 })).toEqual(consistencyProof(list, { fromSize: size, toSize: 21 }));
    if (size > 2) expect(() => inclusionProof(behind, { seq: 0, size: 21 })).toThrow(/is below the peaks/);
  }
});
