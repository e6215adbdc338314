/** Logs that forget: which files go and which don't, and that a crash at any point of it changes nothing. */
import { afterAll, beforeEach, describe, expect, test } from "bun:test";
import fs from "node:fs";
import { tmpdir } from "node:os";
import { basename, join } from "node:path";
import { asIndex, asShardId, asTerm, Prng } from "#core/base";
import { CorruptionError } from "../corruption-error.ts";
import { FaultyDisk } from "./faulty-disk-fixture.ts";
import { FrameWalk, walkSync } from "./frame-walk.ts";
import { auditLog } from "./log-audit.ts";
import { checkReads, LogModel, prefixOf } from "./log-model.suite.ts";
import { append, commit, type LogHarness, modelSuite, texts, until } from "./log-store.suite.ts";
import { FrameKind } from "./record-frame.ts";
import { listSegments } from "./recovery.ts";
import { ReleasedError } from "./released-error.ts";
import { headerBytes } from "./segment-file.ts";
import { slackSegments } from "./trimming.ts";
import { WalLogStore, type WalOptions } from "./wal-log-store.ts";

const shard = asShardId(1);
const idle = asShardId(2);
const root = fs.mkdtempSync(join(tmpdir(), "hop-trim-"));
const small = { segmentBytes: 4096, bufferBytes: 1024, trimMs: 0 };
/** So that operations of a model fill many, and all that is needed is always on the move. */
const tiny = { segmentBytes: 1024, bufferBytes: 512, trimMs: 0, trimSlackBytes: Number.NEGATIVE_INFINITY };
let counter = 0;
let dir = "";
beforeEach(() => {
  dir = newDir();
});
afterAll(() => fs.rmSync(root, { recursive: true }));

const newDir = () => join(root, `${++counter}`);
const open = (options: Partial<WalOptions> = {}) => WalLogStore.open({ dir, ...small, ...options });
const numbersIn = (path: string) =>
  fs
    .readdirSync(path)
    .map((name) => /^wal-(\d+)\.log$/.exec(name)?.[1])
    .filter((number) => number !== undefined)
    .map(Number)
    .sort((a, b) => a - b);
const fileOf = (number: number, ending = "log", at = dir) => join(at, `wal-${String(number).padStart(10, "0")}.${ending}`);

/** As a crash would leave it now. A file that goes while it is copied was about to go, and the others are copied again. */
function copyTo(target: string, source = dir): string {
  for (;;) {
    fs.rmSync(target, { recursive: true, force: true });
    fs.mkdirSync(target);
    try {
      for (const name of fs.readdirSync(source)) fs.writeFileSync(join(target, name), fs.readFileSync(join(source, name)));
      return target;
    } catch (error) {
      if ((error as NodeJS.ErrnoException).code !== "ENOENT") throw error;
    }
  }
}

async function settle(log: WalLogStore): Promise<void> {
  log.kick(true);
  const reached = log.position();
  await until(() => log.durablePosition() >= reached);
}

/** Appends records of `bytes` bytes to the shard, and lets go of them as they come. */
async function churn(log: WalLogStore, count: number, { of = shard, bytes = 200 } = {}): Promise<void> {
  for (let i = 0; i < count; i++) {
    const last = log.lastIndex(of);
    await commit(log, last + 1, "x".repeat(bytes), of);
    log.compact(of, asIndex(last + 1));
    log.release(of, asIndex(last + 1));
  }
  await settle(log);
}

const boundOf = (log: WalLogStore, segmentBytes: number) => Math.ceil((2 * log.usage().liveBytes) / segmentBytes) + slackSegments + 3;

describe("released records", () => {
  test("their segments go, and reads tell them from what is damaged or was never there", async () => {
    let log = await open();
    await churn(log, 100);
    await until(() => numbersIn(dir).length <= 3);
    expect(numbersIn(dir)[0]).toBeGreaterThan(3);
    for (let again = 0; again < 2; again++) {
      const error = await log.read(shard, asIndex(50)).catch((e: unknown) => e);
      expect(error).toBeInstanceOf(ReleasedError);
      expect([(error as ReleasedError).shard, (error as ReleasedError).index, (error as ReleasedError).released]).toEqual([
        shard,
        asIndex(50),
        asIndex(100),
      ]);
      await expect(log.read(shard, asIndex(101))).rejects.toThrow("does not hold it durably");
      expect([log.released(shard), log.base(shard), log.lastIndex(shard)]).toEqual([
        asIndex(100),
        { index: asIndex(100), term: asTerm(3) },
        asIndex(100),
      ]);
      await log.close();
      log = await open();
    }
    await commit(log, 101, "goes on");
    expect(await texts(log)).toEqual(["101/3 goes on"]);
    await log.close();
  });

  test("what is not released stays, however little of the log it is", async () => {
    let log = await open();
    for (let i = 1; i <= 3; i++) await commit(log, i, `idle ${i}`, idle);
    log.setHardState(idle, { term: asTerm(3), vote: 9, commit: asIndex(2) });
    log.compact(idle, asIndex(1));
    log.setHardState(asShardId(5), { term: asTerm(4), vote: 2, commit: asIndex(0) });
    log.remove(asShardId(5));
    log.setBase(asShardId(6), asIndex(40), asTerm(2));
    await churn(log, 300);
    await until(() => numbersIn(dir).length <= boundOf(log, small.segmentBytes) && (numbersIn(dir)[0] as number) > 5);
    const check = async () => {
      expect(await texts(log, 1, idle)).toEqual(["1/3 idle 1", "2/3 idle 2", "3/3 idle 3"]);
      expect([log.base(idle), log.hardState(idle)]).toEqual([
        { index: asIndex(1), term: asTerm(3) },
        { term: asTerm(3), vote: 9, commit: asIndex(2) },
      ]);
      expect([log.isRemoved(asShardId(5)), log.hardState(asShardId(5)).vote]).toEqual([true, 2]);
      expect(log.base(asShardId(6))).toEqual({ index: asIndex(40), term: asTerm(2) });
      expect(log.entries(idle, asIndex(2), asIndex(4), 1e6).map(({ index }) => index as number)).toEqual([2, 3]);
    };
    await check();
    await log.close();
    for (const name of fs.readdirSync(dir)) if (name.endsWith(".idx")) fs.rmSync(join(dir, name));
    log = await open();
    await check();
    // What was moved is cut like anything else.
    await commit(log, 2, "again", idle);
    expect(await texts(log, 1, idle)).toEqual(["1/3 idle 1", "2/3 again"]);
    await churn(log, 100);
    await log.close();
    log = await open();
    expect(await texts(log, 1, idle)).toEqual(["1/3 idle 1", "2/3 again"]);
    await log.close();
  });

  test("copies that records were appended behind are copied again", async () => {
    const log = await open();
    for (let i = 1; i <= 5; i++) {
      await commit(log, i, `idle ${i}`, idle);
      const before = numbersIn(dir).at(-1) as number;
      // What is there of the idle shard is copied behind this, and its next record comes soon after.
      while ((numbersIn(dir)[0] as number) <= before) await churn(log, 1, { bytes: 900 });
    }
    expect((await texts(log, 1, idle)).length).toBe(5);
    await log.close();
  });

  test("a log of which nothing is released keeps every file, and copies nothing", async () => {
    const log = await open();
    for (let i = 1; i <= 100; i++) await commit(log, i, "y".repeat(200));
    await churn(log, 3, { of: idle, bytes: 10 });
    expect(numbersIn(dir)[0]).toBe(1);
    const { liveBytes, shards } = log.usage();
    expect(liveBytes).toBe(100 * 240);
    expect(shards).toEqual(new Map([[shard, liveBytes]]));
    const files = () => fs.readdirSync(dir).filter((name) => !name.endsWith(".idx"));
    await until(() => log.usage().bytes === files().reduce((sum, name) => sum + fs.statSync(join(dir, name)).size, 0));
    await log.close();
  });

  test("a scan under way finds what was moved, and says so where what it has not come to is released", async () => {
    const log = await open();
    for (let i = 1; i <= 60; i++) await commit(log, i, `${i} ${"z".repeat(200)}`, idle);
    const scan = log.scan(idle, asIndex(1))[Symbol.asyncIterator]();
    const overtaken = log.scan(idle, asIndex(1))[Symbol.asyncIterator]();
    for (let i = 1; i <= 5; i++) expect([(await scan.next()).value?.index, (await overtaken.next()).value?.index]).toEqual([i, i]);
    const first = numbersIn(dir).at(-1) as number;
    await churn(log, 400);
    await until(() => (numbersIn(dir)[0] as number) > first);
    for (let i = 6; i <= 60; i++) expect((await scan.next()).value?.index as number).toBe(i);
    expect((await scan.next()).done).toBe(true);
    log.compact(idle, asIndex(60));
    log.release(idle, asIndex(60));
    // Copies that were under way have landed by then.
    await settle(log);
    const last = numbersIn(dir).at(-1) as number;
    await churn(log, 100);
    await until(() => (numbersIn(dir)[0] as number) > last);
    const rest = async () => {
      for (;;) if ((await overtaken.next()).done) return;
    };
    await expect(rest()).rejects.toBeInstanceOf(ReleasedError);
    await log.close();
  });
});

describe("an audit", () => {
  test("of a trimmed log yields what reads find, in the order in which it was written", async () => {
    const log = await open();
    for (let i = 1; i <= 30; i++) {
      await commit(log, i, `idle ${i}`, idle);
      await churn(log, i < 20 ? 3 : 30);
    }
    await until(() => numbersIn(dir).length <= boundOf(log, small.segmentBytes));
    await log.close();
    const audited = [...auditLog(dir)].filter((record) => record.shard === idle).map((record) => new TextDecoder().decode(record.body));
    expect(audited).toEqual(Array.from({ length: 30 }, (_, i) => `idle ${i + 1}`));
    expect(numbersIn(dir)[0]).toBeGreaterThan(20);
  });

  test("and an opening name a file that is missing in front or in the middle, and step over one that was to go", async () => {
    let log = await open();
    await churn(log, 60);
    const kept = copyTo(newDir());
    await churn(log, 60);
    await until(() => numbersIn(dir).length <= 3);
    await log.close();
    const numbers = numbersIn(dir);
    const first = numbers[0] as number;
    log = await open();
    const before = await texts(log);
    await log.close();
    // The crash came before the file went.
    for (const ending of ["log", "idx"]) {
      const from = fileOf(numbersIn(kept)[0] as number, ending, kept);
      if (fs.existsSync(from) && (numbersIn(kept)[0] as number) === first - 1) fs.copyFileSync(from, fileOf(first - 1, ending));
    }
    fs.writeFileSync(fileOf(first - 1, "idx"), "left over");
    expect([...auditLog(dir)].length).toBe(before.length);
    log = await open();
    await log.close();
    expect(fs.existsSync(fileOf(first - 1, "idx"))).toBe(false);
    for (const number of [first, (numbers[1] as number) < (numbers.at(-1) as number) ? (numbers[1] as number) : first]) {
      const broken = copyTo(newDir());
      fs.rmSync(fileOf(number, "log", broken));
      const error = await WalLogStore.open({ ...small, dir: broken }).catch((e: unknown) => e);
      expect(error).toBeInstanceOf(CorruptionError);
      expect((error as CorruptionError).damage.file).toBe(fileOf(number, "log", broken));
      expect(() => [...auditLog(broken)]).toThrow(fileOf(number, "log", broken));
    }
  });
});

function trimmingHarness(): LogHarness & { readonly firstFile: () => number } {
  const disk = new FaultyDisk();
  let at = newDir();
  let log: WalLogStore;
  let crashes = 0;
  return {
    open: async () => {
      log = await WalLogStore.open({ dir: at, ...tiny, disk });
      return log;
    },
    crash: async () => {
      const next = copyTo(newDir(), at);
      for (const name of fs.readdirSync(next)) if (name.endsWith(".idx") && ++crashes % 3 === 0) fs.rmSync(join(next, name));
      await log.close();
      seeKinds(next);
      fs.rmSync(at, { recursive: true });
      at = next;
    },
    setFull: () => {},
    breakDisk: () => {},
    damage: () => {},
    dispose: () => log.close(),
    firstFile: () => numbersIn(at)[0] as number,
  };
}

let trimmedSeeds = 0;
const kindsSeen = new Set<number>();

function seeKinds(path: string): void {
  for (const segment of listSegments(path).found) {
    const fd = fs.openSync(segment.path, "r");
    for (const { kind } of walkSync(fd, new FrameWalk({ from: headerBytes, end: fs.fstatSync(fd).size }, segment))) kindsSeen.add(kind);
    fs.closeSync(fd);
  }
}

modelSuite(
  "WalLogStore that trims",
  () => {
    const harness = trimmingHarness();
    return {
      ...harness,
      dispose: async () => {
        if (harness.firstFile() > 1) trimmedSeeds++;
        await harness.dispose();
      },
    };
  },
  12,
);
test("most of those logs were trimmed, and records of each class were moved", () => {
  expect(trimmedSeeds).toBeGreaterThan(5);
  expect([...kindsSeen].sort((a, b) => a - b)).toEqual(Object.values(FrameKind).sort((a, b) => a - b));
});

/** What a crash would leave at one moment. */
interface Crash {
  readonly path: string;
  readonly durable: number;
  readonly first: number;
  /** The write that comes next. */
  readonly write?: { readonly file: string; readonly at: number; readonly count: number };
}

/** The image with the write cut short that comes before the one of `after`. */
function tear({ path: before, durable, write }: Crash, after: Crash, prng: Prng): Crash | undefined {
  if (write === undefined) return undefined;
  const { file, at, count } = write;
  const last = numbersIn(before).at(-1) as number;
  // A file comes or goes when the write has come to the disk.
  if (numbersIn(before).join() !== numbersIn(after.path).join() || file !== basename(fileOf(last))) return undefined;
  const bytes = fs.readFileSync(join(after.path, file));
  // A sync may have come between, and the write not to the disk yet.
  if (bytes.length < at + count) return undefined;
  const path = copyTo(newDir(), after.path);
  bytes.fill(0, at + 8 * prng.below(Math.ceil(count / 8)), at + count);
  fs.writeFileSync(join(path, file), bytes);
  return { path, durable, first: after.first };
}

test("a crash before any write or sync, or in the middle of one, leaves a log that opens to the same", async () => {
  let trimmed = 0;
  let torn = 0;
  for (let seed = 1; seed <= 2; seed++) {
    dir = newDir();
    const disk = new FaultyDisk();
    const log = await open({ ...tiny, disk });
    const model = new LogModel(seed);
    const prng = new Prng(seed);
    const crashes: Crash[] = [];
    const crash = () => ({ path: copyTo(newDir()), durable: log.durablePosition(), first: numbersIn(dir)[0] as number });
    for (let flush = 0; flush < 150; flush++) {
      for (let i = 0; i < 4; i++) model.step(log);
      await settle(log);
      if (flush !== 110) continue;
      disk.watchSync = () => void crashes.push(crash());
      disk.watch = (count, at, fd) => {
        const file = basename(fs.readlinkSync(`/proc/self/fd/${fd}`));
        crashes.push({ ...crash(), write: { file, at, count } });
      };
    }
    disk.watch = () => {};
    disk.watchSync = () => {};
    await log.close();
    const whole = crashes.length;
    for (let i = 0; i + 1 < whole; i++) {
      const image = tear(crashes[i] as Crash, crashes[i + 1] as Crash, prng);
      if (image !== undefined) crashes.push(image);
    }
    torn += crashes.length - whole;
    for (const [i, { path, durable, first }] of crashes.entries()) {
      if (first > (crashes[0]?.first ?? 0)) trimmed++;
      const opened = await WalLogStore.open({ ...tiny, dir: path });
      const kept = prefixOf(opened, model, durable);
      if (i % 5 === 0) {
        const then = new LogModel(seed);
        then.frames.push(...model.frames.slice(0, kept));
        await checkReads(opened, then, prng);
      }
      await opened.close();
      fs.rmSync(path, { recursive: true });
    }
  }
  expect([trimmed > 30, torn > 30]).toEqual([true, true]);
}, 120_000);

test("a process killed with -9 while it trims loses nothing that it did not release, and the files stay few", async () => {
  let text = "";
  for (let round = 1; round <= 6; round++) {
    const child = Bun.spawn([process.execPath, join(import.meta.dir, "trim-fixture.ts"), dir], { stdout: "pipe" });
    let printed = "";
    for await (const chunk of child.stdout) {
      printed += new TextDecoder().decode(chunk);
      if (printed.length > round * 15_000) child.kill("SIGKILL");
    }
    await child.exited;
    text = printed.slice(0, printed.lastIndexOf("\n"));
    const acknowledged = JSON.parse(text.slice(text.lastIndexOf("\n") + 1)) as [number, number][];
    // It says itself whether all of the log is there.
    const log = await WalLogStore.open({ dir, segmentBytes: 1 << 16, bufferBytes: 4096, trimMs: 0 });
    for (const [i, [durable, released]] of acknowledged.entries()) {
      const id = asShardId(i + 1);
      expect(log.lastIndex(id)).toBeGreaterThanOrEqual(durable);
      expect(log.released(id)).toBeGreaterThanOrEqual(released);
      let index: number = log.released(id);
      for (const record of log.replay(id, asIndex(1))) {
        index++;
        expect(new TextDecoder().decode(record.body)).toBe(`${id}/${index} ${"x".repeat((index * 37) % 700)}`);
      }
      expect(index).toBe(log.lastIndex(id));
    }
    await until(() => numbersIn(dir).length <= boundOf(log, 1 << 16));
    await log.close();
  }
  expect(numbersIn(dir)[0]).toBeGreaterThan(10);
}, 60_000);

test("two hundred shards, most released as they go and some idle for long: the files stay within the bound", async () => {
  const segmentBytes = 1 << 15;
  const options = { dir, segmentBytes, bufferBytes: 1 << 14, trimMs: 0 };
  let log = await WalLogStore.open(options);
  const prng = new Prng(1);
  const idEvery = (n: number) => Array.from({ length: 200 }, (_, i) => asShardId(i + 1)).filter((id) => id % n === 0);
  const isIdle = new Set(idEvery(10));
  const bodyOf = (id: number, index: number) => `${id}/${index} ${"s".repeat((id * index * 13) % 300)}`;
  let most = 0;
  for (let round = 0; round < 120; round++) {
    for (let i = 0; i < 60; i++) {
      const id = asShardId(1 + prng.below(200));
      // The idle ones write in the beginning, and then once in a long time.
      if (isIdle.has(id) && round > 5 && !prng.chance(0.02)) continue;
      const index = log.lastIndex(id) + 1;
      append(log, index, bodyOf(id, index), id);
      if (prng.chance(0.2)) log.setHardState(id, { term: asTerm(3), vote: id, commit: asIndex(index) });
      const through = asIndex(log.durableIndex(id) - 1);
      if (isIdle.has(id) || through <= log.base(id).index) continue;
      log.compact(id, through);
      log.release(id, through);
    }
    await settle(log);
    // What is left to move is looked at again with the next commit.
    await until(() => {
      log.setHardState(asShardId(1), { ...log.hardState(asShardId(1)), term: asTerm(3) });
      log.kick(true);
      return numbersIn(dir).length <= boundOf(log, segmentBytes);
    });
    most = Math.max(most, numbersIn(dir).length);
    if (round % 40 !== 39) continue;
    const before = stateOf(log);
    await log.close();
    log = await WalLogStore.open(options);
    expect(stateOf(log)).toEqual(before);
  }
  expect(most).toBeLessThan(20);
  expect(numbersIn(dir)[0]).toBeGreaterThan(20);
  for (const id of idEvery(1)) {
    const found: string[] = [];
    for await (const { body } of log.scan(id, asIndex(1))) found.push(new TextDecoder().decode(body));
    const first = log.released(id) + 1;
    expect(found).toEqual(Array.from({ length: log.lastIndex(id) - first + 1 }, (_, i) => bodyOf(id, first + i)));
  }
  await log.close();
}, 120_000);

const stateOf = (log: WalLogStore) =>
  log
    .shards()
    .sort((a, b) => a - b)
    .map((id) => [id, log.base(id), log.lastIndex(id), log.durableIndex(id), log.hardState(id), log.released(id), log.isRemoved(id)]);
