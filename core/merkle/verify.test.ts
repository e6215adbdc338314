/**
 * Every proof that was tampered with is refused. The cases have the shape of the probes that
 * transparency logs are tested with: other index, size, leaf or root; hashes swapped, removed,
 * inserted, before and after; single bits; empty parts.
 */
import { expect, test } from "bun:test";
import fc from "fast-check";
import { putU64 } from "#core/base";
import {
  bagPeaks,
  bitCount,
  type ConsistencyClaim,
  consistencyProof,
  type InclusionClaim,
  inclusionProof,
  NodeList,
  nodeCount,
  rootOf,
  sizeMax,
  verifyConsistency,
  verifyInclusion,
} from "#core/merkle";
import { bunHasher, digest } from "../../tests/hashers.ts";

const leaves = Array.from({ length: 130 }, (_, i) => {
  const seed = new Uint8Array(9);
  putU64(seed, 1, i);
  return digest(seed);
});
const list = new NodeList(bunHasher, leaves);
const noise = digest(new Uint8Array([77]));

function inclusion(seq: number, size: number): InclusionClaim {
  const proof = inclusionProof(list, { seq, size });
  if ("reject" in proof) throw new Error(proof.message);
  return { leaf: leaves[seq] as Uint8Array, proof, root: rootOf(list, size, bunHasher) };
}

function consistency(fromSize: number, toSize: number): ConsistencyClaim {
  const proof = consistencyProof(list, { fromSize, toSize });
  if ("reject" in proof) throw new Error(proof.message);
  return { proof, fromRoot: rootOf(list, fromSize, bunHasher), toRoot: rootOf(list, toSize, bunHasher) };
}

type Tampered<T> = [what: string, claim: T];

/** Every single bit of `bytes` turned, one at a time. */
function* flips(bytes: Uint8Array): Generator<[number, Uint8Array]> {
  for (let bit = 0; bit < bytes.length * 8; bit++) {
    const copy = bytes.slice();
    copy[bit >> 3] = (copy[bit >> 3] as number) ^ (1 << (bit & 7));
    yield [bit, copy];
  }
}

/** Other lists of hashes: shorter, longer, in another order, with a hash of another length. */
function* lists(path: readonly Uint8Array[], strangers: readonly Uint8Array[]): Generator<Tampered<Uint8Array[]>> {
  for (let i = 0; i < path.length; i++) {
    const hash = path[i] as Uint8Array;
    yield [`hash ${i} removed`, path.toSpliced(i, 1)];
    yield [`hash ${i} twice`, path.toSpliced(i, 0, hash)];
    yield [`hash ${i} one byte short`, path.with(i, hash.subarray(1))];
    yield [`hash ${i} one byte long`, path.with(i, Uint8Array.from([...hash, 0]))];
    yield [`hash ${i} empty`, path.with(i, new Uint8Array(0))];
    if (i > 0) yield [`hashes ${i - 1} and ${i} swapped`, path.with(i, path[i - 1] as Uint8Array).with(i - 1, hash)];
    for (const [bit, flipped] of flips(hash)) yield [`hash ${i} bit ${bit}`, path.with(i, flipped)];
  }
  if (path.length > 0) yield ["all hashes removed", []];
  for (const stranger of strangers) {
    for (let i = 0; i <= path.length; i++) yield [`a hash inserted at ${i}`, path.toSpliced(i, 0, stranger)];
  }
  yield ["trailing garbage", [...path, new Uint8Array(0)]];
}

/** Other bytes where one hash, or a run of hashes, is. */
function* others(bytes: Uint8Array): Generator<Tampered<Uint8Array>> {
  for (const [bit, flipped] of flips(bytes)) yield [`bit ${bit}`, flipped];
  if (bytes.length > 0) yield ["empty", new Uint8Array(0)];
  if (bytes.length > 0) yield ["one byte cut", bytes.subarray(1)];
  if (bytes.length > 32) yield ["one hash cut", bytes.subarray(32)];
  if (bytes.length > 32)
    yield ["first two swapped", Uint8Array.from([...bytes.subarray(32, 64), ...bytes.subarray(0, 32), ...bytes.subarray(64)])];
  yield ["trailing garbage", Uint8Array.from([...bytes, 1])];
  yield ["one hash more", Uint8Array.from([...bytes, ...noise])];
  yield ["one hash before", Uint8Array.from([...noise, ...bytes])];
  if (bytes.length > 0) yield ["zeros", new Uint8Array(bytes.length)];
}

function numbers(value: number): number[] {
  const near = [
    value + 1,
    value - 1,
    value + 8,
    value - 8,
    value ^ 2,
    value * 2,
    value * 16,
    Math.floor(value / 2),
    Math.floor(value / 16),
  ];
  const far = [
    -1,
    -0.5,
    value + 0.5,
    Number.NaN,
    Number.POSITIVE_INFINITY,
    sizeMax,
    sizeMax + 1,
    2 ** 53,
    2 ** 60,
    value + 2 ** 32,
    -value,
  ];
  return [...new Set([...near, ...far])].filter((other) => other !== value && !(other === 0 && value === 0));
}

function* tamperInclusion(good: InclusionClaim): Generator<Tampered<InclusionClaim>> {
  const { proof } = good;
  for (const seq of numbers(proof.seq)) yield [`seq ${seq}`, { ...good, proof: { ...proof, seq } }];
  for (const size of numbers(proof.size)) yield [`size ${size}`, { ...good, proof: { ...proof, size } }];
  for (const [what, path] of lists(proof.path, [noise, good.root, good.leaf]))
    yield [`path: ${what}`, { ...good, proof: { ...proof, path } }];
  for (const [what, peaks] of others(proof.peaks)) yield [`peaks: ${what}`, { ...good, proof: { ...proof, peaks } }];
  for (const [what, leaf] of others(good.leaf)) yield [`leaf: ${what}`, { ...good, leaf }];
  for (const [what, root] of others(good.root)) yield [`root: ${what}`, { ...good, root }];
  yield ["root and leaf are one", { ...good, leaf: good.root }];
  yield ["random leaf", { ...good, leaf: noise }];
  yield ["random root", { ...good, root: noise }];
  if (proof.size > 1) yield ["root of another size", { ...good, root: rootOf(list, proof.size - 1, bunHasher) }];
  yield ["another event's place", { ...good, leaf: leaves[(proof.seq + 1) % leaves.length] as Uint8Array }];
}

function* tamperConsistency(good: ConsistencyClaim): Generator<Tampered<ConsistencyClaim>> {
  const { proof } = good;
  for (const fromSize of numbers(proof.fromSize)) yield [`from ${fromSize}`, { ...good, proof: { ...proof, fromSize } }];
  for (const toSize of numbers(proof.toSize)) yield [`to ${toSize}`, { ...good, proof: { ...proof, toSize } }];
  for (const [i, path] of proof.paths.entries()) {
    for (const [what, other] of lists(path, [noise, good.fromRoot, good.toRoot]))
      yield [`path ${i}: ${what}`, { ...good, proof: { ...proof, paths: proof.paths.with(i, other) } }];
    yield [`path ${i} removed`, { ...good, proof: { ...proof, paths: proof.paths.toSpliced(i, 1) } }];
    yield [`path ${i} twice`, { ...good, proof: { ...proof, paths: proof.paths.toSpliced(i, 0, path) } }];
  }
  yield ["an empty path more", { ...good, proof: { ...proof, paths: [...proof.paths, []] } }];
  yield ["an empty path before", { ...good, proof: { ...proof, paths: [[], ...proof.paths] } }];
  for (const name of ["fromPeaks", "toPeaks"] as const) {
    for (const [what, peaks] of others(proof[name])) yield [`${name}: ${what}`, { ...good, proof: { ...proof, [name]: peaks } }];
  }
  for (const name of ["fromRoot", "toRoot"] as const) {
    for (const [what, root] of others(good[name])) if (!isRootOf(root, good[name])) yield [`${name}: ${what}`, { ...good, [name]: root }];
  }
  if (proof.fromSize !== proof.toSize) {
    yield ["roots swapped", { ...good, fromRoot: good.toRoot, toRoot: good.fromRoot }];
    yield ["peaks swapped", { ...good, proof: { ...proof, fromPeaks: proof.toPeaks, toPeaks: proof.fromPeaks } }];
    yield ["sizes swapped", { ...good, proof: { ...proof, fromSize: proof.toSize, toSize: proof.fromSize } }];
    yield ["roots equal", { ...good, fromRoot: good.toRoot }];
  }
}

/** "Zeros" is no change where the root is the empty range's. */
function isRootOf(root: Uint8Array, good: Uint8Array): boolean {
  return root.length === good.length && root.every((byte, i) => byte === good[i]);
}

test("a proof of every event in every range up to 64 is accepted", () => {
  for (let size = 1; size <= 64; size++)
    for (let seq = 0; seq < size; seq++) expect(verifyInclusion(bunHasher, inclusion(seq, size))).toBe(true);
});

test("a proof between every two ranges up to 64 is accepted, the empty one included", () => {
  for (let to = 0; to <= 64; to++)
    for (let from = 0; from <= to; from++) expect(verifyConsistency(bunHasher, consistency(from, to))).toBe(true);
});

test("an inclusion proof that was tampered with is refused", () => {
  let count = 0;
  const places = [
    [0, 1],
    [0, 2],
    [1, 2],
    [2, 3],
    [0, 8],
    [2, 8],
    [3, 11],
    [10, 11],
    [5, 21],
    [20, 21],
    [77, 130],
    [129, 130],
  ] as const;
  for (const [seq, size] of places) {
    const good = inclusion(seq, size);
    for (const [what, claim] of tamperInclusion(good)) {
      expect([`${seq} of ${size}, ${what}`, verifyInclusion(bunHasher, claim)]).toEqual([`${seq} of ${size}, ${what}`, false]);
      count++;
    }
    expect(verifyInclusion(bunHasher, good)).toBe(true);
  }
  expect(count).toBeGreaterThan(15_000);
});

test("a consistency proof that was tampered with is refused", () => {
  let count = 0;
  const places = [
    [1, 1],
    [1, 8],
    [2, 3],
    [3, 7],
    [4, 4],
    [6, 8],
    [7, 21],
    [13, 21],
    [64, 130],
    [127, 130],
  ] as const;
  for (const [from, to] of places) {
    const good = consistency(from, to);
    for (const [what, claim] of tamperConsistency(good)) {
      expect([`${from} to ${to}, ${what}`, verifyConsistency(bunHasher, claim)]).toEqual([`${from} to ${to}, ${what}`, false]);
      count++;
    }
    expect(verifyConsistency(bunHasher, good)).toBe(true);
  }
  expect(count).toBeGreaterThan(15_000);
});

test("the empty range has one root, holds no event, and is extended by any", () => {
  const empty = { seq: 0, size: 0, path: [], peaks: new Uint8Array(0) };
  const root = new Uint8Array(32);
  expect(verifyInclusion(bunHasher, { leaf: root, proof: empty, root })).toBe(false);
  const good = consistency(0, 21);
  expect(verifyConsistency(bunHasher, good)).toBe(true);
  for (const [, fromRoot] of flips(root)) expect(verifyConsistency(bunHasher, { ...good, fromRoot })).toBe(false);
  expect(verifyConsistency(bunHasher, { ...good, proof: { ...good.proof, paths: [[]] } })).toBe(false);
});

test("a size that is none is refused, also under a root that was made for it", () => {
  const one = inclusion(0, 1);
  for (const size of [sizeMax + 2, 2 ** 53, 2 ** 60, 1.5, 2.25]) {
    const peaks = new Uint8Array(32 * bitCount(size)).fill(7);
    const root = bagPeaks(bunHasher, size, peaks);
    const proof = {
      fromSize: size,
      toSize: size,
      fromPeaks: peaks,
      toPeaks: peaks,
      paths: new Array<Uint8Array[]>(bitCount(size)).fill([]),
    };
    expect([size, verifyConsistency(bunHasher, { proof, fromRoot: root, toRoot: root })]).toEqual([size, false]);
    const alike = Uint8Array.from({ length: peaks.length }, (_, i) => one.leaf[i % 32] as number);
    const claim = { ...one, proof: { seq: 0, size, path: [], peaks: alike }, root: bagPeaks(bunHasher, size, alike) };
    expect([size, verifyInclusion(bunHasher, claim)]).toEqual([size, false]);
  }
});

test("a history that was rewritten anywhere before its saved size is not consistent", () => {
  for (let changed = 0; changed < 21; changed++) {
    const other = new NodeList(bunHasher, leaves.slice(0, 30).with(changed, noise));
    const proof = consistencyProof(other, { fromSize: 21, toSize: 30 });
    if ("reject" in proof) throw new Error(proof.message);
    const fromRoot = rootOf(list, 21, bunHasher);
    const toRoot = rootOf(other, 30, bunHasher);
    expect(verifyConsistency(bunHasher, { proof, fromRoot, toRoot })).toBe(false);
    const truePeaks = consistency(21, 30).proof.fromPeaks;
    expect(verifyConsistency(bunHasher, { proof: { ...proof, fromPeaks: truePeaks }, fromRoot, toRoot })).toBe(false);
  }
});

test("no inner node passes for an event", () => {
  for (let position = 0; position < nodeCount(21); position++) {
    for (let seq = 0; seq < 21; seq++) {
      const good = inclusion(seq, 21);
      const isOwn = list.node(position).every((byte, i) => byte === good.leaf[i]);
      for (let skip = 0; skip <= good.proof.path.length; skip++) {
        const claim = { ...good, leaf: list.node(position), proof: { ...good.proof, path: good.proof.path.slice(skip) } };
        expect(verifyInclusion(bunHasher, claim)).toBe(isOwn && skip === 0);
      }
    }
  }
});

test("random changes to random proofs are refused", () => {
  const place = fc
    .integer({ min: 1, max: 130 })
    .chain((size) => fc.record({ size: fc.constant(size), seq: fc.nat(size - 1), from: fc.integer({ min: 1, max: size }) }));
  fc.assert(
    fc.property(place, fc.nat(), ({ size, seq, from }, draw) => {
      const included = [...tamperInclusion(inclusion(seq, size))];
      const extended = [...tamperConsistency(consistency(from, size))];
      const [whatIncluded, badInclusion] = included[draw % included.length] as Tampered<InclusionClaim>;
      const [whatExtended, badConsistency] = extended[draw % extended.length] as Tampered<ConsistencyClaim>;
      expect([whatIncluded, verifyInclusion(bunHasher, badInclusion)]).toEqual([whatIncluded, false]);
      expect([whatExtended, verifyConsistency(bunHasher, badConsistency)]).toEqual([whatExtended, false]);
    }),
    { numRuns: 60 },
  );
});
