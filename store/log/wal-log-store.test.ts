import { afterAll, beforeEach, describe, expect, test } from "bun:test";
import fs from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { asIndex, asShardId, Prng } from "#core/base";
import { CorruptionError } from "../corruption-error.ts";
import { FaultyDisk } from "./faulty-disk-fixture.ts";
import { append, commit, type LogHarness, logStoreSuite, modelSuite, texts, until, untilDurable } from "./log-store.suite.ts";
import { frameBytes } from "./record-frame.ts";
import { headerBytes } from "./segment-file.ts";
import { WalLogStore } from "./wal-log-store.ts";

const shard = asShardId(1);
const root = fs.mkdtempSync(join(tmpdir(), "hop-wal-"));
const small = { segmentBytes: 4096, bufferBytes: 1024 };
let counter = 0;
let dir = "";

beforeEach(() => {
  dir = newDir();
});
afterAll(() => fs.rmSync(root, { recursive: true }));

const newDir = () => join(root, `${++counter}`);
const segmentOf = (number: number, at = dir) => join(at, `wal-${String(number).padStart(10, "0")}.log`);
const filesIn = (path: string) => fs.readdirSync(path).sort();

function copyTo(target: string, source = dir): string {
  fs.rmSync(target, { recursive: true, force: true });
  fs.cpSync(source, target, { recursive: true });
  return target;
}

function flip(path: string, offset: number, mask = 0xff): void {
  const fd = fs.openSync(path, "r+");
  const byte = new Uint8Array(1);
  fs.readSync(fd, byte, 0, 1, offset);
  byte[0] = (byte[0] as number) ^ mask;
  fs.writeSync(fd, byte, 0, 1, offset);
  fs.closeSync(fd);
}

let crashes = 0;

function walHarness(): LogHarness {
  const disk = new FaultyDisk();
  let at = newDir();
  let log: WalLogStore;
  return {
    open: async () => {
      log = await WalLogStore.open({ dir: at, ...small, disk });
      return log;
    },
    // The bytes as they are now are what a killed process leaves; the old store then ends elsewhere.
    crash: async () => {
      const next = copyTo(newDir(), at);
      // Sidecars are hints: some are gone.
      for (const name of filesIn(next).filter((one) => one.endsWith(".idx"))) if (++crashes % 3 === 0) fs.rmSync(join(next, name));
      await log.close();
      at = next;
    },
    setFull: (full) => {
      disk.isFull = full;
    },
    breakDisk: () => {
      disk.isBroken = true;
    },
    damage: (_index, body) => {
      for (const name of filesIn(at)) {
        const found = fs.readFileSync(join(at, name)).indexOf(body);
        if (found >= 0) flip(join(at, name), found);
      }
    },
    dispose: () => log.close(),
  };
}

logStoreSuite("WalLogStore", walHarness);
modelSuite("WalLogStore", walHarness, 15);

/** A log with a few records, each in a flush of its own, closed in order or as a crash leaves it. */
async function fill(
  count: number,
  { path = dir, bytes = 40, ...options }: { path?: string; bytes?: number; segmentBytes?: number } = {},
): Promise<WalLogStore> {
  const log = await WalLogStore.open({ dir: path, ...small, ...options });
  for (let i = 1; i <= count; i++) await commit(log, i, `${i} ${"x".repeat(bytes)}`);
  return log;
}

/** Waits for the commit marker that follows when the log goes idle: the file no longer changes its end. */
async function untilMarked(path: string, end: number): Promise<void> {
  await until(() => fs.readFileSync(path).readUInt32LE(end) !== 0);
}

describe("torn tail", () => {
  test("the last file cut at every byte: the longest valid prefix is kept, and the log goes on", async () => {
    const log = await fill(3);
    const whole = await texts(log);
    const size = headerBytes + 3 * 88;
    await untilMarked(segmentOf(1), size);
    const cut = newDir();
    for (let length = 0; length <= size + frameBytes; length++) {
      copyTo(cut);
      fs.truncateSync(segmentOf(1, cut), length);
      const opened = await WalLogStore.open({ dir: cut, ...small });
      const kept = Math.max(0, Math.min(3, Math.floor((length - headerBytes) / 88)));
      expect([length, await texts(opened)]).toEqual([length, whole.slice(0, kept)]);
      await commit(opened, kept + 1, "goes on");
      await opened.close();
      const again = await WalLogStore.open({ dir: cut, ...small });
      expect(await texts(again)).toEqual([...whole.slice(0, kept), `${kept + 1}/3 goes on`]);
      await again.close();
    }
    await log.close();
  }, 60_000);

  test("a last segment cut inside its header holds nothing, and is begun again behind the others", async () => {
    await (await fill(60, { bytes: 200 })).close();
    const files = filesIn(dir).filter((name) => name.endsWith(".log"));
    const lastName = files.at(-1) as string;
    const held = await recordsIn(join(dir, lastName));
    fs.truncateSync(join(dir, lastName), headerBytes - 1);
    const opened = await WalLogStore.open({ dir, ...small });
    const kept = (held[0]?.index as number) - 1;
    expect(opened.lastIndex(shard)).toBe(asIndex(kept));
    await commit(opened, kept + 1, "goes on");
    await opened.close();
    const again = await WalLogStore.open({ dir, ...small });
    expect((await texts(again)).slice(-2).map((text) => text.slice(0, 9))).toEqual([`${kept}/3 ${kept} x`, `${kept + 1}/3 goes`]);
    expect(filesIn(dir).filter((name) => name.endsWith(".log"))).toEqual(files);
    await again.close();
  });

  test("a write of many records torn at every 8 bytes keeps whole records of it only", async () => {
    const log = await fill(1);
    for (let i = 2; i <= 6; i++) append(log, i, `${i} ${"x".repeat(40)}`);
    log.kick(true);
    await untilDurable(log, () => log.durableIndex(shard) === 6);
    const image = fs.readFileSync(segmentOf(1));
    const whole = await texts(log);
    const source = copyTo(newDir());
    const cut = newDir();
    for (let torn = headerBytes + 88; torn < headerBytes + 6 * 88; torn += 8) {
      const bytes = Buffer.from(image);
      bytes.fill(0, torn, torn + 16);
      bytes.fill(0, headerBytes + 6 * 88);
      fs.writeFileSync(segmentOf(1, copyTo(cut, source)), bytes);
      const opened = await WalLogStore.open({ dir: cut, ...small });
      const kept = Math.floor((torn - headerBytes) / 88);
      expect([torn, await texts(opened)]).toEqual([torn, whole.slice(0, kept)]);
      expect(opened.torn?.offset).toBe(headerBytes + kept * 88);
      await opened.close();
    }
    await log.close();
  });

  test("stale bytes behind a torn tail never come back, however the log grows over them", async () => {
    for (let seed = 1; seed <= 30; seed++) {
      const prng = new Prng(seed);
      let path = newDir();
      let log = await fill(1, { path });
      let expected = await texts(log);
      for (let round = 0; round < 4; round++) {
        const first = expected.length + 1;
        for (let i = 0; i < 6; i++) append(log, first + i, `round ${round} ${"y".repeat(prng.below(60))}`);
        log.kick(true);
        await untilDurable(log, () => log.durableIndex(shard) === first + 5);
        const flushed = await texts(log, first);
        const next = copyTo(newDir(), path);
        await log.close();
        path = next;
        const name = filesIn(path)
          .filter((one) => one.endsWith(".log"))
          .at(-1) as string;
        const bytes = fs.readFileSync(join(path, name));
        const from = bytes.indexOf(`round ${round}`);
        const hole = from + 8 * prng.below(20);
        bytes.fill(0, hole, hole + 8 + 8 * prng.below(10));
        fs.writeFileSync(join(path, name), bytes);
        log = await WalLogStore.open({ dir: path, ...small });
        const found = await texts(log);
        expect(found).toEqual([...expected, ...flushed].slice(0, found.length));
        expect(found.length).toBeGreaterThanOrEqual(expected.length);
        expected = found;
      }
      await log.close();
    }
  }, 30_000);
});

test("stale records behind a torn one do not follow a new one of its size", async () => {
  const log = await fill(1);
  for (let i = 2; i <= 6; i++) append(log, i, `${i} ${"x".repeat(40)}`);
  log.kick(true);
  await untilDurable(log, () => log.durableIndex(shard) === 6);
  const torn = copyTo(newDir());
  await log.close();
  const bytes = fs.readFileSync(segmentOf(1, torn));
  bytes.fill(0, headerBytes + 3 * 88, headerBytes + 4 * 88);
  bytes.fill(0, headerBytes + 6 * 88);
  fs.writeFileSync(segmentOf(1, torn), bytes);
  const opened = await WalLogStore.open({ dir: torn, ...small });
  expect(opened.lastIndex(shard)).toBe(asIndex(3));
  await commit(opened, 4, `4 ${"y".repeat(40)}`);
  const crashed = copyTo(newDir(), torn);
  await opened.close();
  const again = await WalLogStore.open({ dir: crashed, ...small });
  expect((await texts(again, 3)).map((text) => text.slice(0, 6))).toEqual(["3/3 3 ", "4/3 4 "]);
  await again.close();
});

test("a process killed with -9 loses nothing that it said was durable", async () => {
  let acknowledged = 0;
  for (let round = 1; round <= 6; round++) {
    const child = Bun.spawn([process.execPath, join(import.meta.dir, "wal-fixture.ts"), dir], { stdout: "pipe" });
    let text = "";
    for await (const chunk of child.stdout) {
      text += new TextDecoder().decode(chunk);
      if (text.length > round * 400) child.kill("SIGKILL");
    }
    await child.exited;
    acknowledged = Number(text.slice(0, text.lastIndexOf("\n")).split("\n").at(-1));
    const opened = await WalLogStore.open({ dir, segmentBytes: 1 << 16, bufferBytes: 4096 });
    expect(opened.lastIndex(shard)).toBeGreaterThanOrEqual(acknowledged);
    let index = 0;
    for (const record of opened.replay(shard, asIndex(1))) {
      index++;
      expect(new TextDecoder().decode(record.body)).toBe(`${index} ${"x".repeat((index * 37) % 900)}`);
    }
    expect(index).toBe(opened.lastIndex(shard));
    await opened.close();
  }
  expect(acknowledged).toBeGreaterThan(300);
}, 30_000);

describe("damage", () => {
  test("every byte up to the end of the last marker, flipped: opening fails and names the file", async () => {
    const log = await fill(4);
    const end = headerBytes + 4 * 88;
    await untilMarked(segmentOf(1), end);
    const image = copyTo(newDir());
    await log.close();
    const flipped = newDir();
    for (let offset = 0; offset < end + frameBytes; offset++) {
      for (const mask of [0x01, 0xff]) {
        copyTo(flipped, image);
        flip(segmentOf(1, flipped), offset, mask);
        const error = await WalLogStore.open({ dir: flipped, ...small }).then(
          () => "opened",
          (e: unknown) => e,
        );
        expect([offset, error instanceof Error && error.message.includes(segmentOf(1, flipped))]).toEqual([offset, true]);
        if (offset < headerBytes) continue;
        const record = offset < end ? 1 + Math.floor((offset - headerBytes) / 88) : 5;
        expect(error).toBeInstanceOf(CorruptionError);
        expect((error as CorruptionError).damage.index).toBe(asIndex(record));
        expect((error as CorruptionError).damage.offset).toBe(headerBytes + (record - 1) * 88);
      }
    }
  }, 60_000);

  test("a byte behind the last marker is a torn tail", async () => {
    const log = await fill(3);
    const end = headerBytes + 3 * 88 + frameBytes;
    await untilMarked(segmentOf(1), end - frameBytes);
    const image = copyTo(newDir());
    await log.close();
    flip(segmentOf(1, image), end + 100);
    const opened = await WalLogStore.open({ dir: image, ...small });
    expect(opened.torn).toEqual({ file: segmentOf(1, image), offset: end, bytes: 101 });
    expect(opened.lastIndex(shard)).toBe(asIndex(3));
    await opened.close();
  });

  test("every byte of a closed segment's records, flipped: reading fails and names the record", async () => {
    const log = await fill(60, { bytes: 200 });
    await log.close();
    expect(filesIn(dir).filter((name) => name.endsWith(".log")).length).toBeGreaterThan(3);
    const records = await recordsIn(segmentOf(2));
    for (const { index, from, to } of records) {
      for (let offset = from; offset < to; offset += 17) {
        flip(segmentOf(2), offset);
        const opened = await WalLogStore.open({ dir, ...small });
        const scanned = await texts(opened).catch((e: unknown) => e);
        expect((scanned as CorruptionError).damage).toMatchObject({ file: segmentOf(2), index: asIndex(index), offset: from });
        const read = await opened.read(shard, asIndex(index)).catch((e: unknown) => e);
        expect(read).toBeInstanceOf(CorruptionError);
        // A read that can't get past it names the damaged record, not the one that was asked for.
        const behind = await opened.read(shard, asIndex(index + 1)).catch((e: unknown) => e);
        if (behind instanceof CorruptionError) expect(behind.damage.index).toBe(asIndex(index));
        await opened.close();
        flip(segmentOf(2), offset);
      }
    }
  }, 60_000);

  test("a missing segment in the middle is named", async () => {
    await (await fill(60, { bytes: 200 })).close();
    fs.rmSync(segmentOf(2));
    await expect(WalLogStore.open({ dir, ...small })).rejects.toThrow("got segment 3 after 1, want 2");
  });

  test("a closed segment that lost its sidecar and its tail is damage, not a torn tail", async () => {
    await (await fill(60, { bytes: 200 })).close();
    fs.rmSync(segmentOf(1).replace(".log", ".idx"));
    const bytes = fs.readFileSync(segmentOf(1));
    bytes.fill(0, bytes.length - 600);
    fs.writeFileSync(segmentOf(1), bytes);
    await expect(WalLogStore.open({ dir, ...small })).rejects.toBeInstanceOf(CorruptionError);
  });
});

/** Where the records of a segment lie, by their lengths. */
async function recordsIn(path: string): Promise<{ index: number; from: number; to: number }[]> {
  const bytes = fs.readFileSync(path);
  const out: { index: number; from: number; to: number }[] = [];
  for (let at = headerBytes; at + frameBytes <= bytes.length && bytes.readUInt32LE(at) !== 0; ) {
    const to = at + frameBytes + ((bytes.readUInt32LE(at + 8) + 7) & ~7);
    if (bytes.readUInt32LE(at + 20) === 1) out.push({ index: bytes.readUInt32LE(at + 24), from: at, to });
    at = to;
  }
  return out;
}

describe("segments", () => {
  test("records cross segments in order, also after reopening and with lost or damaged sidecars", async () => {
    const log = await fill(100, { bytes: 300 });
    const whole = await texts(log);
    await log.close();
    const sidecars = filesIn(dir).filter((name) => name.endsWith(".idx"));
    expect(sidecars.length).toBeGreaterThan(5);
    fs.rmSync(join(dir, sidecars[1] as string));
    flip(join(dir, sidecars[2] as string), 30);
    const opened = await WalLogStore.open({ dir, ...small });
    expect(await texts(opened)).toEqual(whole);
    expect([...opened.replay(shard, asIndex(90))].map((one) => one.index as number)).toEqual([90, 91, 92, 93, 94, 95, 96, 97, 98, 99, 100]);
    for (const index of [1, 7, 50, 99, 100]) expect((await opened.read(shard, asIndex(index))).index).toBe(asIndex(index));
    await opened.close();
    expect(filesIn(dir).filter((name) => name.endsWith(".idx"))).toEqual(sidecars);
  });

  test("a crash just after a segment was closed loses nothing that was written since the log was last closed", async () => {
    await (await fill(3)).close();
    const disk = new FaultyDisk();
    const log = await WalLogStore.open({ dir, ...small, disk });
    const crashes: { readonly path: string; readonly durable: number }[] = [];
    disk.watchSync = () => void crashes.push({ path: copyTo(newDir()), durable: log.durableIndex(shard) });
    for (let i = 4; i <= 20; i++) await commit(log, i, `${i} ${"x".repeat(300)}`);
    disk.watchSync = () => {};
    await log.close();
    expect(crashes.length).toBeGreaterThan(0);
    for (const { path, durable } of crashes) {
      const opened = await WalLogStore.open({ dir: path, ...small });
      expect(opened.lastIndex(shard)).toBeGreaterThanOrEqual(durable);
      await opened.close();
    }
  });

  test("a shard with few records among many of another is read whole, and not by reading everything", async () => {
    const rare = asShardId(9);
    const log = await WalLogStore.open({ dir, segmentBytes: 8 << 20 });
    let rareIndex = 0;
    for (let i = 1; i <= 40; i++) {
      append(log, i, "x".repeat(100_000));
      if (i % 10 === 1) append(log, ++rareIndex, `rare ${rareIndex}`, rare);
    }
    log.kick(true);
    await untilDurable(log, () => log.durableIndex(shard) === 40);
    // Damage far from the rare records: they are found without going there.
    flip(segmentOf(1), 1_700_000);
    expect(await texts(log, 1, rare)).toEqual(["1/3 rare 1", "2/3 rare 2", "3/3 rare 3", "4/3 rare 4"]);
    expect([...log.replay(rare, asIndex(3))].map((one) => one.index as number)).toEqual([3, 4]);
    await expect(texts(log)).rejects.toBeInstanceOf(CorruptionError);
    await log.close();
  });

  test("records larger than the buffer and than a segment are whole", async () => {
    const log = await WalLogStore.open({ dir, ...small });
    const sizes = [10, 3000, 20_000, 1, 70_000, 5];
    for (const [i, size] of sizes.entries()) append(log, i + 1, "z".repeat(size));
    log.kick(true);
    await untilDurable(log, () => log.durableIndex(shard) === sizes.length);
    await commit(log, 7, "after");
    await log.close();
    const opened = await WalLogStore.open({ dir, ...small });
    expect([...opened.replay(shard, asIndex(1))].map((one) => one.body.length)).toEqual([...sizes, 5]);
    for (const [i, size] of sizes.entries()) expect((await opened.read(shard, asIndex(i + 1))).body.length).toBe(size);
    await opened.close();
  });

  test("a newer format is refused, and nothing is changed", async () => {
    await (await fill(2)).close();
    const fd = fs.openSync(segmentOf(1), "r+");
    fs.writeSync(fd, new Uint8Array([4]), 0, 1, 8);
    fs.closeSync(fd);
    fs.writeFileSync(`${segmentOf(2)}.next`, "left over");
    const before = filesIn(dir).map((name) => [name, Bun.hash(fs.readFileSync(join(dir, name)))]);
    await expect(WalLogStore.open({ dir, ...small })).rejects.toThrow("has format 4, this version knows up to 3");
    expect(filesIn(dir).map((name) => [name, Bun.hash(fs.readFileSync(join(dir, name)))])).toEqual(before);
  });

  test("fifty openings that fail leave the disk use as it was", async () => {
    await (await fill(60, { bytes: 200 })).close();
    flip(segmentOf(3), headerBytes + 20);
    fs.rmSync(segmentOf(3).replace(".log", ".idx"));
    const use = () => filesIn(dir).map((name) => [name, fs.statSync(join(dir, name)).size]);
    const before = use();
    for (let i = 0; i < 50; i++) {
      const error = await WalLogStore.open({ dir, ...small }).catch((e: unknown) => e);
      expect(error).toBeInstanceOf(CorruptionError);
    }
    expect(use()).toEqual(before);
  });
});

describe("disk faults", () => {
  test("short writes go on with the rest before anything is acknowledged", async () => {
    const disk = new FaultyDisk();
    const log = await WalLogStore.open({ dir, ...small, disk });
    disk.takesAtMost = 7;
    const before = disk.writes;
    for (let i = 1; i <= 3; i++) append(log, i, `${i} ${"x".repeat(40)}`);
    log.onDurable = () => expect(disk.writes - before).toBeGreaterThanOrEqual(Math.ceil((3 * 88) / 7));
    log.kick(true);
    await until(() => log.durableIndex(shard) === 3);
    const copy = await WalLogStore.open({ dir: copyTo(newDir()), ...small });
    expect(copy.durableIndex(shard)).toBe(asIndex(3));
    await copy.close();
    await log.close();
  });

  test("zeros on their way never wipe out a record", async () => {
    const disk = new FaultyDisk();
    disk.holds = (count) => count > 1000;
    const log = await WalLogStore.open({ dir, ...small, disk });
    append(log, 1, "one");
    log.kick(true);
    for (let turn = 0; turn < 50; turn++) await new Promise((resolve) => setImmediate(resolve));
    disk.release();
    await untilDurable(log, () => log.durableIndex(shard) === 1);
    await until(() => fs.statSync(segmentOf(1)).size === small.segmentBytes);
    expect(await texts(log)).toEqual(["1/3 one"]);
    await log.close();
  });

  test("no space for the next segment: room ends before the current one is full, and comes back", async () => {
    const disk = new FaultyDisk();
    const log = await WalLogStore.open({ dir, segmentBytes: 16_384, bufferBytes: 1024, disk });
    await until(() => fs.statSync(segmentOf(1)).size === 16_384);
    let index = 0;
    disk.watch = (count) => {
      // Only zeros come in such sizes: the log's own writes still land in what was prepared.
      disk.isFull = count > 1000 || count === headerBytes;
    };
    while (log.hasRoom() && index < 500) await commit(log, ++index, `${index} ${"x".repeat(100)}`);
    expect(fs.existsSync(segmentOf(2))).toBe(false);
    expect(index).toBeGreaterThan(50);
    disk.watch = () => {
      disk.isFull = false;
    };
    await until(() => log.hasRoom());
    while (index < 300) await commit(log, ++index, `${index} ${"x".repeat(100)}`);
    expect(await texts(log)).toHaveLength(300);
    await log.close();
  });

  test("a real full disk: appends wait, reads go on, and it resumes by itself", async () => {
    const mount = join(root, "tiny");
    fs.mkdirSync(mount);
    const mounted = Bun.spawnSync(["mount", "-t", "tmpfs", "-o", "size=256k", "tmpfs", mount]);
    if (mounted.exitCode !== 0) return console.log(`skipped: no small disk to fill: ${mounted.stderr.toString().trim()}`);
    try {
      fs.writeFileSync(join(mount, "ballast"), new Uint8Array(100 << 10));
      const log = await WalLogStore.open({ dir: join(mount, "log"), segmentBytes: 32 << 10, bufferBytes: 1024 });
      let index = 0;
      // A record that meets the full disk waits in memory: only then is room known to be out.
      while (log.hasRoom()) {
        append(log, ++index, "x".repeat(500));
        log.kick(true);
        await until(() => log.durableIndex(shard) === index || !log.hasRoom());
      }
      append(log, ++index, "x".repeat(60_000));
      log.kick(true);
      await until(() => !log.hasRoom());
      expect((await log.read(shard, asIndex(1))).body.length).toBe(500);
      fs.rmSync(join(mount, "ballast"));
      await untilDurable(log, () => log.durableIndex(shard) === index);
      await until(() => log.hasRoom());
      await log.close();
      const opened = await WalLogStore.open({ dir: join(mount, "log"), segmentBytes: 32 << 10, bufferBytes: 1024 });
      expect([...opened.replay(shard, asIndex(1))].length).toBe(index);
      await opened.close();
    } finally {
      Bun.spawnSync(["umount", mount]);
    }
  }, 20_000);
});
