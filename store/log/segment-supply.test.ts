import { afterAll, expect, test } from "bun:test";
import fs from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { asIndex, asShardId } from "#core/base";
import { append, until, untilDurable } from "./log-store.suite.ts";
import { WalLogStore } from "./wal-log-store.ts";

const shard = asShardId(1);
const mount = fs.mkdtempSync(join(tmpdir(), "hop-supply-"));
const mounted = Bun.spawnSync(["mount", "-t", "tmpfs", "-o", "size=40m", "tmpfs", mount]);
const isMounted = mounted.exitCode === 0;
if (!isMounted) console.error(`store/log: the cases on a small disk are skipped: ${mounted.stderr.toString().trim()}`);
afterAll(() => {
  if (isMounted) Bun.spawnSync(["umount", mount]);
  fs.rmdirSync(mount);
});

const mib = 1 << 20;
const freeBytes = () => {
  const { bavail, bsize } = fs.statfsSync(mount);
  return bavail * bsize;
};
const put = (name: string, bytes: number) => fs.writeFileSync(join(mount, name), new Uint8Array(bytes));
const logSizes = (dir: string) =>
  fs
    .readdirSync(dir)
    .sort()
    .filter((name) => /\.log(\.next)?$/.test(name))
    .map((name) => fs.statSync(join(dir, name)).size);

/** Appends one by one until the log takes no more, or `index` is reached. */
async function fill(log: WalLogStore, from: number, to: number): Promise<number> {
  let index = from;
  while (index < to && log.hasRoom()) {
    append(log, ++index, "x".repeat(100_000));
    log.kick(true);
    await until(() => log.durableIndex(shard) === index || !log.hasRoom());
  }
  return index;
}

test.skipIf(!isMounted)(
  "where space is short the next segment is small, and a few megabytes that come free are enough to go on [needs the right to mount]",
  async () => {
    const dir = join(mount, "log");
    const segmentBytes = 16 * mib;
    put("ballast", 15 * mib);
    put("few", 4 * mib);
    const log = await WalLogStore.open({ dir, segmentBytes, bufferBytes: mib });
    await until(() => logSizes(dir)[0] === segmentBytes);
    let index = await fill(log, 0, 1000);
    // A batch that is larger than anything prepared meets the full disk: it waits for its own bytes.
    for (let i = 0; i < 20; i++) append(log, ++index, "y".repeat(100_000));
    log.kick(true);
    await until(() => !log.hasRoom());
    expect(index).toBeGreaterThan(150);
    fs.rmSync(join(mount, "few"));
    await untilDurable(log, () => log.durableIndex(shard) === index);
    await until(() => log.hasRoom());
    index = await fill(log, index, index + 3);
    await untilDurable(log, () => log.durableIndex(shard) === index);
    expect(logSizes(dir).length).toBeGreaterThan(2);
    expect(logSizes(dir).filter((size) => size >= segmentBytes)).toEqual([segmentBytes]);
    // With space again, segments grow again.
    fs.rmSync(join(mount, "ballast"));
    await until(() => log.hasRoom());
    index = await fill(log, index, index + 60);
    await untilDurable(log, () => log.durableIndex(shard) === index);
    expect(Math.max(...logSizes(dir).slice(1))).toBeGreaterThan(mib);
    await log.close();
    const opened = await WalLogStore.open({ dir, segmentBytes, bufferBytes: mib });
    expect([...opened.replay(shard, asIndex(1))]).toHaveLength(index);
    await opened.close();
    fs.rmSync(dir, { recursive: true });
  },
  30_000,
);

test.skipIf(!isMounted)(
  "a next segment that does not fit leaves its space to others while it waits [needs the right to mount]",
  async () => {
    const dir = join(mount, "other");
    const log = await WalLogStore.open({ dir, segmentBytes: 16 * mib, bufferBytes: mib });
    await until(() => logSizes(dir)[0] === 16 * mib);
    put("ballast", freeBytes() - mib / 2);
    const index = await fill(log, 0, 1000);
    expect(index).toBeGreaterThan(100);
    await until(() => freeBytes() >= mib / 4 && !fs.existsSync(join(dir, "wal-0000000002.log.next")));
    fs.rmSync(join(mount, "ballast"));
    await until(() => log.hasRoom());
    await log.close();
    fs.rmSync(dir, { recursive: true });
  },
  30_000,
);
