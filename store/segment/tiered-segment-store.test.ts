import { afterAll, expect, test } from "bun:test";
import fs from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { asIndex, asSeq, asShardId, asTerm, InvariantError, type Partition } from "#core/base";
import { event, fixtureShard, RecordWriter, writeLife } from "../event-fixture.ts";
import type { LogStore } from "../log/log-store.ts";
import { MemoryLogStore } from "../log/memory-log-store.ts";
import { WalLogStore } from "../log/wal-log-store.ts";
import { TieredSegmentStore } from "./tiered-segment-store.ts";

const root = fs.mkdtempSync(join(tmpdir(), "hop-segment-"));
afterAll(() => fs.rmSync(root, { recursive: true }));

async function history(log: LogStore, writer: RecordWriter, partition: string, firstSeq = 0, endSeq?: number): Promise<Uint8Array[][]> {
  const chain = writer.chains.get(partition);
  const range = {
    shard: fixtureShard,
    partition: partition as Partition,
    firstSeq: asSeq(firstSeq),
    endSeq: asSeq(endSeq ?? chain?.size ?? 0),
    lastIndex: asIndex(chain?.lastIndex ?? 0),
  };
  const out: Uint8Array[][] = [];
  for await (const chunk of new TieredSegmentStore(log).history(range)) out.push(chunk);
  return out;
}

const same = (got: Uint8Array[], want: Uint8Array[]) =>
  got.length === want.length && got.every((one, i) => Buffer.compare(one, want[i] as Uint8Array) === 0);

test("histories of many partitions come back byte for byte, over segments", async () => {
  const log = await WalLogStore.open({ dir: join(root, "many"), segmentBytes: 16_384, bufferBytes: 4096 });
  const writer = new RecordWriter(log);
  for (let seed = 0; seed < 6; seed++) {
    writeLife(writer, seed, 100);
    await writer.settle();
  }
  for (const [partition, events] of writer.written)
    expect([partition, same((await history(log, writer, partition)).flat(), events)]).toEqual([partition, true]);
  const [partition, events] = [...writer.written][0] as [string, Uint8Array[]];
  const lastOne = await history(log, writer, partition, events.length - 1);
  expect(same(lastOne.flat(), events.slice(-1))).toBe(true);
  expect(await history(log, writer, partition, 3, 3)).toEqual([]);
  await log.close();
});

test("part of a history begins and ends where it was asked to", async () => {
  const log = new MemoryLogStore();
  const writer = new RecordWriter(log);
  for (let i = 0; i < 10; i++) writer.record(event.signal("run/a:b"), event.signal("run/a:c"), event.signal("run/a:b"));
  await writer.settle();
  const events = writer.written.get("run/a:b") as Uint8Array[];
  for (const [first, end] of [
    [0, 20],
    [1, 20],
    [7, 19],
    [19, 20],
  ] as const) {
    expect([first, end, same((await history(log, writer, "run/a:b", first, end)).flat(), events.slice(first, end))]).toEqual([
      first,
      end,
      true,
    ]);
  }
});

test("a history of many megabytes comes in chunks of a megabyte at most", async () => {
  const log = await WalLogStore.open({ dir: join(root, "large"), segmentBytes: 4 << 20 });
  const writer = new RecordWriter(log);
  for (let i = 0; i < 100; i++) writer.record(event.signal("run/a:big", 60_000));
  writer.record(event.signal("run/a:big", 1_500_000));
  await writer.settle();
  const chunks = await history(log, writer, "run/a:big");
  expect(same(chunks.flat(), writer.written.get("run/a:big") as Uint8Array[])).toBe(true);
  const sizes = chunks.map((chunk) => chunk.reduce((sum, one) => sum + one.length, 0));
  expect(sizes.slice(0, -1).every((size) => size <= 1 << 20)).toBe(true);
  expect([chunks.length, chunks.at(-1)?.length]).toEqual([7, 1]);
  await log.close();
});

test("a range that the log does not hold is a broken invariant, not a shorter history", async () => {
  const log = new MemoryLogStore();
  const writer = new RecordWriter(log);
  writer.record(event.signal("run/a:b"));
  await writer.settle();
  await expect(history(log, writer, "run/a:b", 0, 2)).rejects.toBeInstanceOf(InvariantError);
});

test("runs that one record woke get each their own events, however many ask at once", async () => {
  const log = new MemoryLogStore();
  const writer = new RecordWriter(log);
  const names = Array.from({ length: 100 }, (_, i) => `run/a:${i}`);
  for (const name of names) writer.record(event.started(name, 1));
  for (let i = 0; i < 3; i++) writer.record(...names.flatMap((name) => [event.signal(name), event.signal(name)]));
  await writer.settle();
  const store = new TieredSegmentStore(log);
  const read = async (name: string) => {
    const { size, lastIndex } = writer.chains.get(name) as { size: number; lastIndex: number };
    const range = {
      shard: fixtureShard,
      partition: name as Partition,
      firstSeq: asSeq(0),
      endSeq: asSeq(size),
      lastIndex: asIndex(lastIndex),
    };
    const events: Uint8Array[] = [];
    for await (const chunk of store.history(range)) events.push(...chunk);
    return same(events, writer.written.get(name) as Uint8Array[]);
  };
  for (let round = 0; round < 2; round++) expect(await Promise.all(names.map(read))).toEqual(names.map(() => true));
});

test("a history goes back through the logs of the shards that had the partition, to and fro", async () => {
  for (const log of [
    new MemoryLogStore(),
    await WalLogStore.open({ dir: join(root, "shards"), segmentBytes: 16_384, bufferBytes: 4096 }),
  ]) {
    const [parent, child, heir] = [1, 2, 3].map((shard) => asShardId(shard)) as [
      typeof fixtureShard,
      typeof fixtureShard,
      typeof fixtureShard,
    ];
    const first = new RecordWriter(log, parent);
    const second = new RecordWriter(log, child, first.written);
    const third = new RecordWriter(log, heir, first.written);
    const names = ["run/a:b", "run/a:c", "run/a:d"];
    const grow = (writer: RecordWriter) => {
      for (let i = 0; i < 30; i++)
        writer.record(...[...writer.chains.keys()].flatMap((name) => [event.signal(name, 200), event.signal(name)]));
    };
    for (const name of names) first.record(event.started(name, 1));
    grow(first);
    first.hand(second, (name) => name !== "run/a:d");
    log.setBase(child, asIndex(1), asTerm(1));
    second.index = asIndex(1);
    grow(second);
    grow(first);
    second.hand(third, (name) => name === "run/a:b");
    log.setBase(heir, asIndex(1), asTerm(1));
    third.index = asIndex(1);
    grow(third);
    // The second ends: its log is archive, and its partitions go back to where they came from.
    second.hand(first, () => true);
    log.remove(child);
    grow(first);
    await first.settle();
    const store = new TieredSegmentStore(log);
    for (const [writer, name] of [
      [third, "run/a:b"],
      [first, "run/a:c"],
      [first, "run/a:d"],
    ] as const) {
      const { size, lastIndex, lastShard } = writer.chains.get(name) as { size: number; lastIndex: number; lastShard: number };
      expect(lastShard).toBe(0);
      const events: Uint8Array[] = [];
      const range = { shard: writer === third ? heir : parent, partition: name as Partition, firstSeq: asSeq(0), endSeq: asSeq(size) };
      for await (const chunk of store.history({ ...range, lastIndex: asIndex(lastIndex) })) events.push(...chunk);
      expect([name, same(events, first.written.get(name) as Uint8Array[])]).toEqual([name, true]);
    }
    await log.close();
  }
});
