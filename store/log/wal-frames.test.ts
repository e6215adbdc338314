/** Frames of many groups in one log on disk: cut anywhere, of newer and older versions, and many shards at once. */
import { afterAll, beforeEach, expect, test } from "bun:test";
import fs from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { crc32 } from "node:zlib";
import { asIndex, asShardId, asTerm, HopError, Prng } from "#core/base";
import { auditLog } from "./log-audit.ts";
import { checkReads, LogModel, prefixOf } from "./log-model.suite.ts";
import { append, commit, texts, until, untilDurable } from "./log-store.suite.ts";
import { FrameKind, frameBytes } from "./record-frame.ts";
import { headerBytes, segmentFormat } from "./segment-file.ts";
import { WalLogStore } from "./wal-log-store.ts";

const shard = asShardId(1);
const root = fs.mkdtempSync(join(tmpdir(), "hop-frames-"));
const sizes = { segmentBytes: 1 << 14, bufferBytes: 1024 };
let counter = 0;
let dir = "";
beforeEach(() => {
  dir = newDir();
});
afterAll(() => fs.rmSync(root, { recursive: true }));

const newDir = () => join(root, `${++counter}`);
const segment = (number: number, at = dir) => join(at, `wal-${String(number).padStart(10, "0")}.log`);
const image = (path: string) =>
  fs
    .readdirSync(path)
    .sort()
    .map((name) => [name, Bun.hash(fs.readFileSync(join(path, name)))]);

async function settle(log: WalLogStore): Promise<void> {
  log.kick(true);
  const reached = log.position();
  await until(() => log.durablePosition() >= reached);
}

test("the file cut at any byte holds a prefix of the frames", async () => {
  for (const [seed, stepBytes] of [
    [3, 3],
    [4, 11],
  ] as const) {
    dir = newDir();
    const log = await WalLogStore.open({ dir, ...sizes });
    const model = new LogModel(seed);
    for (let flush = 0; flush < 6; flush++) {
      for (let i = 0; i < 3; i++) model.step(log);
      await settle(log);
    }
    const bytes = fs.readFileSync(segment(1));
    await log.close();
    let end = bytes.length;
    while (bytes[end - 1] === 0) end--;
    const total = model.frames.length;
    const cut = newDir();
    let kept = 0;
    const lengths = Array.from({ length: Math.ceil((end - headerBytes) / stepBytes) }, (_, i) => headerBytes + i * stepBytes);
    for (const length of [...lengths, bytes.length]) {
      fs.rmSync(cut, { recursive: true, force: true });
      fs.mkdirSync(cut);
      fs.writeFileSync(segment(1, cut), bytes.subarray(0, length));
      const opened = await WalLogStore.open({ dir: cut, ...sizes });
      const now = prefixOf(opened, model, kept);
      expect(now).toBeGreaterThanOrEqual(kept);
      kept = now;
      await opened.close();
    }
    expect(kept).toBe(total);
  }
}, 60_000);

test("the audit yields each record that a read finds, once, and none that was overwritten", async () => {
  for (let seed = 1; seed <= 10; seed++) {
    dir = newDir();
    const log = await WalLogStore.open({ dir, segmentBytes: 4096, bufferBytes: 1024 });
    const model = new LogModel(seed);
    for (let flush = 0; flush < 30; flush++) {
      for (let i = 0; i < 5; i++) model.step(log);
      await settle(log);
    }
    await checkReads(log, model, new Prng(seed));
    const found: string[] = [];
    for (const number of [1, 2, 7]) {
      for (let index = 1; index < 50; index++) {
        const record = await log.read(asShardId(number), asIndex(index)).catch(() => undefined);
        if (record?.kind === "data") found.push(`${number}/${index} ${new TextDecoder().decode(record.body)}`);
      }
    }
    await log.close();
    const audited = [...auditLog(dir)].map((record) => `${record.shard}/${record.index} ${new TextDecoder().decode(record.body)}`);
    expect(audited.sort()).toEqual(found.sort());
  }
});

test("a kind of frame that this version does not know is refused by name, and nothing is changed", async () => {
  const log = await WalLogStore.open({ dir, ...sizes });
  await commit(log, 1, "one");
  await commit(log, 2, "two");
  const copy = newDir();
  fs.cpSync(dir, copy, { recursive: true });
  await log.close();
  const bytes = fs.readFileSync(segment(1, copy));
  const at = headerBytes + frameBytes + 8;
  bytes.writeUInt32LE(99, at + 20);
  bytes.writeUInt32LE(crc32(bytes.subarray(at + 8, at + frameBytes + 8), bytes.readUInt32LE(20)), at + 4);
  fs.writeFileSync(segment(1, copy), bytes);
  fs.writeFileSync(`${segment(2, copy)}.next`, "left over");
  const before = image(copy);
  const error = await WalLogStore.open({ dir: copy, ...sizes }).catch((e: unknown) => e);
  expect(error).toBeInstanceOf(HopError);
  expect((error as HopError).reason).toBe("STORE_UNAVAILABLE");
  expect((error as HopError).message).toContain(
    `${segment(1, copy)} has a record of kind 99 at byte ${at}, this version knows up to ${FrameKind.movedRetiredConfig}`,
  );
  expect(image(copy)).toEqual(before);
  expect(() => [...auditLog(copy)]).toThrow("kind 99");
});

test.each([1, 2])("a segment of format %d is read, and what is written goes into a new one", async (format) => {
  const log = await WalLogStore.open({ dir, ...sizes });
  for (let i = 1; i <= 3; i++) await commit(log, i, `old ${i}`);
  await log.close();
  const bytes = fs.readFileSync(segment(1));
  bytes.writeUInt32LE(format, 8);
  bytes.writeUInt32LE(crc32(bytes.subarray(0, 60)), 60);
  fs.writeFileSync(segment(1), bytes);
  // A sidecar as that format had it.
  fs.writeFileSync(segment(1).replace(".log", ".idx"), `IDX${String.fromCharCode(format)} and more of what it was`);
  let opened = await WalLogStore.open({ dir, ...sizes });
  expect(await texts(opened)).toEqual(["1/3 old 1", "2/3 old 2", "3/3 old 3"]);
  opened.setHardState(shard, { term: asTerm(4), vote: 1, commit: asIndex(3) });
  append(opened, 4, "new");
  opened.kick(true);
  await untilDurable(opened, () => opened.durableIndex(shard) === 4);
  expect(fs.readFileSync(segment(1)).equals(bytes)).toBe(true);
  expect(fs.readFileSync(segment(2)).readUInt32LE(8)).toBe(segmentFormat);
  await opened.close();
  opened = await WalLogStore.open({ dir, ...sizes });
  expect([opened.hardState(shard).term as number, (await texts(opened)).at(-1)]).toEqual([4, "4/3 new"]);
  await opened.close();
});

test("a log that is cut in the middle of a large segment reads on as it was written again", async () => {
  const log = await WalLogStore.open({ dir, segmentBytes: 1 << 21 });
  const body = (index: number, round: number) => `${index} round ${round} ${"x".repeat(6000)}`;
  const want: string[] = [];
  for (const [round, from] of [1, 25, 12, 38].entries()) {
    for (let i = from; i < from + 30; i++) {
      append(log, i, body(i, round));
      want[i - 1] = `${i}/3 ${body(i, round)}`;
    }
    want.length = from + 29;
    await settle(log);
    expect(await texts(log)).toEqual(want);
  }
  await log.close();
  fs.writeFileSync(`${segment(2)}.next`, "left over");
  const opened = await WalLogStore.open({ dir, segmentBytes: 1 << 21 });
  expect(fs.existsSync(`${segment(2)}.next`)).toBe(false);
  expect(await texts(opened, 20)).toEqual(want.slice(19));
  for (const index of [1, 11, 12, 37, 38, 67]) {
    expect(new TextDecoder().decode((await opened.read(shard, asIndex(index))).body)).toBe(
      want[index - 1]?.slice(`${index}/3 `.length) as string,
    );
  }
  await opened.close();
});

test("five hundred shards: opened from sidecars and without them, and a flush moves on those that it touches", async () => {
  const count = 500;
  const log = await WalLogStore.open({ dir, segmentBytes: 1 << 16, bufferBytes: 1 << 16 });
  for (let i = 1; i <= 20; i++) {
    for (let s = 1; s <= count; s++) append(log, i, `${s}/${i}`, asShardId(s));
    await settle(log);
  }
  for (let s = 1; s <= count; s++) log.setHardState(asShardId(s), { term: asTerm(3), vote: s, commit: asIndex(20) });
  await settle(log);
  await log.close();
  for (const withSidecars of [true, false]) {
    if (!withSidecars) for (const name of fs.readdirSync(dir)) if (name.endsWith(".idx")) fs.rmSync(join(dir, name));
    const opened = await WalLogStore.open({ dir, segmentBytes: 1 << 16, bufferBytes: 1 << 16 });
    for (let s = 1; s <= count; s++) {
      const id = asShardId(s);
      expect([opened.lastIndex(id), opened.durableIndex(id), opened.hardState(id).vote]).toEqual([asIndex(20), asIndex(20), s]);
    }
    expect(await texts(opened, 19, asShardId(377))).toEqual(["19/3 377/19", "20/3 377/20"]);
    await opened.close();
  }
});

test("what a leader's step wrote is taken once, with its bytes where the shard is replicated", async () => {
  const log = await WalLogStore.open({ dir, ...sizes });
  append(log, 1, "before anybody asked");
  log.setReplicated(shard, false);
  append(log, 2, "alone");
  expect(log.takeAppended(shard)).toEqual([{ index: asIndex(2), term: asTerm(3), kind: "data", data: new Uint8Array(0) }]);
  log.setReplicated(shard, true);
  append(log, 3, "three");
  append(log, 4, "four");
  append(log, 4, "four again");
  const taken = log.takeAppended(shard).map(({ index, data }) => `${index} ${new TextDecoder().decode(data)}`);
  expect([taken, log.takeAppended(shard)]).toEqual([["3 three", "4 four again"], []]);
  await settle(log);
  expect(log.entries(shard, asIndex(1), asIndex(5), 1e6).map(({ data }) => new TextDecoder().decode(data))).toEqual([
    "before anybody asked",
    "alone",
    "three",
    "four again",
  ]);
  await log.close();
});

test("a vote that contradicts an earlier one, and a record beyond the next, are broken invariants", async () => {
  const log = await WalLogStore.open({ dir, ...sizes });
  const state = (term: number, vote: number) => ({ term: asTerm(term), vote, commit: asIndex(0) });
  log.setHardState(shard, state(5, 2));
  log.remove(shard);
  expect(() => append(log, 1, "removed")).toThrow("its replica is removed");
  log.setBase(shard, asIndex(9), asTerm(2));
  expect(() => log.setHardState(shard, state(5, 3))).toThrow("votes once in term 5");
  expect(() => log.setHardState(shard, state(4, 2))).toThrow("never goes back");
  expect(() => append(log, 11, "a gap")).toThrow("its log has 10 to 9, got 11");
  expect(() => append(log, 9, "before the base")).toThrow("its log has 10 to 9, got 9");
  await log.close();
});

test("what a removed replica held stays readable while its removal is on the way to the disk", async () => {
  const log = await WalLogStore.open({ dir, ...sizes });
  for (let i = 1; i <= 3; i++) append(log, i, `entry ${i}`);
  await settle(log);
  append(log, 4, "never durable as of the log");
  const read = async (index: number) => new TextDecoder().decode((await log.read(shard, asIndex(index))).body);
  log.remove(shard);
  expect(await read(3)).toBe("entry 3");
  await expect(read(4)).rejects.toThrow("does not hold it durably");
  const landed = settle(log);
  expect(await read(1)).toBe("entry 1");
  await landed;
  expect(await read(3)).toBe("entry 3");
  await log.close();
});
