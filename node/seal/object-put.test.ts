import { expect, test } from "bun:test";
import { MemoryBucket, MemoryObjectStore, type ObjectFaults } from "#store";
import { digest } from "../../tests/hashers.ts";
import { storeObject } from "./object-put.ts";

const bytes = new TextEncoder().encode("what the log forgets");
const object = { key: "a/b/c", bytes, sha256: digest(bytes) };
const over = (bucket: MemoryBucket, faults: ObjectFaults = () => undefined) =>
  new MemoryObjectStore(bucket, { faults, retry: { triesMax: 2, pauseMsMin: 1, pauseMsMax: 1, tryMs: 1000, bytesPerSecondMin: 1 } });

test("an object counts as stored when it reads back, and is stored once by all who put it", async () => {
  const bucket = new MemoryBucket();
  await Promise.all([storeObject(over(bucket), object), storeObject(over(bucket), object)]);
  expect(bucket.objects.get(object.key)?.bytes).toEqual(bytes);
});

test("what lies there damaged is written over with the right bytes", async () => {
  const bucket = new MemoryBucket();
  await storeObject(over(bucket), object);
  bucket.damage(object.key);
  await storeObject(over(bucket), object);
  expect(bucket.objects.get(object.key)?.bytes).toEqual(bytes);
});

test("an object that is stored wrong is not taken for stored", async () => {
  let rots = 1;
  const faults: ObjectFaults = ({ verb }) => (verb === "put" && rots-- > 0 ? { kind: "rotten" } : undefined);
  const bucket = new MemoryBucket();
  await storeObject(over(bucket, faults), object);
  expect(bucket.objects.get(object.key)?.bytes).toEqual(bytes);
  rots = Number.POSITIVE_INFINITY;
  const other = new TextEncoder().encode("another");
  await expect(storeObject(over(bucket, faults), { key: "a/b/d", bytes: other, sha256: digest(other) })).rejects.toThrow(
    "it reads back without the hash",
  );
});
