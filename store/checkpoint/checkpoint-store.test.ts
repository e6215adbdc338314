import { Database } from "bun:sqlite";
import { afterAll, beforeEach, expect, test } from "bun:test";
import fs from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { asIndex, asShardId, type KeyRange, keyMax, type Partition, wholeRange } from "#core/base";
import { encodeShardHeader, toBytes } from "#proto";
import { CorruptionError } from "../corruption-error.ts";
import type { CheckpointMeta, ShardRow, StateRow } from "./checkpoint-row.ts";
import { CheckpointStore } from "./checkpoint-store.ts";

const root = fs.mkdtempSync(join(tmpdir(), "hop-checkpoint-"));
const shard = asShardId(1);
let counter = 0;
let path = "";
let warnings: string[] = [];
beforeEach(() => {
  path = join(root, `${++counter}.db`);
  warnings = [];
});
afterAll(() => fs.rmSync(root, { recursive: true }));

const open = (options: { logId?: string; durable?: number; removed?: number[] } = {}) =>
  CheckpointStore.open({
    path,
    logId: options.logId ?? "log-a",
    durableIndex: () => asIndex(options.durable ?? 1000),
    isRemoved: (one) => options.removed?.includes(one) ?? false,
    warn: (message) => void warnings.push(message),
  });
const partitionOf = (name: string) => `run/${name}` as Partition;
const row = (name: string, dueMs: number, index = 1, key = 1): StateRow => ({
  partition: partitionOf(name),
  key,
  state: new TextEncoder().encode(`state of ${name} at ${index}`),
  dueMs,
  index,
});
const meta = (appliedIndex: number, of = shard, range: KeyRange = wholeRange): CheckpointMeta => ({
  shard: of,
  appliedIndex,
  term: 3,
  clockMs: 1_700_000_000_000,
  conf: new Uint8Array([1, 2]),
  header: toBytes(encodeShardHeader, range),
  headerIndex: appliedIndex,
});
const loaded = (store: CheckpointStore, name: string) => {
  const saved = store.load(partitionOf(name));
  return saved && new TextDecoder().decode(saved.state);
};

test("states and meta come back after closing, the newest of each partition", () => {
  let store = open();
  expect([store.meta(shard), store.count(), loaded(store, "a:1")]).toEqual([undefined, 0, undefined]);
  store.save([row("a:1", Number.POSITIVE_INFINITY), row("a:'; --\u{1f600}", 5)], meta(1));
  store.save([row("a:1", 7, 2)], meta(2));
  store.close();
  store = open();
  expect([store.meta(shard), store.count()]).toEqual([meta(2), 2]);
  expect([loaded(store, "a:1"), loaded(store, "a:'; --\u{1f600}")]).toEqual(["state of a:1 at 2", "state of a:'; --\u{1f600} at 1"]);
  expect(warnings).toEqual([]);
  store.close();
});

test("dueBefore() gives the earliest first, without those that are never due", () => {
  const store = open();
  const hundredYears = Date.UTC(2126, 0);
  store.save([row("late", hundredYears), row("never", Number.POSITIVE_INFINITY), row("now", 0), row("soon", 100)], meta(4));
  const names = (beforeMs: number, limit = 10) => store.dueBefore(beforeMs, limit, wholeRange).map((name) => name.slice(4));
  expect([names(0), names(100), names(101), names(Number.MAX_SAFE_INTEGER), names(101, 1)]).toEqual([
    [],
    ["now"],
    ["now", "soon"],
    ["now", "soon", "late"],
    ["now"],
  ]);
  expect(store.dueBefore(101, Number.MAX_SAFE_INTEGER, wholeRange)).toHaveLength(2);
  store.close();
});

test("what is saved is made durable beside everything else, by its journal alone", async () => {
  const store = open();
  const synced = () => new Promise<boolean>((resolve) => store.syncAside(resolve));
  store.save([row("a", 1)], meta(1));
  const sizeBefore = fs.statSync(path).size;
  let isDone = false;
  const syncing = synced().finally(() => {
    isDone = true;
  });
  expect(isDone).toBe(false);
  store.save([row("b", 1)], meta(2));
  expect(await syncing).toBe(true);
  // The database is not written: a copy of the two files is what a loss of power leaves.
  expect(fs.statSync(path).size).toBe(sizeBefore);
  const copy = join(root, `${++counter}.db`);
  for (const end of ["", "-wal"]) fs.copyFileSync(path + end, copy + end);
  path = copy;
  const after = open();
  expect([loaded(after, "a"), after.meta(shard)?.appliedIndex]).toEqual(["state of a at 1", 2]);
  after.close();
  store.close();
  const folder = fs.mkdtempSync(join(root, "gone-"));
  path = join(folder, "c.db");
  const lost = open();
  fs.rmSync(folder, { recursive: true });
  expect(await new Promise((resolve) => lost.syncAside(resolve))).toBe(false);
  lost.close();
});

test("a save that fails saves nothing", () => {
  const store = open();
  store.save([row("a", 1)], meta(1));
  const broken = { ...row("b", 1), state: null as unknown as Uint8Array };
  expect(() => store.save([row("a", 1, 2), broken], meta(2))).toThrow();
  expect([loaded(store, "a"), store.meta(shard)?.appliedIndex]).toEqual(["state of a at 1", 1]);
  store.close();
});

test("a file that is no database, of another format or of another log is set aside, and said so", () => {
  const fresh = () => {
    const store = open();
    store.save([row("a", 1)], meta(50));
    store.close();
  };
  const spoil: Record<string, () => CheckpointStore> = {
    "can't be read": () => {
      fs.writeFileSync(path, "no database at all, but long enough to be looked at".repeat(100));
      return open();
    },
    "has format 99": () => {
      const database = new Database(path);
      database.run("PRAGMA user_version = 99");
      database.close();
      return open();
    },
    "belongs to log log-a, not to log-b": () => open({ logId: "log-b" }),
  };
  for (const [reason, act] of Object.entries(spoil)) {
    fs.rmSync(path, { force: true });
    fresh();
    const store = act();
    expect([warnings.at(-1)?.includes(reason), store.count(), store.meta(shard)]).toEqual([true, 0, undefined]);
    expect(fs.existsSync(`${path}.set-aside`)).toBe(true);
    store.close();
  }
});

test("a flipped bit in a state is found when it is loaded, and the file is set aside at the next opening", () => {
  let store = open();
  store.save([row("a", 1), row("b", 1)], meta(1));
  store.close();
  const bytes = fs.readFileSync(path);
  const at = bytes.indexOf("state of b");
  bytes[at] = (bytes[at] as number) ^ 1;
  fs.writeFileSync(path, bytes);
  store = open();
  expect(loaded(store, "a")).toBe("state of a at 1");
  expect(() => loaded(store, "b")).toThrow(CorruptionError);
  store.close();
  store = open();
  expect([store.count(), warnings.length]).toEqual([0, 1]);
  store.close();
  const kept = fs
    .readdirSync(root)
    .filter((name) => name.startsWith(`${counter}.db`))
    .sort();
  for (let i = 0; i < 20; i++) open({ logId: `log-${i}` }).close();
  expect(
    fs
      .readdirSync(root)
      .filter((name) => name.startsWith(`${counter}.db`))
      .sort(),
  ).toEqual(kept);
});

const other = asShardId(2);
const left = { first: 0, last: 499 };
const right = { first: 500, last: keyMax };

test("shards own rows by their keys: timers and deletions keep to a range, and a row says who saved it", () => {
  const store = open();
  store.save([row("a", 5, 1, 499), row("b", 6, 1, 500)], meta(1));
  const reader = store.reader();
  expect([reader.dueBefore(10, 9, right), store.dueBefore(10, 9, left)]).toEqual([[partitionOf("b")], [partitionOf("a")]]);
  expect(reader.load(partitionOf("b"))?.shard).toBe(shard);
  store.save([row("b", 7, 3, 500)], meta(3, other));
  expect([reader.load(partitionOf("b"))?.shard, store.meta(shard), store.meta(other)]).toEqual([other, meta(1), meta(3, other)]);
  store.deleteRange(right);
  store.removeMeta(other);
  expect([loaded(store, "a"), loaded(store, "b"), store.meta(other)]).toEqual(["state of a at 1", undefined, undefined]);
  store.close();
});

test("a shard that is ahead of its log is dropped with all states of its keys, and only that one; rows of a removed one stay", () => {
  const middle = { first: 500, last: 649 };
  const removed = asShardId(3);
  let store = open();
  store.save([row("a", 1, 4, 10), row("saved before its keys were another's", 1, 4, 620)], meta(4, shard, left));
  store.save([row("b", 1, 90, 600), row("its keys went to the first one", 1, 3, 20)], meta(90, other, middle));
  store.save([row("c", 1, 80, 700)], meta(80, removed, { first: 650, last: keyMax }));
  store.close();
  store = open({ durable: 79, removed: [3] });
  expect([loaded(store, "a"), loaded(store, "its keys went to the first one")]).toEqual([
    "state of a at 4",
    "state of its keys went to the first one at 3",
  ]);
  expect([loaded(store, "b"), loaded(store, "saved before its keys were another's")]).toEqual([undefined, undefined]);
  expect(loaded(store, "c")).toBe("state of c at 80");
  expect([store.meta(shard), store.meta(other), store.meta(removed)]).toEqual([meta(4, shard, left), undefined, undefined]);
  expect(warnings).toEqual(["The checkpoint of shard 2 was dropped: it is at index 90, and the log ends at 79"]);
  store.close();
});

function exported(store: CheckpointStore, range: typeof left, bytesMax: number): ShardRow[][] {
  const view = store.exportRange(shard, range);
  try {
    return [...view.batches(bytesMax)];
  } finally {
    view.close();
  }
}

test("an export has all rows of its range as of when it began, in batches, whatever is saved meanwhile", () => {
  for (const where of [path, ":memory:"]) {
    path = where;
    const store = open();
    const names = Array.from({ length: 1000 }, (_, i) => `n${i}`);
    store.save(
      names.map((name, i) => row(name, i % 3 === 0 ? Number.POSITIVE_INFINITY : i, i, Math.floor(i / 7) * 7)),
      meta(1000),
    );
    const view = store.exportRange(shard, left);
    const batches = view.batches(2000);
    const first = batches.next().value as ShardRow[];
    store.save([row("n1", 0, 5000, 0), row("n400", 0, 5000, 399)], meta(5000));
    store.deleteRange({ first: 300, last: 450 });
    const rows = [...first, ...[...batches].flat()];
    expect(view.meta).toEqual(meta(1000));
    view.close();
    const wanted = names.flatMap((name, i) => (Math.floor(i / 7) * 7 <= 499 ? [`${name} ${i}`] : []));
    expect(rows.map((one) => `${one.partition.slice(4)} ${one.index}`).sort()).toEqual(wanted.sort());
    expect(rows.map((one) => one.key)).toEqual(rows.map((one) => one.key).sort((a, b) => a - b));
    expect(rows.every((one) => new TextDecoder().decode(one.state) === `state of ${one.partition.slice(4)} at ${one.index}`)).toBe(true);
    const sizes = exported(store, wholeRange, 500).map((batch) => batch.reduce((sum, one) => sum + one.state.length, 0));
    expect(Math.max(...sizes)).toBeLessThanOrEqual(500);
    expect(exported(store, wholeRange, 1).every((batch) => batch.length === 1)).toBe(true);
    store.close();
  }
});

test("an import takes the place of its range when it is whole, and changes nothing before", () => {
  const source = open();
  source.save([row("old", 1, 1, 400), row("x", 1, 1, 450), row("y", 1, 1, 451)], meta(1));
  source.save([row("x", Number.POSITIVE_INFINITY, 7, 450), row("z", 3, 8, 600)], meta(8, other));
  const batches = exported(source, { first: 420, last: keyMax }, 1);
  source.close();
  path = join(root, `${++counter}.db`);
  let store = open();
  store.save([row("stale", 1, 1, 430), row("far", 1, 1, 100)], meta(2));
  for (const batch of batches) store.importRows(other, batch);
  store.importRows(asShardId(9), [{ ...row("elsewhere", 1), shard }]);
  const before = [store.count(), loaded(store, "stale"), loaded(store, "x"), store.meta(other)];
  expect(before).toEqual([2, "state of stale at 1", undefined, undefined]);
  store.close();
  // A crash between: what was put aside is still there, and still counts for nothing.
  store = open();
  expect([store.count(), loaded(store, "x")]).toEqual([2, undefined]);
  store.finishImport({ first: 420, last: keyMax }, meta(8, other));
  expect([loaded(store, "stale"), loaded(store, "far")]).toEqual([undefined, "state of far at 1"]);
  expect(["x", "y", "z"].map((name) => store.load(partitionOf(name))?.shard)).toEqual([other, shard, other]);
  expect(store.dueBefore(10, 10, wholeRange)).toEqual(["far", "y", "z"].map(partitionOf));
  expect(store.meta(other)).toEqual(meta(8, other));
  store.importRows(other, batches[0] as ShardRow[]);
  store.dropImport(other);
  store.finishImport(right, meta(9, other));
  expect([loaded(store, "z"), loaded(store, "x")]).toEqual([undefined, "state of x at 7"]);
  store.close();
});

test("a flipped bit in a shard's place, or in a state that is exported, is found", () => {
  for (const [text, act] of [
    ["conf of the shard", (store: CheckpointStore) => store.meta(shard)],
    ["state of b", (store: CheckpointStore) => exported(store, wholeRange, 1000)],
  ] as const) {
    path = join(root, `${++counter}.db`);
    const store = open();
    store.save([row("a", 1), row("b", 1)], { ...meta(1), conf: new TextEncoder().encode("conf of the shard") });
    store.close();
    const bytes = fs.readFileSync(path);
    const at = bytes.indexOf(text);
    bytes[at] = (bytes[at] as number) ^ 1;
    fs.writeFileSync(path, bytes);
    const opened = open();
    expect(() => act(opened)).toThrow(CorruptionError);
    opened.close();
  }
});
