import { expect, test } from "bun:test";
import { asIndex, asShardId, Prng } from "#core/base";
import { checkReads, LogModel, prefixOf } from "./log-model.suite.ts";
import { append, type LogHarness, logStoreSuite, modelSuite, texts } from "./log-store.suite.ts";
import { MemoryDisk } from "./memory-disk.ts";
import { type LogSchedule, MemoryLogStore } from "./memory-log-store.ts";

const shard = asShardId(1);

function memoryHarness(): LogHarness {
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
}

logStoreSuite("MemoryLogStore", memoryHarness);
modelSuite("MemoryLogStore", memoryHarness, 60);

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

test("a crash in any flush, torn anywhere, leaves a prefix of the frames that has all durable ones", async () => {
  let torn = 0;
  for (let seed = 1; seed <= 12; seed++) {
    for (let crashAt = 0; crashAt < 12; crashAt++) {
      const disk = new MemoryDisk();
      const schedule = manual();
      const log = new MemoryLogStore(disk, schedule);
      const model = new LogModel(seed);
      const prng = new Prng(seed);
      for (let flush = 0; flush < crashAt; flush++) {
        for (let i = prng.below(6); i >= 0; i--) model.step(log);
        log.kick(true);
        schedule.land();
      }
      for (let i = 0; i < 5; i++) model.step(log);
      log.kick(true);
      const { frames } = model;
      const flying = frames.length;
      model.step(log);
      const durable = log.durablePosition();
      log.crash(new Prng(seed * 31 + crashAt));
      const opened = new MemoryLogStore(disk);
      const kept = prefixOf(opened, model, durable);
      if (kept > durable && kept < flying) torn++;
      model.forget(kept);
      await checkReads(opened, model, prng);
    }
  }
  expect(torn).toBeGreaterThan(30);
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
