import { expect, test } from "bun:test";
import { asIndex } from "#core/base";
import { blobKey, MemoryLogStore, recordsOfSegments, type SegmentEntry, sealSegment } from "#store";
import { namespaceIn, storageUse } from "../../cmd/cold/storage-use.ts";
import { event, RecordWriter, fixtureShard as shard } from "../../store/event-fixture.ts";
import { cluster, SealedShard } from "./sealed-shard.ts";

test("a partition's namespace is what its run's name begins with", () => {
  expect(["run/a:b", "run/a-b:c:d", "run/", "channel/a:b", "", "run/x"].map(namespaceIn)).toEqual(["a", "a-b", "", "", "", ""]);
});

test("events are counted by namespace, sizes are divided where a segment has several, and what nobody names is told", async () => {
  const log = new MemoryLogStore();
  const writer = new RecordWriter(log);
  const sealed = new SealedShard();
  const signals = async (count: number, ...partitions: string[]) => {
    for (let i = 0; i < count; i++) writer.record(...partitions.map((partition) => event.signal(partition, 50)));
    await writer.settle();
    return sealed.seal(log, shard, writer.index, 1 << 20);
  };
  await signals(10, "run/a:1", "run/a:2");
  await signals(5, "run/b:1", "run/a:1", "run/b:2", "run/c:1");
  const { manifest } = await signals(3, "timer/x");
  const { objects } = sealed.cold;
  await objects.put(blobKey(cluster, new Uint8Array(32)), new Uint8Array(7));
  const unnamed = `${cluster}/records/s0000000001-${"0".repeat(16)}-${"0".repeat(15)}9-0123456789abcdef.log`;
  await objects.put(unnamed, new Uint8Array(5));
  const use = await storageUse({ objects, cluster } as never, [manifest]);
  const byName = use.namespaces.toSorted((a, b) => (a.namespace < b.namespace ? -1 : 1));
  expect(byName.map(({ namespace, events, segments }) => [namespace, events, segments])).toEqual([
    ["", 3, 1],
    ["a", 25, 2],
    ["b", 10, 1],
    ["c", 5, 1],
  ]);
  const sizes = manifest.segments.map(({ summary }) => summary.segmentBytes + summary.indexBytes);
  expect(use.segments).toEqual({ count: 6, bytes: sizes.reduce((sum, each) => sum + each, 0) });
  const divided = use.namespaces.reduce((sum, { bytes }) => sum + bytes, 0);
  expect(Math.abs(divided - use.segments.bytes)).toBeLessThan(4);
  expect(use.namespaces.find(({ namespace }) => namespace === "c")?.bytes).toBe(Math.round((sizes[1] as number) / 4));
  expect([use.blobs, use.unnamed]).toEqual([
    { count: 1, bytes: 7 },
    { count: 1, bytes: 5 },
  ]);
  expect(manifest.through).toBe(asIndex(18));
});

test("what retention took away is counted from what histories lack, where it is asked for", async () => {
  const log = new MemoryLogStore();
  const writer = new RecordWriter(log);
  const sealed = new SealedShard();
  for (let i = 0; i < 6; i++) writer.record(event.signal("run/a:1"), event.signal("run/b:1"), event.signal("run/a:1"));
  writer.record(event.expired("run/a:1"));
  await writer.settle();
  const { manifest } = await sealed.seal(log, shard, writer.index, 1 << 20);
  const [entry] = manifest.segments as [SegmentEntry];
  const parts = [{ summary: entry.summary, reader: sealed.cold.tier.reader(entry) }];
  const records = recordsOfSegments(parts, { expiredEnd: (partition) => (partition === "run/a:1" ? 12 : 0), removed: () => {} });
  const less = await sealed.put(await sealSegment(records, { ...entry.summary, mayLack: true }));
  const count = async (segments: readonly SegmentEntry[], countsExpired: boolean) => {
    const use = await storageUse({ objects: sealed.cold.objects, cluster } as never, [{ ...manifest, segments }], { countsExpired });
    return use.namespaces.map(({ namespace, events, expired }) => `${namespace} ${events} ${expired ?? "not counted"}`).sort();
  };
  expect(await count([entry], true)).toEqual(["a 13 0", "b 6 0"]);
  expect(await count([less], true)).toEqual(["a 1 12", "b 6 0"]);
  expect(await count([less], false)).toEqual(["a 1 not counted", "b 6 not counted"]);
});
