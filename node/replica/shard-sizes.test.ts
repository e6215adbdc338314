import { afterAll, expect, test } from "bun:test";
import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { asIndex, asShardId, HopError, type Key, type KeyRange, keyMax, type Partition, Prng, wholeRange } from "#core/base";
import { CheckpointStore } from "#store";
import { VirtualTiming } from "../cluster/virtual-timing-fixture.ts";
import { ShardSizes } from "./shard-sizes.ts";

const shard = asShardId(1);
const folder = mkdtempSync(join(tmpdir(), "hop-sizes-"));
afterAll(() => rmSync(folder, { recursive: true }));
let files = 0;

function storeOf(keys: readonly Key[], stateBytes = 10): CheckpointStore {
  const path = join(folder, `${++files}.db`);
  const store = CheckpointStore.open({ path, logId: "l", durableIndex: () => asIndex(1), isRemoved: () => false, warn: () => {} });
  const rows = keys.map((key, i) => {
    const state = new Uint8Array(stateBytes);
    return { partition: `run/n:${i}` as Partition, key, state, dueMs: Number.POSITIVE_INFINITY, index: 1 };
  });
  const none = new Uint8Array(0);
  store.save(rows, { shard, appliedIndex: 1, clockMs: 1, conf: none, header: none });
  return store;
}

function sizesOf(checkpoint: Pick<CheckpointStore, "sizeOf" | "keyAt">, range: { now: KeyRange | undefined } = { now: wholeRange }) {
  const timing = new VirtualTiming();
  const sizes = new ShardSizes({ checkpoint, timing, rangeOf: () => range.now });
  return { timing, sizes, size: () => sizes.of(shard) };
}

test("states are counted a few at a time, and halved by a key", () => {
  const prng = new Prng(1);
  for (const count of [0, 1, 2, 3, 255, 256, 257, 513, 2000]) {
    const keys = Array.from({ length: count }, () => 1 + prng.below(2 ** 30) * 2 ** 17);
    const { timing, size } = sizesOf(storeOf(keys));
    expect(size()).toBeUndefined();
    timing.pass(1000);
    const splitAt = keys.toSorted((a, b) => a - b)[Math.floor(count / 2)];
    expect(size()).toEqual({ partitions: count, bytes: count * 10, ...(splitAt === undefined ? {} : { splitAt }) });
  }
});

test("what shares a key is counted once, and is not halved", () => {
  const { timing, size } = sizesOf(storeOf(Array(600).fill(0)));
  size();
  timing.pass(1000);
  expect(size()).toEqual({ partitions: 600, bytes: 6000 });
});

test("between two slices everybody else has many times their time", () => {
  const store = storeOf(Array.from({ length: 1000 }, (_, i) => i));
  const { timing, size } = sizesOf({
    keyAt: (range, before) => store.keyAt(range, before),
    sizeOf: (range) => {
      timing.pass(2);
      return store.sizeOf(range);
    },
  });
  size();
  timing.pass(100);
  expect(size()).toBeUndefined();
  timing.pass(100);
  expect(size()?.partitions).toBe(1000);
});

test("a size is of the keys that the shard has now, and is counted again when it is old", () => {
  const range = { now: wholeRange as KeyRange | undefined };
  let keys: readonly Key[] = [1, 2, 3, keyMax];
  const within = ({ first, last }: KeyRange) => keys.filter((key) => key >= first && key <= last);
  const { timing, size } = sizesOf(
    { sizeOf: (of) => ({ partitions: within(of).length, bytes: 0 }), keyAt: (of, before) => within(of)[before] },
    range,
  );
  size();
  timing.pass(1);
  expect(size()?.partitions).toBe(4);
  keys = [...keys, 4];
  timing.pass(19_990);
  expect(size()?.partitions).toBe(4);
  timing.pass(10);
  size();
  timing.pass(1);
  expect(size()?.partitions).toBe(5);
  range.now = { first: 0, last: 2 };
  expect(size()).toBeUndefined();
  timing.pass(1);
  expect(size()?.partitions).toBe(2);
  range.now = undefined;
  expect(size()).toBeUndefined();
});

test("what can't be read is tried again when somebody asks, and what is not led any more is not read", () => {
  const store = storeOf(Array.from({ length: 1000 }, (_, i) => i));
  const range = { now: wholeRange as KeyRange | undefined };
  let isReadable = false;
  let asked = 0;
  const parts = {
    keyAt: (of: KeyRange, before: number) => {
      asked++;
      if (!isReadable) throw new HopError("STORE_UNAVAILABLE", "the disk can't be read");
      return store.keyAt(of, before);
    },
    sizeOf: (of: KeyRange) => store.sizeOf(of),
  };
  const { timing, size } = sizesOf(parts, range);
  size();
  timing.pass(10);
  isReadable = true;
  expect(size()).toBeUndefined();
  timing.pass(10);
  expect(size()?.partitions).toBe(1000);
  timing.pass(20_000);
  size();
  range.now = undefined;
  const before = asked;
  timing.pass(10);
  expect(asked).toBe(before);
});
