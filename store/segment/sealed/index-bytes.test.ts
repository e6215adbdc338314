/** What an index and a row group say of themselves, beside their hashes: bounds that hold, and malformed bytes that are named. */
import { expect, test } from "bun:test";
import fc from "fast-check";
import { asIndex, asShardId, type Partition } from "#core/base";
import { CodecError } from "#proto";
import { HistoryPart } from "./history-part.ts";
import { unpackBlock } from "./index-block.ts";
import type { RecordToSeal } from "./record-batch.ts";
import { busyShard, RecordMaker } from "./records-fixture.ts";
import { sealSegment } from "./seal-work.ts";
import { decodeDirectory, encodeDirectory, type RowGroupPlace } from "./segment-directory.ts";
import type { SealedSegment } from "./summary.ts";

const seal = (records: readonly RecordToSeal[]) =>
  sealSegment(records, { shard: asShardId(1), firstIndex: asIndex(1), lastIndex: asIndex(records.length) });
const directoryBytes = ({ index, summary }: SealedSegment) => index.subarray(summary.directoryAt);

const many = await seal([...busyShard(40_000)]);
const directory = decodeDirectory(directoryBytes(many));

test("a directory is read as it was written", () => {
  expect(Buffer.compare(encodeDirectory(directory), directoryBytes(many))).toBe(0);
});

test("blocks and row groups are small, whatever is in them", async () => {
  expect(directory.blocks.length).toBeGreaterThan(1);
  expect(Math.max(...directory.blocks.map(({ extent }) => extent.bytes))).toBeLessThan(17 << 10);
  expect(Math.max(...directory.rowGroups.map(({ rows }) => rows))).toBe(2048);
  const maker = new RecordMaker();
  for (let i = 0; i < 40; i++) maker.record({ partition: "run/a:b", payload: new Uint8Array(64 << 10).fill(i) });
  const { rowGroups } = decodeDirectory(directoryBytes(await seal(maker.records)));
  expect(rowGroups.length).toBe(5);
  expect(Math.max(...rowGroups.map(({ eventBytes }) => eventBytes))).toBeLessThan((512 + 65) << 10);
});

test("an event that is not what its hash, its partition or its seq says is never given out", async () => {
  const maker = new RecordMaker();
  for (let i = 0; i < 3; i++) maker.record({ partition: "run/a:b", payload: new Uint8Array(i) });
  const sealed = await seal(maker.records);
  const group = decodeDirectory(directoryBytes(sealed)).rowGroups[0] as RowGroupPlace;
  const bytes = sealed.segment.subarray(group.history.at, group.history.at + group.history.bytes);
  const part = new HistoryPart(group, bytes);
  const right = { partition: "run/a:b" as Partition, seq: 1, prevHash: part.hash(0) };
  expect(part.event(1, right)).toEqual(maker.written.get("run/a:b")?.[1] as Uint8Array);
  expect(() => part.event(1, { ...right, prevHash: part.hash(1) })).toThrow(/event 1 of run\/a:b: its hash is [0-9a-f]{64}, want/);
  expect(() => part.event(1, { ...right, seq: 2 })).toThrow("row 1 holds another one");
  expect(() => part.event(1, { ...right, partition: "run/a:c" as Partition })).toThrow("row 1 holds another one");
  const wrong: Partial<RowGroupPlace>[] = [
    { rows: 4 },
    { eventBytes: group.eventBytes + 1 },
    { event: { at: group.event.at + 1, bytes: group.event.bytes - 1 } },
    { hash: { at: group.hash.at, bytes: group.hash.bytes - 32 } },
  ];
  for (const each of wrong) expect(() => new HistoryPart({ ...group, ...each }, bytes)).toThrow(CodecError);
});

test("malformed directories and blocks end in a CodecError", () => {
  const { at, bytes } = (directory.blocks[0] as (typeof directory.blocks)[number]).extent;
  const inputs: [Uint8Array, (given: Uint8Array) => unknown][] = [
    [directoryBytes(many), decodeDirectory],
    [many.index.subarray(at, at + bytes), (given) => [...unpackBlock(given, 0)]],
  ];
  const change = fc.record({
    input: fc.constantFrom(...inputs),
    at: fc.nat(),
    byte: fc.nat({ max: 255 }),
    cut: fc.nat(),
    doesCut: fc.boolean(),
  });
  fc.assert(
    fc.property(change, ({ input: [good, decode], at, byte, cut, doesCut }) => {
      const given = good.slice(0, doesCut ? cut % good.length : good.length);
      if (given.length > 0) given[at % given.length] = byte;
      try {
        decode(given);
      } catch (error) {
        expect(error).toBeInstanceOf(CodecError);
      }
    }),
    { numRuns: 400 },
  );
  expect(() => decodeDirectory(directoryBytes(many).subarray(0, -1))).toThrow(CodecError);
  expect(() => decodeDirectory(new Uint8Array([...directoryBytes(many), 0]))).toThrow("1 bytes follow it");
});
