import { expect, test } from "bun:test";
import { asIndex, asShardId, asTerm } from "#core/base";
import { recordsOfSegments } from "./merged-records.ts";
import type { RecordToSeal } from "./record-batch.ts";
import { busyShard, RecordMaker } from "./records-fixture.ts";
import { sealSegment } from "./seal.ts";
import { SealedReader } from "./sealed-reader.ts";
import type { SealedSegment } from "./summary.ts";
import { inMemory } from "./verify.ts";

const names = { segment: "1.parquet", index: "1.index" };

/** Seals the records in so many segments as there are cuts, and one more. */
async function cut(records: readonly RecordToSeal[], shard: RecordMaker["shard"], cuts: readonly number[]): Promise<SealedSegment[]> {
  const ends = [...cuts, records.length];
  const parts = ends.map((end, i) => records.slice(i === 0 ? 0 : ends[i - 1], end));
  return Promise.all(
    parts.map((part) =>
      sealSegment(part, { shard, firstIndex: part[0]?.index ?? asIndex(1), lastIndex: part.at(-1)?.index ?? asIndex(0) }),
    ),
  );
}

async function merged(segments: readonly SealedSegment[]): Promise<SealedSegment> {
  const [first, last] = [segments[0] as SealedSegment, segments.at(-1) as SealedSegment];
  const { shard, firstIndex } = first.summary;
  const parts = segments.map((each) => ({ summary: each.summary, reader: new SealedReader(each.summary, inMemory(each, names)) }));
  return sealSegment(recordsOfSegments(parts), { shard, firstIndex, lastIndex: last.summary.lastIndex });
}

test("merged segments are the segment that the log makes of the whole range, byte for byte", async () => {
  const records = [...busyShard(3000)].map((record) => ({ ...record, body: record.body.slice() }));
  const shard = asShardId(1);
  const [whole] = (await cut(records, shard, [])) as [SealedSegment];
  for (const cuts of [[1], [700], [10, 11, 12], [100, 600, 601, 1000]]) {
    const again = await merged(await cut(records, shard, cuts));
    expect(again.summary).toEqual(whole.summary);
    expect([Buffer.compare(again.segment, whole.segment), Buffer.compare(again.index, whole.index)]).toEqual([0, 0]);
  }
});

test("a partition that was with another shard meanwhile, empty records and new terms stay as they were", async () => {
  const maker = new RecordMaker();
  const other = new RecordMaker({ shard: asShardId(2), after: asIndex(1), written: maker.written });
  const empty = (term: number) => {
    maker.index = asIndex(maker.index + 1);
    maker.records.push({ index: maker.index, term: asTerm(term), kind: "data", body: new Uint8Array(0) });
  };
  for (let i = 0; i < 20; i++) maker.record({ partition: "run/a:b" }, { partition: `run/a:${i % 3}` }, { partition: "run/a:b" });
  maker.hand(other, (name) => name === "run/a:b");
  empty(4);
  maker.term = asTerm(4);
  for (let i = 0; i < 5; i++) other.record({ partition: "run/a:b" });
  other.hand(maker, () => true);
  for (let i = 0; i < 20; i++) maker.record({ partition: "run/a:b" }, { partition: "run/a:1" });
  empty(5);
  const { records, shard } = maker;
  const [whole] = (await cut(records, shard, [])) as [SealedSegment];
  for (const cuts of [[20], [21], [5, 25], [41]]) {
    const again = await merged(await cut(records, shard, cuts));
    expect(again.summary).toEqual(whole.summary);
    expect(Buffer.compare(again.segment, whole.segment)).toBe(0);
  }
});
