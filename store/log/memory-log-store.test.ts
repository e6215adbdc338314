import { expect, test } from "bun:test";
import { asIndex, asShardId, Prng } from "#core/base";
import { append, logStoreSuite, texts } from "./log-store.suite.ts";
import { type LogSchedule, MemoryDisk, MemoryLogStore } from "./memory-log-store.ts";

const shard = asShardId(1);

logStoreSuite("MemoryLogStore", () => {
  const disk = new MemoryDisk();
  let log: MemoryLogStore;
  return {
    open: async () => {
      log = new MemoryLogStore(disk);
      return log;
    },
    crash: async () => log.crash(),
    setFull: (full) => {
      disk.isFull = full;
    },
    breakDisk: () => {
      disk.failure = new Error("input/output error");
    },
    damage: (index) => disk.damage(shard, index),
    dispose: () => log.close(),
  };
});

/** A schedule that does nothing until it is told to. */
function manual(): LogSchedule & { land(): void } {
  const writes: (() => void)[] = [];
  return { soon: (run) => run(), after: () => {}, write: (_bytes, done) => void writes.push(done), land: () => writes.shift()?.() };
}

test("a torn flush keeps a prefix of whole records, and every length of it comes up", async () => {
  const kept = new Set<number>();
  for (let seed = 0; seed < 60; seed++) {
    const disk = new MemoryDisk();
    const schedule = manual();
    const log = new MemoryLogStore(disk, schedule);
    append(log, 1, "acknowledged");
    log.kick(true);
    schedule.land();
    for (let i = 2; i <= 4; i++) append(log, i, `flying ${i}`);
    log.kick(true);
    append(log, 5, "never written");
    log.crash(new Prng(seed));
    schedule.land();
    const found = await texts(new MemoryLogStore(disk));
    expect(found).toEqual(["1/3 acknowledged", "2/3 flying 2", "3/3 flying 3", "4/3 flying 4"].slice(0, found.length));
    kept.add(found.length);
  }
  expect(kept).toEqual(new Set([1, 2, 3, 4]));
});

test("a crash without a torn flush loses the write in flight, and its late landing does nothing", async () => {
  const disk = new MemoryDisk();
  const schedule = manual();
  const log = new MemoryLogStore(disk, schedule);
  append(log, 1, "flying");
  log.kick(true);
  log.crash();
  schedule.land();
  expect(new MemoryLogStore(disk).lastIndex(shard)).toBe(asIndex(0));
});
