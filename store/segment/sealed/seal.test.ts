import { expect, test } from "bun:test";
import fc from "fast-check";
import { asIndex, asSeq, asShardId, asTerm, keyOfDigest, type Partition } from "#core/base";
import { EventKind } from "#proto";
import type { RecordToSeal } from "./record-batch.ts";
import { busyShard, type MadeEvent, RecordMaker } from "./records-fixture.ts";
import { sealSegment } from "./seal-work.ts";
import { SealedReader } from "./sealed-reader.ts";
import type { SealedSegment } from "./summary.ts";
import { inMemory } from "./verify.ts";

const names = { segment: "1.parquet", index: "1.index" };
const readerOf = (sealed: SealedSegment) => new SealedReader(sealed.summary, inMemory(sealed, names));
const hex = (events: readonly Uint8Array[]) => events.map((event) => Buffer.from(event).toString("hex"));
const bytes = (count: number, seed = 1) => Uint8Array.from({ length: count }, (_, i) => (i * 31 + seed) & 255);

function seal(maker: RecordMaker, records: readonly RecordToSeal[] = maker.records): Promise<SealedSegment> {
  const [first, last] = [records[0]?.index ?? asIndex(1), records.at(-1)?.index ?? asIndex(0)];
  return sealSegment(records, { shard: maker.shard, firstIndex: first, lastIndex: last });
}

async function historyOf(reader: SealedReader, partition: string, wanted: { firstSeq?: number; endSeq?: number } = {}) {
  const found = await reader.history(partition as Partition, wanted as { firstSeq?: never; endSeq?: never });
  if (found === undefined) return undefined;
  const { firstSeq, endSeq, previous } = found;
  return { firstSeq, endSeq, previous, events: hex((await Array.fromAsync(found.events())).flat()) };
}

const partitionName = fc.oneof(
  fc.constantFrom("run/a:b", "run/a:b2", "run/a:", "run/ä:🐇", "run/a:\u{10ffff}", "run/a:\uffff", "channel/a:b/c", ""),
  fc.string({ unit: "grapheme", maxLength: 40 }),
);
const madeEvent: fc.Arbitrary<MadeEvent> = fc.record({
  partition: partitionName,
  kind: fc.oneof(fc.constantFrom(...Object.values(EventKind)), fc.integer({ min: 0, max: 2 ** 32 - 1 })),
  payload: fc.oneof(
    { weight: 12, arbitrary: fc.uint8Array({ maxLength: 200 }) },
    { weight: 2, arbitrary: fc.constant(new Uint8Array(0)) },
    { weight: 1, arbitrary: fc.constant(bytes(64 << 10)) },
  ),
  identity: fc.option(
    fc.record({ issuer: fc.string({ unit: "binary" }), subject: fc.string(), verified: fc.boolean(), causeSeq: fc.nat() }),
    { nil: undefined },
  ),
  // Field 9, a number; field 12, bytes; field 14 in eight bytes.
  unknown: fc.constantFrom(
    undefined,
    undefined,
    Uint8Array.of(72, 200, 1),
    Uint8Array.of(98, 2, 8, 1),
    Uint8Array.of(113, 1, 2, 3, 4, 5, 6, 7, 8),
  ),
});

test("whatever was sealed is read back byte for byte, by partition and in all", async () => {
  await fc.assert(
    fc.asyncProperty(fc.array(fc.array(madeEvent, { maxLength: 6 }), { maxLength: 60 }), async (records) => {
      const maker = new RecordMaker();
      for (const events of records) maker.record(...events);
      const sealed = await seal(maker);
      const reader = readerOf(sealed);
      const all = new Map<string, string[]>();
      for await (const group of reader.rows())
        for (const { partition, event } of group) all.set(partition, [...(all.get(partition) ?? []), ...hex([event])]);
      expect(all).toEqual(new Map([...sortedByBytes(maker.written)].map(([name, events]) => [name, hex(events)])));
      for (const [name, events] of maker.written) {
        expect(await historyOf(reader, name)).toEqual({
          firstSeq: asSeq(0),
          endSeq: asSeq(events.length),
          previous: undefined,
          events: hex(events),
        });
        expect(await reader.mayHold(name as Partition)).toBe(true);
      }
      expect(sealed.summary.rows).toBe([...all.values()].flat().length);
    }),
    { numRuns: 60 },
  );
});

function sortedByBytes(written: ReadonlyMap<string, Uint8Array[]>) {
  return [...written].sort(([a], [b]) => Buffer.compare(Buffer.from(a), Buffer.from(b)));
}

test("rows come in the order of partitions as bytes and know their record and term", async () => {
  const maker = new RecordMaker({ after: asIndex(10) });
  maker.record({ partition: "run/a:z" }, { partition: "run/a:ä" });
  maker.term = asTerm(4);
  maker.record();
  maker.record({ partition: "run/a:b" }, { partition: "run/a:z" });
  maker.records.push({ index: asIndex(14), term: asTerm(5), kind: "config", body: bytes(9) });
  maker.records.push({ index: asIndex(15), term: asTerm(5), kind: "data", body: bytes(0) });
  const sealed = await seal(maker);
  const rows = (await Array.fromAsync(readerOf(sealed).rows())).flat();
  expect(rows.map(({ partition, seq, index, term }) => `${partition} ${seq} ${index} ${term}`)).toEqual([
    "run/a:b 0 13 4",
    "run/a:z 0 11 1",
    "run/a:z 1 13 4",
    "run/a:ä 0 11 1",
  ]);
  const keys = ["run/a:b", "run/a:z", "run/a:ä"].map((name) => keyOfDigest(new Uint8Array(Bun.SHA256.hash(name).buffer)));
  const { shard, firstIndex, lastIndex, terms, rows: count, extent } = sealed.summary;
  expect({ shard, firstIndex, lastIndex, terms, count, extent }).toEqual({
    shard: asShardId(1),
    firstIndex: asIndex(11),
    lastIndex: asIndex(15),
    terms: [
      { first: asIndex(11), term: asTerm(1) },
      { first: asIndex(12), term: asTerm(4) },
      { first: asIndex(14), term: asTerm(5) },
    ],
    count: 4,
    extent: {
      firstPartition: "run/a:b" as Partition,
      lastPartition: "run/a:ä" as Partition,
      firstKey: Math.min(...keys),
      lastKey: Math.max(...keys),
      firstTimeMs: 1_800_000_000_001,
      lastTimeMs: 1_800_000_000_004,
    },
  });
});

test("records without events are a segment without rows", async () => {
  const maker = new RecordMaker();
  maker.record();
  maker.record();
  const sealed = await seal(maker);
  const reader = readerOf(sealed);
  expect([sealed.summary.rows, sealed.summary.extent]).toEqual([0, undefined]);
  expect(await Array.fromAsync(reader.rows())).toEqual([]);
  expect(await Array.fromAsync(reader.partitions())).toEqual([]);
  expect([await reader.mayHold("run/a:b" as Partition), await historyOf(reader, "run/a:b")]).toEqual([false, undefined]);
});

test("a history goes on in the segment before", async () => {
  const maker = new RecordMaker();
  for (let i = 0; i < 10; i++) maker.record({ partition: "run/a:b" }, { partition: "run/a:c" });
  const later = await seal(maker, maker.records.slice(6));
  const earlier = await seal(maker, maker.records.slice(0, 6));
  const events = hex(maker.written.get("run/a:b") as Uint8Array[]);
  expect(await historyOf(readerOf(later), "run/a:b")).toEqual({
    firstSeq: asSeq(6),
    endSeq: asSeq(10),
    previous: { shard: asShardId(1), index: asIndex(6) },
    events: events.slice(6),
  });
  expect(await historyOf(readerOf(earlier), "run/a:b", { endSeq: 6 })).toEqual({
    firstSeq: asSeq(0),
    endSeq: asSeq(6),
    previous: undefined,
    events: events.slice(0, 6),
  });
  expect(await historyOf(readerOf(earlier), "run/a:b", { endSeq: 7 })).toBeUndefined();
});

test("a partition that another shard had meanwhile is in pieces, and each says where the one before is", async () => {
  const [first, second] = [new RecordMaker(), new RecordMaker({ shard: asShardId(2), after: asIndex(20) })];
  const grow = (maker: RecordMaker, records: number) => {
    for (let i = 0; i < records; i++) maker.record(...[...maker.chains.keys()].map((partition) => ({ partition })));
  };
  first.record({ partition: "run/a:b" }, { partition: "run/a:c" });
  grow(first, 2);
  first.hand(second, (name) => name === "run/a:b");
  grow(first, 1);
  const there = new RecordMaker({ shard: asShardId(2), after: asIndex(20), written: first.written });
  second.hand(there, () => true);
  grow(there, 4);
  there.hand(first, () => true);
  grow(first, 3);
  const events = hex(first.written.get("run/a:b") as Uint8Array[]);
  const here = readerOf(await seal(first));
  const away = readerOf(await seal(there));
  const pieces = (await Array.fromAsync(here.partitions())).map((piece) => [
    piece.partition,
    piece.firstSeq,
    piece.endSeq,
    piece.previous?.shard,
  ]);
  expect(pieces).toEqual([
    ["run/a:b" as Partition, asSeq(0), asSeq(3), undefined],
    ["run/a:b" as Partition, asSeq(7), asSeq(10), asShardId(2)],
    ["run/a:c" as Partition, asSeq(0), asSeq(7), undefined],
  ]);
  const [last, middle, oldest] = [
    await historyOf(here, "run/a:b"),
    await historyOf(away, "run/a:b", { endSeq: 7 }),
    await historyOf(here, "run/a:b", { endSeq: 3 }),
  ];
  expect([...(oldest?.events ?? []), ...(middle?.events ?? []), ...(last?.events ?? [])]).toEqual(events);
  expect([last?.previous, middle?.previous, oldest?.previous]).toEqual([
    { shard: asShardId(2), index: asIndex(24) },
    { shard: asShardId(1), index: asIndex(3) },
    undefined,
  ]);
  expect(await historyOf(here, "run/a:b", { endSeq: 5 })).toBeUndefined();
});

test("part of a long history is read from the row groups that it lies in, and no others", async () => {
  const maker = new RecordMaker();
  for (let i = 0; i < 5000; i++) maker.record({ partition: "run/a:long", payload: bytes(100, i) });
  for (let i = 0; i < 20; i++) maker.record({ partition: "run/a:huge", payload: bytes(64 << 10, i) });
  const sealed = await seal(maker);
  const events = hex(maker.written.get("run/a:long") as Uint8Array[]);
  for (const [firstSeq, endSeq] of [
    [0, 5000],
    [1, 2],
    [2047, 2049],
    [2048, 2049],
    [4999, 5000],
    [3000, 3000],
  ] as const) {
    const part = await historyOf(readerOf(sealed), "run/a:long", { firstSeq, endSeq });
    expect([firstSeq, endSeq, part?.events]).toEqual([firstSeq, endSeq, events.slice(firstSeq, endSeq)]);
  }
  const reader = readerOf(sealed);
  await historyOf(reader, "run/a:long", { firstSeq: 4999, endSeq: 5000 });
  expect(reader.bytesRead).toBeLessThan(sealed.segment.length / 4);
  expect((await historyOf(reader, "run/a:huge"))?.events).toEqual(hex(maker.written.get("run/a:huge") as Uint8Array[]));
});

test("an index of many blocks finds every partition, and knows that others are absent", async () => {
  const records = [...busyShard(40_000)];
  const maker = new RecordMaker();
  const sealed = await seal(maker, records);
  const reader = readerOf(sealed);
  const pieces = await Array.fromAsync(reader.partitions());
  expect(sealed.index.length).toBeGreaterThan(20_000);
  for (const { partition, endSeq } of pieces.filter((_, i) => i % 50 === 0)) {
    expect((await historyOf(reader, partition))?.endSeq).toBe(endSeq);
    expect(await historyOf(reader, `${partition}x`)).toBeUndefined();
  }
  const absent = Array.from({ length: 2000 }, (_, i) => reader.mayHold(`run/default:absent-${i}` as Partition));
  expect((await Promise.all(absent)).filter(Boolean).length).toBeLessThan(60);
});

test("the same records give the same bytes", async () => {
  const [one, other] = [await seal(new RecordMaker(), [...busyShard(3000)]), await seal(new RecordMaker(), [...busyShard(3000)])];
  expect(other).toEqual(one);
});

test("what is missing or does not follow is refused, and the record named", async () => {
  const maker = new RecordMaker();
  for (let i = 0; i < 6; i++) maker.record({ partition: "run/a:b" });
  const { records, shard } = maker;
  const options = { shard, firstIndex: asIndex(1), lastIndex: asIndex(6) };
  const damaged = (index: number, change: (body: Uint8Array) => void) =>
    records.map((record) => {
      if (record.index !== index) return record;
      const body = record.body.slice();
      change(body);
      return { ...record, body };
    });
  const cases: [string, readonly RecordToSeal[], RegExp][] = [
    ["a record is missing", records.toSpliced(3, 1), /record 4 of shard 1.*got record 5, want record 4/],
    ["the last is missing", records.slice(0, 5), /record 6 of shard 1.*got no record/],
    [
      "one is too many",
      [...records, { ...(records[5] as RecordToSeal), index: asIndex(7), body: bytes(0) }],
      /record 7 of shard 1.*got record 7/,
    ],
    ["a payload changed", damaged(3, (body) => body.fill(0xff, 14, 16)), /record [34] of shard 1/],
    ["a previous hash changed", damaged(5, (body) => body.fill(0, -5, -2)), /record 5 of shard 1.*prev_hash/],
    ["a record is no record", damaged(2, (body) => body.fill(0xff)), /record 2 of shard 1/],
  ];
  for (const [what, given, message] of cases) {
    const refused = await sealSegment(given, options).then(
      () => "sealed",
      (error: Error) => `${error.name} ${error.message}`,
    );
    expect([what, refused]).toEqual([what, expect.stringMatching(message)]);
    expect(refused).toStartWith("CorruptionError Cannot seal");
  }
});

test("events that other records hold must be there: a gap in one log is refused", async () => {
  const maker = new RecordMaker();
  for (let i = 0; i < 4; i++) maker.record({ partition: "run/a:b" });
  const gap = maker.records.map((record, i) => (i === 2 ? { ...record, body: new Uint8Array(0) } : record));
  await expect(seal(maker, gap)).rejects.toThrow(/record 4 of shard 1.*got event 3 of run\/a:b, want event 2/);
  const late = maker.records.slice(2).map((record, i) => (i === 0 ? { ...record, body: new Uint8Array(0) } : record));
  await expect(seal(maker, late)).rejects.toThrow(/record 4 of shard 1.*event 3 of run\/a:b after record 3/);
});
