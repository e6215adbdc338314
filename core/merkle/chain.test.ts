import { expect, test } from "bun:test";
import fc from "fast-check";
import { asIndex, InvariantError, type Partition } from "#core/base";
import { appendEvent, encodeRaw, followEvent, Mmr, type OpenRecord, PartitionChain, verifyHistory } from "#core/merkle";
import { decodeEvent, decodeRecord, encodeActivityCompleted, encodeEvent, fromBytes, toBytes, Writer } from "#proto";
import { bunHasher, digest, nobleHasher } from "../../tests/hashers.ts";
import { sampleEvents, sampleHistory, samplePartition } from "../../tests/sample-events.ts";

const open = (index: number, writer = new Writer()): OpenRecord => ({ writer, index: asIndex(index), hasher: bunHasher });
const partition = "run/default:a" as Partition;

test("appendEvent() writes what the generated codec writes, for every sample", () => {
  const { events, hashes } = sampleHistory(bunHasher);
  let prevHash: Uint8Array = new Uint8Array(32);
  for (const [seq, sample] of sampleEvents.entries()) {
    const { timeMs, logical, kind, schemaId, identity } = sample;
    const payload = toBytes(sample.encode, sample.payload);
    const want = toBytes(encodeEvent, { partition: samplePartition, seq, timeMs, logical, kind, schemaId, identity, payload, prevHash });
    expect(events[seq]).toEqual(want);
    expect(hashes[seq]).toEqual(digest(want, nobleHasher));
    prevHash = hashes[seq] as Uint8Array;
  }
});

test("appendEvent() writes what the generated codec writes, for any fields and lengths", () => {
  const count = fc.oneof(fc.constant(0), fc.nat(), fc.integer({ min: 0, max: Number.MAX_SAFE_INTEGER }));
  const length = fc.oneof(fc.nat(300), fc.constantFrom(16_200, 16_300, 16_383, 16_384, 70_000, 2_097_100, 2_097_152, 2_100_000));
  const identity = fc.option(
    fc.record({ issuer: fc.string(), subject: fc.string({ unit: "grapheme" }), verified: fc.boolean(), causeSeq: count }),
    { nil: undefined },
  );
  const fields = fc.record({ timeMs: count, logical: fc.nat(), kind: fc.nat(300), schemaId: fc.nat(), identity });
  fc.assert(
    fc.property(fields, fc.string({ unit: "binary" }), length, fc.nat(40), (event, name, payloadBytes, before) => {
      const chain = new PartitionChain(name as Partition);
      const payload = new Uint8Array(payloadBytes).fill(3);
      const writer = new Writer(64);
      writer.at = before;
      const bytes = appendEvent(open(5, writer), chain, { ...event, encode: encodeRaw, payload });
      const want = toBytes(encodeEvent, { partition: name, seq: 0, ...event, payload, prevHash: new Uint8Array(32) });
      expect(Buffer.compare(bytes, want)).toBe(0);
      const record = fromBytes(decodeRecord, writer.bytes.subarray(before, writer.at));
      expect([record.event.length, Buffer.compare(record.event[0] as Uint8Array, want), record.previous]).toEqual([1, 0, [0]]);
    }),
    { numRuns: 150 },
  );
});

test("an event's length is written right on both sides of every step of its size", () => {
  for (const want of [127, 128, 16_383, 16_384, 2_097_151, 2_097_152]) {
    for (const name of ["a", "ab", "abc", "abcd"]) {
      const event = { timeMs: 1, logical: 0, kind: 200, schemaId: 1, identity: undefined };
      const bare = toBytes(encodeEvent, { partition: name, ...event, prevHash: new Uint8Array(32) }).length;
      // The payload's tag and its own length take two to four bytes more.
      for (let payloadBytes = want - bare - 5; payloadBytes <= want - bare - 2; payloadBytes++) {
        const payload = new Uint8Array(payloadBytes).fill(5);
        const bytes = toBytes(encodeEvent, { partition: name, ...event, payload, prevHash: new Uint8Array(32) });
        if (bytes.length !== want) continue;
        // Exactly the room that the event takes before its length is known.
        const writer = new Writer(3 + want);
        const got = appendEvent(open(1, writer), new PartitionChain(name as Partition), { ...event, encode: encodeRaw, payload });
        const [stored] = fromBytes(decodeRecord, writer.finish()).event;
        expect([want, Buffer.compare(got, bytes), Buffer.compare(stored as Uint8Array, bytes)]).toEqual([want, 0, 0]);
      }
    }
  }
});

test("events of one record and of several partitions name the records before them", () => {
  const [a, b] = [new PartitionChain(partition), new PartitionChain("run/default:b" as Partition)];
  const raw = { timeMs: 1, kind: 200, schemaId: 1, identity: undefined, encode: encodeRaw, payload: new Uint8Array(0) };
  const first = open(7);
  appendEvent(first, a, { ...raw, logical: 0 });
  appendEvent(first, b, { ...raw, logical: 1 });
  appendEvent(first, a, { ...raw, logical: 2 });
  const second = open(9);
  appendEvent(second, a, { ...raw, logical: 3 });
  appendEvent(second, b, { ...raw, logical: 4 });
  const records = [first, second].map(({ writer }) => fromBytes(decodeRecord, writer.finish()));
  expect(records.map((record) => record.previous)).toEqual([
    [0, 0, 7],
    [7, 7],
  ]);
  expect(records.flatMap((record) => record.event.map((bytes) => fromBytes(decodeEvent, bytes).seq))).toEqual([0, 0, 1, 2, 1]);
  expect([a.lastIndex, b.lastIndex, a.size, b.size]).toEqual([9, 9, 3, 2]);
});

test("the first event's prev_hash is there, 32 zero bytes, and an empty payload is left out", () => {
  const chain = new PartitionChain(partition);
  const bytes = appendEvent(open(1), chain, {
    timeMs: 1,
    logical: 0,
    kind: 200,
    schemaId: 0,
    identity: undefined,
    encode: encodeRaw,
    payload: new Uint8Array(0),
  });
  expect(bytes.subarray(-34)).toEqual(Uint8Array.from([122, 32, ...new Array<number>(32).fill(0)]));
  expect(bytes.length).toBe(2 + partition.length + 2 + 3 + 34);
});

test("the bytes stay as they were when the writer grows afterwards", () => {
  const writer = new Writer(16);
  const chain = new PartitionChain(partition);
  const event = {
    timeMs: 1,
    logical: 0,
    kind: 17,
    schemaId: 1,
    identity: undefined,
    encode: encodeActivityCompleted,
    payload: { op: 1, worker: "w" },
  };
  const bytes = appendEvent(open(1, writer), chain, event);
  const before = bytes.slice();
  for (let i = 1; i < 200; i++) appendEvent(open(1, writer), chain, { ...event, timeMs: 1 + i });
  expect(bytes).toEqual(before);
  const record = fromBytes(decodeRecord, writer.finish());
  expect(verifyHistory(bunHasher, record.event)).toMatchObject({ ok: true, head: { size: 200, lastHash: chain.lastHash } });
});

test("a chain's peaks are the range over its hashes", () => {
  const { chain, hashes } = sampleHistory(bunHasher, 100);
  const mmr = new Mmr();
  for (const hash of hashes) mmr.append(hash, nobleHasher);
  expect(chain.head()).toEqual({ size: 100, lastHash: hashes[99] as Uint8Array, peaks: mmr.peaks(), lastIndex: 100, lastShard: 0 });
  expect(chain.root(bunHasher)).toEqual(mmr.root(nobleHasher));
});

test("a chain that is opened from a head, or put back to one, goes on the same", () => {
  for (const cut of [0, 1, 5, 12]) {
    const whole = sampleHistory(bunHasher);
    const chain = sampleHistory(bunHasher, cut).chain;
    const kept = chain.head();
    const lost = new PartitionChain(samplePartition, kept);
    appendEvent(open(90), lost, { ...(sampleEvents[11] as (typeof sampleEvents)[0]), timeMs: 5 });
    expect(chain.head()).toEqual(kept);
    const again = new PartitionChain(samplePartition, kept);
    for (let i = cut; i < whole.events.length; i++) appendEvent(open(i + 1), again, sampleEvents[i] as (typeof sampleEvents)[0]);
    expect(again.head()).toEqual(whole.chain.head());
  }
});

test("a head that does not fit together is a bug", () => {
  const head = sampleHistory(bunHasher, 3).chain.head();
  expect(() => new PartitionChain(partition, { ...head, size: 4 })).toThrow(InvariantError);
  expect(() => new PartitionChain(partition, { ...head, lastHash: head.lastHash.subarray(1) })).toThrow(
    "Cannot open run/default:a: its last hash has 31 bytes, want 32",
  );
});

test("followEvent() brings another replica's chain to the same head", () => {
  const { chain, events } = sampleHistory(bunHasher, 40);
  const replica = new PartitionChain(samplePartition);
  for (const [i, bytes] of events.entries()) {
    expect(followEvent(replica, { bytes, event: fromBytes(decodeEvent, bytes), index: asIndex(i + 1) }, nobleHasher)).toBeUndefined();
  }
  expect(replica.head()).toEqual(chain.head());
});

test("followEvent() refuses what is not the next event, and leaves the chain as it was", () => {
  const { events } = sampleHistory(bunHasher, 5);
  const replica = new PartitionChain(samplePartition);
  const follow = (bytes: Uint8Array, chain = replica) =>
    followEvent(chain, { bytes, event: fromBytes(decodeEvent, bytes), index: asIndex(1) }, bunHasher);
  follow(events[0] as Uint8Array);
  const before = replica.head();
  expect(follow(events[2] as Uint8Array)).toEqual({
    reject: "HASH_MISMATCH",
    message: `Cannot follow event 1 of ${samplePartition}: seq is 2, want 1`,
  });
  expect(follow(events[0] as Uint8Array)).toHaveProperty("message", `Cannot follow event 1 of ${samplePartition}: seq is 0, want 1`);
  expect(follow(events[0] as Uint8Array, new PartitionChain(partition))).toHaveProperty(
    "message",
    `Cannot follow event 0 of ${partition}: partition is ${samplePartition}, want ${partition}`,
  );
  const foreign = toBytes(encodeEvent, { ...fromBytes(decodeEvent, events[1] as Uint8Array), prevHash: new Uint8Array(32).fill(1) });
  expect(follow(foreign)?.message).toContain(`prev_hash is ${"01".repeat(32)}, want `);
  expect(replica.head()).toEqual(before);
  expect(follow(events[1] as Uint8Array)).toBeUndefined();
});
