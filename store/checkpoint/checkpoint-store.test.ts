import { Database } from "bun:sqlite";
import { afterAll, beforeEach, expect, test } from "bun:test";
import fs from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { asIndex, asShardId, type Partition } from "#core/base";
import { CorruptionError } from "../corruption-error.ts";
import { CheckpointStore, type StateRow } from "./checkpoint-store.ts";

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

const open = (options: { logId?: string; durable?: number } = {}) =>
  CheckpointStore.open({
    path,
    logId: options.logId ?? "log-a",
    durableIndex: () => asIndex(options.durable ?? 1000),
    warn: (message) => void warnings.push(message),
  });
const row = (name: string, dueMs: number, index = 1): StateRow => ({
  partition: `run/${name}` as Partition,
  state: new TextEncoder().encode(`state of ${name} at ${index}`),
  dueMs,
  index,
});
const meta = (appliedIndex: number) => ({ shard, appliedIndex, clockMs: 1_700_000_000_000 });
const loaded = (store: CheckpointStore, name: string) => {
  const state = store.load(`run/${name}` as Partition);
  return state && new TextDecoder().decode(state);
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
  const names = (beforeMs: number, limit = 10) => store.dueBefore(beforeMs, limit).map((name) => name.slice(4));
  expect([names(0), names(100), names(101), names(Number.MAX_SAFE_INTEGER), names(101, 1)]).toEqual([
    [],
    ["now"],
    ["now", "soon"],
    ["now", "soon", "late"],
    ["now"],
  ]);
  expect(store.dueBefore(101, Number.MAX_SAFE_INTEGER)).toHaveLength(2);
  store.close();
});

test("a save that fails saves nothing", () => {
  const store = open();
  store.save([row("a", 1)], meta(1));
  const broken = { ...row("b", 1), state: null as unknown as Uint8Array };
  expect(() => store.save([row("a", 1, 2), broken], meta(2))).toThrow();
  expect([loaded(store, "a"), store.meta(shard)?.appliedIndex]).toEqual(["state of a at 1", 1]);
  store.close();
});

test("a file that is no database, of another format, of another log or ahead of the log is set aside, and said so", () => {
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
    "is at index 50 of shard 1, and the log ends at 49": () => open({ durable: 49 }),
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
