/** Copies that make way on a disk that fills: which, how many, and never the only one. */
import { expect, test } from "bun:test";
import fs from "node:fs";
import { HopError } from "#core/base";
import { blobKey, MemoryObjectStore } from "#store";
import { realTiming } from "../timing.ts";
import { BlobCache } from "./blob-cache.ts";
import { BlobObjects } from "./blob-objects.ts";
import { bytesOf, Town } from "./blob-town-fixture.ts";

const cluster = "hop_00000000000000dd";
const hourMs = 3_600_000;

/** Ten blobs of 1,000 bytes, the later the newer, of which object storage has those at even places. */
async function filled(isOut: () => boolean = () => false, damaged = -1) {
  const objects = new MemoryObjectStore();
  const stored = new BlobObjects(objects, cluster);
  const town = new Town(1, 1, stored);
  const { store, dir } = town.node(1);
  const hashes: Uint8Array[] = [];
  for (let i = 0; i < 10; i++) {
    const data = bytesOf(i);
    const { sha256 } = await store.put(data);
    const at = new Date(Date.now() - hourMs * (11 - i));
    fs.utimesSync(town.node(1).pathOf(sha256), at, at);
    if (i % 2 === 0) await objects.put(blobKey(cluster, sha256), i === damaged ? bytesOf(99) : data);
    hashes.push(sha256);
  }
  let totalBytes = 10_500;
  const cache = new BlobCache({
    store,
    stored: {
      download: (sha256, take) =>
        isOut() ? Promise.reject(new HopError("STORE_UNAVAILABLE", "an outage")) : stored.download(sha256, take),
    },
    space: async () => {
      let bytes = 0;
      for await (const blob of store.kept()) bytes += blob.bytes;
      return { totalBytes, freeBytes: totalBytes - bytes };
    },
    timing: realTiming,
    note: () => {},
  });
  return {
    town,
    cache,
    hashes,
    dir,
    setSize: (bytes: number) => {
      totalBytes = bytes;
    },
    kept: async () => (await Promise.all(hashes.map((sha256) => store.has(sha256)))).flatMap((has, i) => (has ? [i] : [])),
  };
}

test("the oldest copies of uploaded blobs go until enough is free, and every blob is still read", async () => {
  const { town, cache, hashes, kept } = await filled();
  using _ = town;
  expect(await cache.look()).toBe(2000);
  expect(await kept()).toEqual([1, 3, 4, 5, 6, 7, 8, 9]);
  expect(await cache.look()).toBe(0);
  for (const [i, sha256] of hashes.entries()) expect(await town.node(1).blobs.get(sha256)).toEqual(bytesOf(i));
});

test("a disk with no space at all loses no copy that is the only one, nor one that was claimed just now", async () => {
  const { town, cache, hashes, setSize, kept } = await filled();
  using _ = town;
  setSize(9_000);
  await town.node(1).blobs.claim(hashes[4] as Uint8Array);
  expect(await cache.look()).toBe(4000 - 1000);
  expect(await kept()).toEqual([1, 3, 4, 5, 7, 8, 9]);
  setSize(6_000);
  await cache.look();
  expect(await kept()).toEqual([1, 3, 4, 5, 7, 9]);
});

test("a copy stays whose blob is damaged in object storage", async () => {
  const { town, cache, kept } = await filled(() => false, 0);
  using _ = town;
  expect(await cache.look()).toBe(2000);
  expect(await kept()).toEqual([0, 1, 3, 5, 6, 7, 8, 9]);
});

test("nothing goes while there is space, or object storage does not answer", async () => {
  let isOut = true;
  const { town, cache, setSize, kept } = await filled(() => isOut);
  using _ = town;
  expect(await cache.look().catch((error: HopError) => error.reason)).toBe("STORE_UNAVAILABLE" as never);
  isOut = false;
  setSize(12_000);
  expect(await cache.look()).toBe(0);
  expect(await kept()).toHaveLength(10);
});
