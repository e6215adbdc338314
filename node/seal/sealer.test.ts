/** What a manifest says of a shard's states and of the records that lead on from them, and what a seal asks of object storage. */
import { afterAll, expect, test } from "bun:test";
import fs from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { asIndex, wholeRange } from "#core/base";
import { encodeShardHeader, type ShardHeader, type ShardSealed, toBytes } from "#proto";
import {
  CheckpointStore,
  MemoryBucket,
  MemoryLogStore,
  MemoryObjectStore,
  manifestKey,
  manifestPrefix,
  type ObjectFaults,
  sealInPlace,
} from "#store";
import { RecordWriter, fixtureShard as shard, writeLife } from "../../store/event-fixture.ts";
import { bunHasher, digest } from "../../tests/hashers.ts";
import { realTiming } from "../timing.ts";
import { BlobUploads } from "./blob-uploads.ts";
import { HotTails } from "./hot-tails.ts";
import { sealPolicyDefault } from "./seal-policy.ts";
import { type SealableShard, Sealer } from "./sealer.ts";
import { openColdStore } from "./sealing.ts";

const cluster = "hop_00000000000000ee";
const dir = fs.mkdtempSync(join(tmpdir(), "hop-sealer-"));
afterAll(() => fs.rmSync(dir, { recursive: true }));

/** A shard that is led here, with a sealer over a bucket; `faults` sees each request of it. */
class Town {
  readonly log = new MemoryLogStore();
  readonly writer = new RecordWriter(this.log);
  readonly bucket = new MemoryBucket();
  readonly cold = openColdStore(new MemoryObjectStore(this.bucket), cluster, bunHasher);
  readonly checkpoint: CheckpointStore;
  readonly header = {
    ...wholeRange,
    epoch: 1,
    ancestor: [],
    sealedThrough: 0,
    manifest: 0,
    manifestSha256: new Uint8Array(0),
    changedIndex: 0,
  };
  private readonly sealer: Sealer;
  private lives = 0;

  constructor(name: string, faults: ObjectFaults = () => undefined) {
    const { log } = this;
    this.checkpoint = CheckpointStore.open({
      path: join(dir, `${name}.db`),
      logId: "log",
      warn: () => {},
      durableIndex: () => asIndex(1e6),
      isRemoved: () => false,
    });
    // All blobs that the events name are there.
    const uploaded = new MemoryObjectStore();
    uploaded.head = async () => ({ bytes: 1, sha256: undefined });
    uploaded.download = async () => 1;
    this.sealer = new Sealer({
      ...openColdStore(new MemoryObjectStore(this.bucket, { faults }), cluster, bunHasher),
      node: 1,
      statesWanted: new Set(),
      cluster,
      restoreEpoch: 1,
      policy: sealPolicyDefault,
      bytesOf: () => 0,
      tails: new HotTails(1e9),
      log,
      states: { log, checkpoint: this.checkpoint, hasher: bunHasher },
      hasher: bunHasher,
      timing: realTiming,
      note: () => {},
      work: sealInPlace,
      blobs: new BlobUploads({ cluster, objects: uploaded, blob: () => Promise.reject(new Error("no blob is read")) }),
      shards: () => [],
      relatives: () => [],
      isRetired: () => false,
      isReady: () => true,
    });
  }

  save(appliedIndex: number): void {
    this.checkpoint.save([], {
      shard,
      appliedIndex,
      term: 1,
      clockMs: 0,
      conf: new Uint8Array(0),
      header: toBytes(encodeShardHeader, { first: wholeRange.first, last: wholeRange.last }),
    });
  }

  seal(through = this.writer.index) {
    return this.sealer.seal({ ...this.led(), through });
  }

  async live(): Promise<void> {
    writeLife(this.writer, this.lives++, 20);
    await this.writer.settle();
  }

  private led(): SealableShard {
    const { header } = this;
    return {
      shard,
      range: wholeRange,
      epoch: 1,
      clockMs: 0,
      through: this.writer.index,
      header: () => header as unknown as ShardHeader,
      record: ({ through, manifest, sha256 }: ShardSealed) => {
        Object.assign(header, { sealedThrough: through, manifest, manifestSha256: sha256 });
        return undefined;
      },
    };
  }
}

test("records behind a new checkpoint stay in the manifest where it ends before what was sealed already", async () => {
  const town = new Town("behind");
  const { writer, header } = town;
  await town.live();
  town.save(3);
  expect(await town.seal()).toMatchObject({ manifest: 1, through: writer.index });
  const sealed = writer.index;
  await town.live();
  // The shard's range changed: its states are wanted anew, and were saved last before the end of what is sealed.
  header.changedIndex = 4;
  town.save(6);
  expect(6).toBeLessThan(sealed);
  expect(await town.seal()).toMatchObject({ manifest: 2, through: writer.index });
  // Whoever reads it checks that the records follow each other from the checkpoint on.
  const newest = await town.cold.manifests.newest(shard);
  expect(newest?.manifest.checkpoint?.appliedIndex).toBe(asIndex(6));
  const { records = [] } = newest?.manifest ?? {};
  expect([(records[0]?.first ?? 0) <= 7, records.at(-1)?.last]).toEqual([true, writer.index]);
  town.checkpoint.close();
});

test("what states have that were saved while the log was read is sealed with them", async () => {
  const town = new Town("ahead");
  const { writer } = town;
  await town.live();
  const seen = writer.index;
  await town.live();
  town.save(writer.index);
  expect(await town.seal(seen)).toMatchObject({ manifest: 1, through: writer.index });
  town.checkpoint.close();
});

test("a seal lists nothing where this node knows a manifest, and asks for the next number anew each time", async () => {
  const asked: string[] = [];
  const town = new Town("asked", ({ verb, key }) => {
    if (key.startsWith(manifestPrefix(cluster, shard)))
      asked.push(`${verb} ${key === manifestPrefix(cluster, shard) ? "" : key.slice(-8, -5)}`);
    return undefined;
  });
  await town.live();
  town.save(3);
  await town.seal();
  expect(asked).toEqual(["list ", "get 001", "put 001"]);
  for (const number of [2, 3]) {
    asked.length = 0;
    await town.live();
    expect(await town.seal()).toMatchObject({ manifest: number });
    expect(asked).toEqual([`get 00${number}`, `head 00${number - 1}`, `put 00${number}`]);
  }
  town.checkpoint.close();
});

const overwritten = "Manifest 2 of shard 1 at memory: is gone, or is another one";
const meddling: Readonly<Record<string, readonly [(town: Town) => void | Promise<void>, string]>> = {
  "a higher restore epoch": [
    async ({ cold }) => {
      const stored = await cold.manifests.newest(shard);
      if (stored === undefined) throw new Error("nothing is sealed");
      const { manifest, sha256 } = stored;
      await cold.manifests.publish({ ...manifest, number: manifest.number + 1, previous: sha256, restoreEpoch: 2 });
    },
    "This cluster was rebuilt from memory: elsewhere (restore epoch 2)",
  ],
  "an older newest manifest": [({ bucket }) => bucket.remove(manifestKey(cluster, shard, 2), performance.now()), overwritten],
  "a manifest that was written over": [
    ({ bucket }) => {
      const key = manifestKey(cluster, shard, 2);
      const bytes = Buffer.from(
        Buffer.from(bucket.objects.get(key)?.bytes ?? [])
          .toString()
          .replace('"node": 1', '"node": 2'),
      );
      bucket.set(key, { bytes, sha256: digest(bytes) }, performance.now());
    },
    overwritten,
  ],
};

for (const [what, [meddle, refusal]] of Object.entries(meddling))
  test(`a seal sees ${what}, put there since this node's last one`, async () => {
    const town = new Town(what);
    await town.live();
    town.save(3);
    await town.seal();
    await town.live();
    await town.seal();
    await meddle(town);
    await town.live();
    await expect(town.seal()).rejects.toThrow(refusal);
    expect(town.header.manifest).toBe(2);
    town.checkpoint.close();
  });
