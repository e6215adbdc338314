import { expect, test } from "bun:test";
import { asIndex, asSeq, asShardId, asTerm, type Partition } from "#core/base";
import { EventKind } from "#proto";
import { type Removal, recordsOfSegments } from "./merged-records.ts";
import type { RecordToSeal } from "./record-batch.ts";
import { busyShard, RecordMaker } from "./records-fixture.ts";
import { sealSegment } from "./seal-work.ts";
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

async function merged(segments: readonly SealedSegment[], removal?: Removal): Promise<SealedSegment> {
  const [first, last] = [segments[0] as SealedSegment, segments.at(-1) as SealedSegment];
  const { shard, firstIndex } = first.summary;
  const parts = segments.map((each) => ({ summary: each.summary, reader: new SealedReader(each.summary, inMemory(each, names)) }));
  return sealSegment(recordsOfSegments(parts, removal), { shard, firstIndex, lastIndex: last.summary.lastIndex, mayLack: true });
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

test("what expired is left out, and every other history is as it was, byte for byte", async () => {
  const maker = new RecordMaker();
  const lives = ["run/a:gone", "run/a:kept", "run/a:again", "run/b:other"];
  const write = (partition: string, count: number) => {
    for (let i = 0; i < count; i++) maker.record({ partition }, { partition: "run/b:other" }, { partition });
  };
  for (const partition of lives) write(partition, 30);
  const expire = (partition: string): number => {
    const seq = maker.written.get(partition)?.length ?? 0;
    maker.record({ partition, kind: EventKind.historyExpired });
    return seq;
  };
  const ends = new Map([
    ["run/a:gone", expire("run/a:gone")],
    ["run/a:again", 0],
  ]);
  // A name that goes on, and whose second history expires too: what says so of the first one stays.
  const first = expire("run/a:again");
  write("run/a:again", 10);
  ends.set("run/a:again", expire("run/a:again"));
  const { records, shard, written } = maker;
  const left = new Map([
    ["run/a:gone", [ends.get("run/a:gone") as number]],
    ["run/a:again", [first, ends.get("run/a:again") as number]],
  ]);
  for (const cuts of [[], [70], [20, 55, 90, 130]]) {
    let removed = 0;
    const segments = await cut(records, shard, cuts);
    const again = await merged(segments, { expiredEnd: (partition) => ends.get(partition) ?? 0, removed: () => removed++ });
    const reader = new SealedReader(again.summary, inMemory(again, names));
    const seen = new Map<string, number[]>();
    for await (const rows of reader.rows())
      for (const { partition, seq, event } of rows) {
        seen.set(partition, [...(seen.get(partition) ?? []), seq]);
        expect(Buffer.compare(event, written.get(partition)?.[seq] as Uint8Array)).toBe(0);
      }
    for (const [partition, events] of written)
      expect([partition, seen.get(partition)]).toEqual([partition, left.get(partition) ?? [...events.keys()]]);
    expect(again.summary.rows + removed).toBe([...written.values()].reduce((sum, events) => sum + events.length, 0));
    // Without a second removal it is the same segment: what is left can be merged on.
    const once = await merged([again]);
    expect(once.summary).toEqual(again.summary);
    // Who asks for what is left finds where the event before was.
    const end = ends.get("run/a:gone") as number;
    const found = await reader.history("run/a:gone" as Partition);
    expect([found?.firstSeq, found?.endSeq, found?.previous?.shard]).toEqual([asSeq(end), asSeq(end + 1), shard]);
    expect(await reader.history("run/a:gone" as Partition, { endSeq: asSeq(end) })).toBeUndefined();
  }
});

test("a gap that nobody said of is a broken log still", async () => {
  const maker = new RecordMaker();
  for (let i = 0; i < 9; i++) maker.record({ partition: "run/a:b" });
  const { records, shard } = maker;
  const holed = records.map((record, i) => (i === 4 ? { ...record, body: new Uint8Array(0) } : record));
  await expect(cut(holed, shard, [])).rejects.toThrow(/event/);
});
