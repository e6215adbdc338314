/** Blobs on their way to object storage: which, when, how many at a time, and again after a restart. */
import { expect, test } from "bun:test";
import { asIndex, asShardId, asTerm, HopError, toHex } from "#core/base";
import { EventKind, encodeEvent, encodeRecord, encodeRunStarted, type ShardHeader, toBytes } from "#proto";
import { blobKey, MemoryBucket, MemoryLogStore, MemoryObjectStore } from "#store";
import { until } from "../../tests/until.ts";
import { realTiming } from "../timing.ts";
import { BlobUploader } from "./blob-uploader.ts";
import { BlobUploads } from "./blob-uploads.ts";
import type { SealableShard } from "./sealer.ts";

const cluster = "hop_00000000000000cc";
const shard = asShardId(1);
const hashOf = (data: Uint8Array) => Bun.SHA256.hash(data) as Uint8Array;
const dataOf = (i: number) => new TextEncoder().encode(`blob ${i}`);

/** A shard that is led by one node, its blobs, and object storage that outlives it. */
class Shore {
  readonly bucket = new MemoryBucket();
  readonly objects = new MemoryObjectStore(this.bucket);
  readonly log = new MemoryLogStore();
  readonly blobs = new Map<string, Uint8Array>();
  committed = 0;
  sealedThrough = 0;
  reads: string[] = [];
  reading = 0;
  readingMost = 0;
  private readonly uploaders: BlobUploader[] = [];

  /** An event that names the blob, which is there. */
  async append(data: Uint8Array): Promise<string> {
    const sha256 = hashOf(data);
    this.blobs.set(toHex(sha256), data);
    const payload = toBytes(encodeRunStarted, { input: { ref: { sha256, size: data.length } } });
    const event = toBytes(encodeEvent, { partition: "run/default:a", kind: EventKind.runStarted, payload });
    const index = asIndex(this.log.lastIndex(shard) + 1);
    this.log.append(shard, [{ index, term: asTerm(1), kind: "data", data: toBytes(encodeRecord, { event: [event] }) }]);
    this.log.kick(true);
    await until(() => this.log.durableIndex(shard) >= index);
    return toHex(sha256);
  }

  /** Of a node that begins to lead now: it remembers nothing. */
  lead(bundles: readonly Uint8Array[] = []): BlobUploads {
    const uploads = this.uploads();
    const header = () => ({ sealedThrough: this.sealedThrough }) as ShardHeader;
    const led = () => ({ shard, header, through: asIndex(this.committed) }) as SealableShard;
    const uploader = new BlobUploader({
      uploads,
      log: this.log,
      shards: () => [led()],
      bundles: () => bundles,
      isReady: () => true,
      timing: { ...realTiming, after: (ms, run) => realTiming.after(Math.min(ms, 20), run) },
      note: () => {},
    });
    uploader.start();
    this.uploaders.push(uploader);
    return uploads;
  }

  uploads(): BlobUploads {
    return new BlobUploads({ cluster, objects: this.objects, blob: (sha256) => this.read(toHex(sha256)) });
  }

  isStored(name: string): boolean {
    return this.bucket.objects.has(`${cluster}/blob/${name}`);
  }

  [Symbol.dispose](): void {
    for (const each of this.uploaders) each.stop();
  }

  private async read(name: string): Promise<Uint8Array> {
    this.reads.push(name);
    this.readingMost = Math.max(this.readingMost, ++this.reading);
    await new Promise((resolve) => setImmediate(resolve));
    this.reading--;
    const data = this.blobs.get(name);
    if (data === undefined) throw new HopError("STORE_UNAVAILABLE", `Cannot read blob ${name}: nobody answers`);
    return data;
  }
}

test("what a committed event names is uploaded without being sealed, and what is not committed is not", async () => {
  using shore = new Shore();
  const [first, second] = [await shore.append(dataOf(1)), await shore.append(dataOf(2))];
  shore.committed = 1;
  shore.lead();
  await until(() => shore.isStored(first));
  expect(shore.isStored(second)).toBe(false);
  shore.committed = 2;
  await until(() => shore.isStored(second));
  expect(shore.bucket.objects.get(`${cluster}/blob/${second}`)?.bytes).toEqual(dataOf(2));
});

test("whoever leads next goes on with what is missing, and reads no blob that is there", async () => {
  using shore = new Shore();
  const names: string[] = [];
  for (let i = 0; i < 6; i++) names.push(await shore.append(dataOf(i)));
  for (const [i, name] of names.entries()) if (i % 2 === 0) await shore.objects.put(`${cluster}/blob/${name}`, dataOf(i));
  shore.committed = 6;
  shore.sealedThrough = 1;
  const uploads = shore.lead();
  await until(() => uploads.uploadedCount === 3 && uploads.waitingCount === 0);
  expect(names.every((name) => shore.isStored(name))).toBe(true);
  expect(shore.reads.sort()).toEqual(names.filter((_, i) => i % 2 === 1).sort());
});

test("a blob that can't be read holds up no other, and is uploaded when it can be", async () => {
  using shore = new Shore();
  const names = [await shore.append(dataOf(1)), await shore.append(dataOf(2))] as const;
  shore.blobs.delete(names[0]);
  shore.committed = 2;
  shore.lead();
  await until(() => shore.isStored(names[1]));
  expect(shore.isStored(names[0])).toBe(false);
  shore.blobs.set(names[0], dataOf(1));
  await until(() => shore.isStored(names[0]));
});

test("deployed code is uploaded where placement is led", async () => {
  using shore = new Shore();
  const bundle = dataOf(7);
  shore.blobs.set(toHex(hashOf(bundle)), bundle);
  shore.lead([hashOf(bundle)]);
  await until(() => shore.isStored(toHex(hashOf(bundle))));
});

test("ensure() has a few blobs in memory at a time, and each once however many ask", async () => {
  using shore = new Shore();
  const names = Array.from({ length: 40 }, (_, i) => toHex(hashOf(dataOf(i))));
  for (const [i, name] of names.entries()) shore.blobs.set(name, dataOf(i));
  const uploads = shore.uploads();
  await Promise.all([uploads.ensure(names), uploads.ensure(names)]);
  expect(shore.reads.length).toBe(40);
  expect(shore.readingMost).toBeGreaterThan(1);
  expect(shore.readingMost).toBeLessThanOrEqual(4);
  await uploads.ensure(names);
  expect(shore.reads.length).toBe(40);
});

test("ensure() puts the right bytes where others lie under the blob's name, also where the store records no hash", async () => {
  using shore = new Shore();
  const name = await shore.append(dataOf(1));
  const key = blobKey(cluster, hashOf(dataOf(1)));
  for (const records of [true, false]) {
    await shore.objects.put(key, dataOf(2));
    const head = shore.objects.head.bind(shore.objects);
    if (!records) shore.objects.head = async (asked) => ({ bytes: (await head(asked))?.bytes ?? 0, sha256: undefined });
    await shore.uploads().ensure([name]);
    expect(shore.bucket.objects.get(key)?.bytes).toEqual(dataOf(1));
    const reads = shore.reads.length;
    await shore.uploads().ensure([name]);
    expect(shore.reads.length).toBe(reads);
  }
});
