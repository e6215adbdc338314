/** What a manifest says of a shard's states, and of the records that lead on from them. */
import { afterAll, expect, test } from "bun:test";
import fs from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { asIndex, wholeRange } from "#core/base";
import { encodeShardHeader, type ShardHeader, type ShardSealed, toBytes } from "#proto";
import { CheckpointStore, MemoryBucket, MemoryLogStore, MemoryObjectStore, sealSegment } from "#store";
import { RecordWriter, fixtureShard as shard, writeLife } from "../../store/event-fixture.ts";
import { bunHasher } from "../../tests/hashers.ts";
import { realTiming } from "../timing.ts";
import { BlobUploads } from "./blob-uploads.ts";
import { HotTails } from "./hot-tails.ts";
import { sealPolicyDefault } from "./seal-policy.ts";
import { type SealableShard, Sealer } from "./sealer.ts";
import { openColdStore } from "./sealing.ts";

const cluster = "hop_00000000000000ee";
const dir = fs.mkdtempSync(join(tmpdir(), "hop-sealer-"));
afterAll(() => fs.rmSync(dir, { recursive: true }));

test("records behind a new checkpoint stay in the manifest where it ends before what was sealed already", async () => {
  const log = new MemoryLogStore();
  const writer = new RecordWriter(log);
  const checkpoint = CheckpointStore.open({
    path: join(dir, "checkpoint.db"),
    logId: "log",
    warn: () => {},
    durableIndex: () => asIndex(1e6),
    isRemoved: () => false,
  });
  const objects = new MemoryObjectStore(new MemoryBucket());
  // All blobs that the events name are there.
  const uploaded = new MemoryObjectStore();
  uploaded.head = async () => ({ bytes: 1, sha256: undefined });
  uploaded.download = async () => 1;
  const cold = openColdStore(objects, cluster, bunHasher);
  const header = {
    ...wholeRange,
    epoch: 1,
    ancestor: [],
    sealedThrough: 0,
    manifest: 0,
    manifestSha256: new Uint8Array(0),
    changedIndex: 0,
  };
  const save = (appliedIndex: number) =>
    checkpoint.save([], {
      shard,
      appliedIndex,
      term: 1,
      clockMs: 0,
      conf: new Uint8Array(0),
      header: toBytes(encodeShardHeader, { first: wholeRange.first, last: wholeRange.last }),
    });
  const sealer = new Sealer({
    ...cold,
    node: 1,
    cluster,
    restoreEpoch: 1,
    policy: sealPolicyDefault,
    bytesOf: () => 0,
    tails: new HotTails(1e9),
    log,
    states: { log, checkpoint, hasher: bunHasher },
    hasher: bunHasher,
    timing: realTiming,
    note: () => {},
    seal: sealSegment,
    blobs: new BlobUploads({ cluster, objects: uploaded, blob: () => Promise.reject(new Error("no blob is read")) }),
    shards: () => [],
    relatives: () => [],
    isRetired: () => false,
    isReady: () => true,
  });
  const led = (): SealableShard => ({
    shard,
    range: wholeRange,
    epoch: 1,
    clockMs: 0,
    through: writer.index,
    header: () => header as unknown as ShardHeader,
    record: ({ through, manifest, sha256 }: ShardSealed) => {
      Object.assign(header, { sealedThrough: through, manifest, manifestSha256: sha256 });
      return undefined;
    },
  });
  const live = async (i: number) => {
    writeLife(writer, i, 20);
    await writer.settle();
  };
  await live(0);
  save(3);
  expect(await sealer.seal(led())).toMatchObject({ manifest: 1, through: writer.index });
  const sealed = writer.index;
  await live(1);
  // The shard's range changed: its states are wanted anew, and were saved last before the end of what is sealed.
  header.changedIndex = 4;
  save(6);
  expect(6).toBeLessThan(sealed);
  expect(await sealer.seal(led())).toMatchObject({ manifest: 2, through: writer.index });
  // Whoever reads it checks that the records follow each other from the checkpoint on.
  const newest = await openColdStore(objects, cluster, bunHasher).manifests.newest(shard);
  expect(newest?.manifest.checkpoint?.appliedIndex).toBe(asIndex(6));
  const { records = [] } = newest?.manifest ?? {};
  expect([(records[0]?.first ?? 0) <= 7, records.at(-1)?.last]).toEqual([true, writer.index]);
  checkpoint.close();
});
