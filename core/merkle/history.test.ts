import { expect, test } from "bun:test";
import type { Partition } from "#core/base";
import { bytesEqual, InvariantError, toHex } from "#core/base";
import { bagPeaks, type HistoryFault, HistoryVerifier, historyFaultText, Mmr, verifyHistory } from "#core/merkle";
import { decodeEvent, type EventInit, encodeEvent, fromBytes, toBytes } from "#proto";
import { bunHasher, digest, nobleHasher } from "../../tests/hashers.ts";
import { sampleHistory, samplePartition } from "../../tests/sample-events.ts";

const small = "run/default:s" as Partition;
const { chain, events, hashes } = sampleHistory(bunHasher, 13, small);
// The events without the large one: every one of their bits is turned below.
const short = withoutLarge();
const expected = { size: short.length, lastHash: hashOf(short.length - 1), root: rootOf(short) };

/** Small events, chained anew. */
function withoutLarge(): Uint8Array[] {
  let prevHash: Uint8Array = new Uint8Array(32);
  const kept = events.filter((bytes) => bytes.length < 1000).slice(0, 6);
  return kept.map((bytes, seq) => {
    const out = toBytes(encodeEvent, { ...fromBytes(decodeEvent, bytes), seq, prevHash });
    prevHash = digest(out);
    return out;
  });
}

function hashOf(seq: number): Uint8Array {
  return digest(short[seq] as Uint8Array);
}

function rootOf(history: readonly Uint8Array[]): Uint8Array {
  const mmr = new Mmr();
  for (const bytes of history) mmr.append(digest(bytes, nobleHasher), nobleHasher);
  return mmr.root(nobleHasher);
}

function faultOf(history: readonly Uint8Array[], want = expected): HistoryFault {
  const verdict = verifyHistory(bunHasher, history, { partition: small, expected: want });
  if (verdict.ok) throw new Error("The history was accepted");
  return verdict.fault;
}

function changed(seq: number, init: EventInit): Uint8Array[] {
  return short.with(seq, toBytes(encodeEvent, { ...fromBytes(decodeEvent, short[seq] as Uint8Array), ...init }));
}

test("a true history gives back its head", () => {
  const verdict = verifyHistory(bunHasher, events, {
    partition: small,
    expected: { size: 13, lastHash: chain.lastHash, root: chain.root(nobleHasher) },
  });
  if (!verdict.ok) throw new Error(historyFaultText(small, verdict.fault));
  const { peaks, root, ...head } = verdict.head;
  expect(head).toEqual({ partition: small, size: 13, lastHash: hashes[12] as Uint8Array, timeMs: 1_800_000_002_003, logical: 0 });
  expect(peaks).toEqual(chain.head().peaks);
  expect(root).toEqual(bagPeaks(nobleHasher, 13, peaks));
});

test("an empty history is one of size 0", () => {
  expect(verifyHistory(bunHasher, [], { partition: small })).toEqual({
    ok: true,
    head: {
      partition: small,
      size: 0,
      lastHash: new Uint8Array(32),
      peaks: new Uint8Array(0),
      root: new Uint8Array(32),
      timeMs: 0,
      logical: 0,
    },
  });
});

test("every bit of every event that is turned is found, and its event named", () => {
  let found = 0;
  for (const [seq, bytes] of short.entries()) {
    for (let bit = 0; bit < bytes.length * 8; bit++) {
      const copy = bytes.slice();
      copy[bit >> 3] = (copy[bit >> 3] as number) ^ (1 << (bit & 7));
      expect([seq, bit, faultOf(short.with(seq, copy)).seq]).toEqual([seq, bit, seq]);
      found++;
    }
  }
  expect(found).toBeGreaterThan(5000);
});

test("every byte that is cut off or added is found, and its event named", () => {
  for (const [seq, bytes] of short.entries()) {
    for (let cut = 0; cut < bytes.length; cut++) expect(faultOf(short.with(seq, bytes.subarray(0, cut))).seq).toBe(seq);
    for (const extra of [[0], [8, 1], [122, 0], [0x80], [160, 6, 1]])
      expect(faultOf(short.with(seq, Uint8Array.from([...bytes, ...extra]))).seq).toBe(seq);
  }
});

test("an event removed, repeated, inserted or moved is named by its place", () => {
  for (let seq = 0; seq < short.length; seq++) {
    const removed = faultOf(short.toSpliced(seq, 1));
    expect([removed.seq, removed.rule]).toEqual([seq, seq === short.length - 1 ? "size" : "seq"]);
    const repeated = faultOf(short.toSpliced(seq, 0, short[seq] as Uint8Array));
    expect([repeated.seq, repeated.rule]).toEqual([seq + 1, "seq"]);
    if (seq === 0) continue;
    const swapped = faultOf(short.with(seq, short[seq - 1] as Uint8Array).with(seq - 1, short[seq] as Uint8Array));
    expect([swapped.seq, swapped.rule]).toEqual([seq - 1, "seq"]);
  }
  expect(faultOf([])).toEqual({ seq: 0, rule: "size", got: "0", want: "6" });
});

test("each rule says what it got and what it wants", () => {
  const hash = (seq: number) => toHex(hashOf(seq));
  expect(faultOf(short.with(2, new Uint8Array([255])))).toEqual({
    seq: 2,
    rule: "decode",
    got: "1 bytes that are no event",
    want: "an event",
  });
  expect(faultOf(changed(2, { partition: "run/default:t" }))).toEqual({ seq: 2, rule: "partition", got: "run/default:t", want: small });
  expect(faultOf(changed(2, { seq: 9 }))).toEqual({ seq: 2, rule: "seq", got: "9", want: "2" });
  expect(faultOf(changed(1, { timeMs: 1_800_000_000_000, logical: 0 }))).toEqual({
    seq: 1,
    rule: "hlc",
    got: "1800000000000.0",
    want: "above 1800000000000.0",
  });
  const forged = changed(2, { payload: new Uint8Array([1]) });
  expect(faultOf(forged)).toEqual({ seq: 2, rule: "hash", got: toHex(digest(forged[2] as Uint8Array)), want: hash(2) });
  expect(faultOf(changed(0, { prevHash: new Uint8Array(32).fill(1) }))).toEqual({
    seq: 0,
    rule: "prev_hash",
    got: "01".repeat(32),
    want: "00".repeat(32),
  });
  expect(faultOf(changed(0, { prevHash: new Uint8Array(0) }))).toEqual({ seq: 0, rule: "prev_hash", got: "", want: "00".repeat(32) });
  expect(faultOf(changed(3, { prevHash: new Uint8Array(32).fill(1) }))).toEqual({
    seq: 3,
    rule: "prev_hash",
    got: "01".repeat(32),
    want: hash(2),
  });
  expect(faultOf(short, { ...expected, root: new Uint8Array(32) })).toEqual({
    seq: 5,
    rule: "root",
    got: toHex(expected.root),
    want: "00".repeat(32),
  });
  expect(historyFaultText(small, faultOf(changed(2, { seq: 9 })))).toBe(
    "Event 2 of run/default:s is not what was recorded: seq is 9, want 2",
  );
});

test("a history whose time stands still or goes back is refused", () => {
  const { timeMs, logical } = fromBytes(decodeEvent, short[3] as Uint8Array);
  expect(faultOf(changed(4, { timeMs, logical })).rule).toBe("hlc");
  expect(faultOf(changed(4, { timeMs: timeMs - 1, logical: 65_535 })).rule).toBe("hlc");
});

test("a link broken in the last event is blamed by the expected last hash", () => {
  const last = short.length - 1;
  const before = changed(last - 1, { payload: new Uint8Array([1]) });
  const holder = changed(last, { prevHash: new Uint8Array(32).fill(1) });
  expect([faultOf(before).seq, faultOf(before).rule]).toEqual([last - 1, "hash"]);
  expect([faultOf(holder).seq, faultOf(holder).rule]).toEqual([last, "prev_hash"]);
  // Without it only the link is known to be broken: the earlier event is named.
  for (const history of [before, holder])
    expect(verifyHistory(bunHasher, history)).toMatchObject({ ok: false, fault: { seq: last - 1, rule: "hash" } });
});

test("a rewritten history is consistent in itself: only what was kept elsewhere tells", () => {
  let prevHash: Uint8Array = new Uint8Array(32);
  const rewritten = short.map((bytes, seq) => {
    const out = toBytes(encodeEvent, { ...fromBytes(decodeEvent, bytes), prevHash, schemaId: seq === 1 ? 9 : 1 });
    prevHash = digest(out);
    return out;
  });
  expect(verifyHistory(bunHasher, rewritten).ok).toBe(true);
  expect(faultOf(rewritten).rule).toBe("hash");
  expect(verifyHistory(bunHasher, rewritten, { expected: { root: expected.root } })).toMatchObject({ ok: false, fault: { rule: "root" } });
  expect(verifyHistory(bunHasher, short.slice(0, 5), { expected: { size: 6 } })).toMatchObject({
    ok: false,
    fault: { seq: 5, rule: "size" },
  });
});

test("fields and kinds of a later version are hashed as they are", () => {
  const later = (bytes: Uint8Array) => Uint8Array.from([...bytes, 160, 6, 1]);
  const first = later(short[0] as Uint8Array);
  const second = later(toBytes(encodeEvent, { ...fromBytes(decodeEvent, short[1] as Uint8Array), kind: 4000, prevHash: digest(first) }));
  expect(verifyHistory(bunHasher, [first, second])).toMatchObject({ ok: true, head: { size: 2, lastHash: digest(second) } });
});

test("a check goes on from a head that was verified, and holds the link to it", () => {
  for (let cut = 0; cut <= short.length; cut++) {
    const first = verifyHistory(bunHasher, short.slice(0, cut), { partition: small });
    if (!first.ok) throw new Error("The first part was refused");
    const rest = verifyHistory(bunHasher, short.slice(cut), { from: first.head, expected });
    expect(rest).toEqual(verifyHistory(bunHasher, short, { partition: small }));
    if (cut === 0 || cut === short.length) continue;
    const other = { ...first.head, lastHash: new Uint8Array(32) };
    const fault = { seq: cut, rule: "prev_hash", got: toHex(hashOf(cut - 1)), want: "00".repeat(32) };
    expect(verifyHistory(bunHasher, short.slice(cut), { from: other })).toEqual({ ok: false, fault: fault as HistoryFault });
    expect(() => verifyHistory(bunHasher, [], { from: first.head, partition: "run/default:t" })).toThrow(InvariantError);
  }
});

test("events may come one by one, and a fault stays", () => {
  const verifier = new HistoryVerifier(bunHasher, { partition: samplePartition });
  const fault = verifier.add(short[0] as Uint8Array);
  expect(fault?.rule).toBe("partition");
  expect(verifier.add(short[1] as Uint8Array)).toBe(fault as HistoryFault);
  expect(verifier.finish()).toEqual({ ok: false, fault: fault as HistoryFault });
  const good = new HistoryVerifier(bunHasher);
  for (const [seq, bytes] of short.entries()) {
    expect(good.add(bytes)).toBeUndefined();
    expect([good.size, bytesEqual(good.lastHash, hashOf(seq))]).toEqual([seq + 1, true]);
  }
});
