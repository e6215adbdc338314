/** Logs that nobody leads any more: sealed to their end once, and released where they are archive. */
import { expect, test } from "bun:test";
import { asIndex, asShardId, type Index, wholeRange } from "#core/base";
import { MemoryLogStore, sealInPlace } from "#store";
import { ArchiveKeeper, type ArchiveParts } from "../../node/seal/archive-keeper.ts";
import { BlobUploads } from "../../node/seal/blob-uploads.ts";
import { realTiming } from "../../node/timing.ts";
import { event, RecordWriter } from "../../store/event-fixture.ts";
import { until } from "../until.ts";
import { cluster, SealedShard } from "./sealed-shard.ts";

const gone = asShardId(2);
const left = asShardId(1);
const end = 30;

/** A node that has the log of the shard that is gone as archive. */
async function node(sealed: SealedShard, parts: Partial<ArchiveParts> = {}) {
  const log = new MemoryLogStore();
  const writer = new RecordWriter(log, gone);
  for (let i = 0; i < end + 5; i++) writer.record(event.signal(`run/a:${i % 3}`, 100));
  await writer.settle();
  log.remove(gone);
  await settled(log);
  const notes: string[] = [];
  const keeper = new ArchiveKeeper({
    ...sealed.cold,
    cluster,
    blobs: new BlobUploads({ cluster, objects: sealed.cold.objects, blob: () => Promise.reject(new Error("there are no blobs")) }),
    node: 1,
    restoreEpoch: 1,
    bytesMax: 1000,
    lookMs: 1000,
    log,
    timing: { monotonicMs: () => 0, wallMs: () => 0, after: (ms, run) => realTiming.after(ms, run) },
    note: (_, what, fields) => void notes.push(`${what} ${fields?.reason ?? ""}`.trim()),
    work: sealInPlace,
    isReady: () => true,
    owners: () => [{ shard: left, range: wholeRange, epoch: 3, clockMs: 0, ancestors: [gone] }],
    hasReplica: () => false,
    retired: (shard) => (shard === gone ? { shard: gone, into: left, through: asIndex(end), version: 1 } : undefined),
    readThrough: () => asIndex(Number.MAX_SAFE_INTEGER),
    ...parts,
  });
  return { log, keeper, notes };
}

async function settled(log: MemoryLogStore): Promise<void> {
  log.kick(true);
  await until(() => log.durablePosition() === log.position(), { what: "the log to be durable" });
}

async function archiveOf(log: MemoryLogStore): Promise<Index[]> {
  const found: Index[] = [];
  for await (const { index } of log.scan(gone, asIndex(1))) found.push(index);
  return found;
}

test("of two that seal a log to its end one does, and both release their archive of it", async () => {
  const sealed = new SealedShard();
  const [a, b] = await Promise.all([node(sealed), node(new SealedShard(sealed.bucket), { node: 2 })]);
  await sealed.seal(a.log, gone, asIndex(12));
  await Promise.all([a.keeper.round(), b.keeper.round()]);
  await Promise.all([a.keeper.round(), b.keeper.round()]);
  const newest = await sealed.cold.manifests.newest(gone);
  expect(newest?.manifest).toMatchObject({ number: 2, through: end, checkpoint: undefined, records: [], writer: { epoch: 3 } });
  expect(newest?.manifest.segments.length).toBeGreaterThan(3);
  expect([...a.notes, ...b.notes]).toEqual(["sealed to its end"]);
  for (const { log } of [a, b]) {
    await settled(log);
    // What lies behind its end was never committed, and is no part of what was taken in.
    expect([log.released(gone), (await archiveOf(log))[0]]).toEqual([asIndex(end), asIndex(end + 1)]);
  }
});

test("a log that never sealed anything is sealed from its beginning", async () => {
  const sealed = new SealedShard();
  const { keeper } = await node(sealed);
  await keeper.round();
  const newest = await sealed.cold.manifests.newest(gone);
  expect([newest?.manifest.number, newest?.manifest.segments[0]?.summary.firstIndex]).toEqual([1, asIndex(1)]);
});

test("nothing is sealed or released while a replica here has the log, nor beyond what others have read of it", async () => {
  const sealed = new SealedShard();
  const held = await node(sealed, { hasReplica: () => true });
  await held.keeper.round();
  expect([await sealed.cold.manifests.newest(gone), held.log.released(gone)]).toEqual([undefined, asIndex(0)]);
  const read = await node(sealed, { readThrough: () => asIndex(7) });
  await read.keeper.round();
  expect(read.log.released(gone)).toBe(asIndex(7));
});

test("states that only the shard itself has uploaded are not given up", async () => {
  const sealed = new SealedShard();
  const { keeper, log } = await node(sealed);
  const before = await sealed.seal(log, gone, asIndex(12));
  const sha256 = new Uint8Array(32);
  const states = { appliedIndex: asIndex(12), range: { first: 5, last: 9 }, parts: [{ key: "c", bytes: 1, sha256 }] };
  const { manifests } = sealed.cold;
  await manifests.publish({ ...before.manifest, number: 2, previous: before.sha256, checkpoint: states });
  await keeper.round();
  const closed = (await manifests.newest(gone))?.manifest;
  expect(closed).toMatchObject({ number: 3, through: end, checkpoint: states });
  expect([closed?.records[0]?.first, closed?.records.at(-1)?.last]).toEqual([asIndex(13), asIndex(end)]);
});

test("states that the shard that took it in has uploaded as well go with the end of the log", async () => {
  const sealed = new SealedShard();
  const { keeper, log } = await node(sealed);
  const before = await sealed.seal(log, gone, asIndex(12));
  const sha256 = new Uint8Array(32);
  const states = { appliedIndex: asIndex(12), range: { first: 5, last: 9 }, parts: [{ key: "c", bytes: 1, sha256 }] };
  const { manifests } = sealed.cold;
  await manifests.publish({ ...before.manifest, number: 2, previous: before.sha256, checkpoint: states });
  const taken = { ...states, range: { first: 0, last: 9 } };
  await manifests.publish({
    ...before.manifest,
    shard: left,
    segments: [],
    through: asIndex(0),
    ancestors: [gone],
    checkpoint: { ...taken, appliedIndex: asIndex(0) },
  });
  await keeper.round();
  expect((await manifests.newest(gone))?.manifest).toMatchObject({ number: 3, through: end, checkpoint: undefined });
});
