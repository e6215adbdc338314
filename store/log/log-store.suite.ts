/** What every log store does, whatever its disk. */
import { afterEach, describe, expect, test } from "bun:test";
import { asIndex, asShardId, asTerm, type Index, Prng } from "#core/base";
import { CorruptionError } from "../corruption-error.ts";
import { checkDurable, checkEntries, checkReads, facts, factsOf, LogModel, prefixOf } from "./log-model.suite.ts";
import type { LogStore } from "./log-store.ts";
import { ReleasedError } from "./released-error.ts";

export interface LogHarness {
  open(): Promise<LogStore>;
  /** Ends the store that is open as a dying process does; `open` finds what was durable. */
  crash(): Promise<void>;
  setFull(full: boolean): void;
  /** Makes the next write fail for good. */
  breakDisk(): void;
  /** Changes a byte of the durable record with this index and body; the store stays open. */
  damage(index: Index, body: string): void;
  dispose(): Promise<void>;
}

const shard = asShardId(1);
const other = asShardId(7);

export function append(log: LogStore, index: number, text: string, to = shard): void {
  const writer = log.begin(to, asIndex(index), asTerm(3));
  writer.raw(new TextEncoder().encode(text));
  log.end();
}

/** Resolves after the group commit that makes `claim` true. */
export function untilDurable(log: LogStore, claim: () => boolean): Promise<void> {
  if (claim()) return Promise.resolve();
  return new Promise((resolve, reject) => {
    log.onDurable = () => claim() && resolve();
    log.onPoison = reject;
  });
}

export async function commit(log: LogStore, index: number, text: string, to = shard): Promise<void> {
  append(log, index, text, to);
  log.kick(true);
  await untilDurable(log, () => log.durableIndex(to) >= index);
}

export async function texts(log: LogStore, from = 1, of = shard): Promise<string[]> {
  const out: string[] = [];
  for await (const record of log.scan(of, asIndex(from)))
    out.push(`${record.index}/${record.term} ${new TextDecoder().decode(record.body)}`);
  return out;
}

export function logStoreSuite(name: string, make: () => LogHarness): void {
  describe(name, () => {
    let harness: LogHarness;
    const open = () => {
      harness = make();
      return harness.open();
    };
    afterEach(() => harness.dispose());

    test("an appended record is durable after its group commit, and read back", async () => {
      const log = await open();
      append(log, 1, "one");
      expect([log.lastIndex(shard), log.durableIndex(shard)]).toEqual([asIndex(1), asIndex(0)]);
      log.kick(true);
      await untilDurable(log, () => log.durableIndex(shard) === 1);
      const { body, ...rest } = await log.read(shard, asIndex(1));
      expect({ ...rest, text: new TextDecoder().decode(body) }).toEqual({
        shard,
        index: asIndex(1),
        term: asTerm(3),
        kind: "data",
        text: "one",
      });
    });

    test("records of several shards keep their own order", async () => {
      const log = await open();
      log.setBase(other, asIndex(100), asTerm(2));
      for (let i = 1; i <= 5; i++) {
        append(log, i, `a${i}`);
        append(log, i + 100, `b${i}`, other);
      }
      log.kick(true);
      await untilDurable(log, () => log.durableIndex(shard) === 5);
      expect(await texts(log, 3)).toEqual(["3/3 a3", "4/3 a4", "5/3 a5"]);
      expect(await texts(log, 0, other)).toEqual(["101/3 b1", "102/3 b2", "103/3 b3", "104/3 b4", "105/3 b5"]);
    });

    test("many records at a time are those that come one by one, in order and in parts", async () => {
      const log = await open();
      for (let i = 1; i <= 300; i++) {
        append(log, i, `${i} ${"x".repeat(1000)}`);
        append(log, i, "of another", other);
      }
      append(log, 301, "y".repeat(200_000));
      append(log, 302, "last");
      log.kick(true);
      await untilDurable(log, () => log.durableIndex(shard) === 302);
      const [found, counts]: [string[], number[]] = [[], []];
      for await (const records of log.scanMany(shard, asIndex(2), asIndex(303))) {
        for (const { index, term, body } of records) found.push(`${index}/${term} ${new TextDecoder().decode(body)}`);
        counts.push(records.length);
      }
      expect(found).toEqual(await texts(log, 2));
      expect(Math.max(...counts)).toBeLessThan(80);
    });

    test("a record that nothing waits for becomes durable by itself", async () => {
      const log = await open();
      append(log, 1, "rides");
      log.kick(false);
      await untilDurable(log, () => log.durableIndex(shard) === 1);
      expect(await texts(log)).toEqual(["1/3 rides"]);
    });

    test("what gathers during a write goes with the next one", async () => {
      const log = await open();
      append(log, 1, "first");
      log.kick(true);
      let flushes = 0;
      const done = Promise.withResolvers<void>();
      log.onDurable = () => {
        flushes++;
        if (flushes === 1) {
          for (let i = 2; i <= 50; i++) append(log, i, `later ${i}`);
          log.kick(true);
        }
        if (log.durableIndex(shard) === 50) done.resolve();
      };
      await done.promise;
      expect(flushes).toBe(2);
    });

    test("a record that is not durable is not read", async () => {
      const log = await open();
      append(log, 1, "early");
      const read = log.read(shard, asIndex(1));
      await expect(read).rejects.toThrow("Cannot read record 1 of shard 1: the log does not hold it durably");
      expect(await texts(log)).toEqual([]);
    });

    test("a crash keeps what was durable, and the log goes on behind it", async () => {
      let log = await open();
      for (let i = 1; i <= 3; i++) await commit(log, i, `kept ${i}`);
      append(log, 4, "lost");
      await harness.crash();
      log = await harness.open();
      expect([log.lastIndex(shard), log.durableIndex(shard)]).toEqual([asIndex(3), asIndex(3)]);
      await commit(log, 4, "new");
      expect(await texts(log)).toEqual(["1/3 kept 1", "2/3 kept 2", "3/3 kept 3", "4/3 new"]);
    });

    test("close writes what was appended", async () => {
      let log = await open();
      append(log, 1, "one");
      await log.close();
      log = await harness.open();
      expect(await texts(log)).toEqual(["1/3 one"]);
    });

    test("a compacted log keeps what is above, and reads go on below", async () => {
      let log = await open();
      for (let i = 1; i <= 5; i++) await commit(log, i, `entry ${i}`);
      log.compact(shard, asIndex(3));
      const check = async () => {
        expect([log.base(shard), log.firstIndex(shard), log.lastIndex(shard)]).toEqual([
          { index: asIndex(3), term: asTerm(3) },
          asIndex(4),
          asIndex(5),
        ]);
        expect([log.term(shard, asIndex(2)), log.term(shard, asIndex(3)), log.term(shard, asIndex(4))]).toEqual([
          undefined,
          asTerm(3),
          asTerm(3),
        ]);
        expect(log.entries(shard, asIndex(4), asIndex(6), 1e6).map(({ index }) => index as number)).toEqual([4, 5]);
        expect(() => log.entries(shard, asIndex(3), asIndex(6), 1e6)).toThrow("has entries 4 to 5");
        expect(await texts(log)).toEqual(["1/3 entry 1", "2/3 entry 2", "3/3 entry 3", "4/3 entry 4", "5/3 entry 5"]);
      };
      await check();
      await log.close();
      log = await harness.open();
      await check();
      await commit(log, 5, "again");
      expect(await texts(log, 4)).toEqual(["4/3 entry 4", "5/3 again"]);
    });

    test("released records are told from damaged and missing ones, also after a restart", async () => {
      let log = await open();
      for (let i = 1; i <= 5; i++) await commit(log, i, `entry ${i}`);
      log.ingestArchive(other, [{ index: asIndex(7), term: asTerm(1), kind: "data", data: new Uint8Array([55]) }]);
      log.compact(shard, asIndex(4));
      log.release(shard, asIndex(2));
      // Of a shard without a log anything is archive.
      log.release(other, asIndex(6));
      const check = async () => {
        expect([log.released(shard), log.released(other), log.shards().includes(other)]).toEqual([asIndex(2), asIndex(6), false]);
        const error = await log.read(shard, asIndex(2)).catch((e: unknown) => e);
        expect(error).toBeInstanceOf(ReleasedError);
        expect(error).toMatchObject({ shard, index: asIndex(2), released: asIndex(2) });
        expect((await log.read(shard, asIndex(3))).index).toBe(asIndex(3));
        await expect(log.read(shard, asIndex(6))).rejects.toThrow("does not hold it durably");
        expect([await texts(log), await texts(log, 1, other)]).toEqual([["3/3 entry 3", "4/3 entry 4", "5/3 entry 5"], ["7/1 7"]]);
      };
      log.kick(true);
      await untilDurable(log, () => log.durablePosition() === log.position());
      await check();
      await log.close();
      log = await harness.open();
      await check();
    });

    test("only archive is released, and a log begins behind a durable record only", async () => {
      const log = await open();
      for (let i = 1; i <= 3; i++) await commit(log, i, `${i}`);
      append(log, 4, "not durable");
      expect(() => log.compact(shard, asIndex(4))).toThrow("begins behind a durable record: 1 to 3, got 4");
      log.compact(shard, asIndex(2));
      expect(() => log.compact(shard, asIndex(1))).toThrow("3 to 3, got 1");
      expect(() => log.release(shard, asIndex(3))).toThrow("only archive is released: the log of shard 1 begins behind 2, got 3");
      log.release(shard, asIndex(2));
      const position = log.position();
      log.compact(shard, asIndex(2));
      log.release(shard, asIndex(1));
      expect([log.position(), log.released(shard)]).toEqual([position, asIndex(2)]);
    });

    test("a log that begins again below what was released is read, and goes to the sealed tier where it ends", async () => {
      const log = await open();
      for (let i = 1; i <= 3; i++) await commit(log, i, `old ${i}`);
      log.remove(shard);
      log.release(shard, asIndex(3));
      log.setBase(shard, asIndex(1), asTerm(2));
      await commit(log, 2, "new 2");
      expect(await texts(log)).toEqual(["2/3 new 2"]);
      await expect(log.read(shard, asIndex(3))).rejects.toBeInstanceOf(ReleasedError);
      log.compact(shard, asIndex(2));
      await expect(log.read(shard, asIndex(2))).rejects.toBeInstanceOf(ReleasedError);
    });

    test("usage tells what is of use, by shard", async () => {
      const log = await open();
      for (let i = 1; i <= 4; i++) await commit(log, i, "x".repeat(100));
      await commit(log, 1, "y", other);
      const before = log.usage();
      log.compact(shard, asIndex(4));
      log.release(shard, asIndex(4));
      log.kick(true);
      await untilDurable(log, () => log.durablePosition() === log.position());
      const after = log.usage();
      expect(new Set(before.shards.keys())).toEqual(new Set([shard, other]));
      expect([...after.shards.keys()]).toEqual([other]);
      expect(before.liveBytes - after.liveBytes).toBeGreaterThanOrEqual(400);
      expect(after.bytes).toBeGreaterThanOrEqual(after.liveBytes);
    });

    test("a full disk acknowledges nothing, and the log goes on when there is space", async () => {
      const log = await open();
      await commit(log, 1, "before");
      harness.setFull(true);
      let wasAcknowledged = false;
      append(log, 2, "waits");
      log.onDurable = () => {
        wasAcknowledged = true;
      };
      log.kick(true);
      await until(() => !log.hasRoom());
      expect([log.durableIndex(shard), wasAcknowledged]).toEqual([asIndex(1), false]);
      expect(await texts(log)).toEqual(["1/3 before"]);
      harness.setFull(false);
      await untilDurable(log, () => log.durableIndex(shard) === 2);
      await until(() => log.hasRoom());
      expect(await texts(log)).toEqual(["1/3 before", "2/3 waits"]);
    });

    test("a broken disk poisons the log once, and nothing is acknowledged any more", async () => {
      const log = await open();
      await commit(log, 1, "before");
      harness.breakDisk();
      const causes: Error[] = [];
      let acknowledged = 0;
      const poisoned = Promise.withResolvers<void>();
      log.onDurable = () => {
        acknowledged++;
      };
      log.onPoison = (cause) => {
        causes.push(cause);
        poisoned.resolve();
      };
      append(log, 2, "lost");
      log.kick(true);
      await poisoned.promise;
      append(log, 3, "lost too");
      log.kick(true);
      await log.close();
      expect([causes.length, acknowledged, log.durableIndex(shard), log.hasRoom()]).toEqual([1, 0, asIndex(1), false]);
    });

    test("a damaged record is named when it is read, and others stay readable", async () => {
      const log = await open();
      const body = (i: number) => `${i} ${"x".repeat(2000)}`;
      for (let i = 1; i <= 40; i++) await commit(log, i, body(i));
      harness.damage(asIndex(20), body(20));
      const error = await log.read(shard, asIndex(20)).catch((e: unknown) => e);
      expect(error).toBeInstanceOf(CorruptionError);
      expect((error as CorruptionError).damage).toMatchObject({ shard, index: asIndex(20) });
      expect((await log.read(shard, asIndex(40))).index).toBe(asIndex(40));
      expect(await texts(log).catch((e: unknown) => (e as CorruptionError).damage.index)).toEqual(asIndex(20) as never);
    });
  });
}

/** Appends operations of a seed, with flushes and crashes between, and compares with the model all along. */
export function modelSuite(name: string, make: () => LogHarness, seeds: number): void {
  test(`${name}: random operations, flushes and crashes give what the list of frames gives`, async () => {
    for (let seed = 1; seed <= seeds; seed++) {
      const harness = make();
      const model = new LogModel(seed);
      const prng = new Prng(seed * 7919);
      let log = await harness.open();
      /** Frames before this life of the store. */
      let before = 0;
      for (let round = 0; round < 40; round++) {
        for (let i = prng.below(8); i >= 0; i--) model.step(log);
        expect(facts(log)).toEqual(factsOf(model.fold()));
        expect(before + log.position()).toBe(model.frames.length);
        checkEntries(log, model, prng);
        checkDurable(log, model, before + log.durablePosition());
        if (prng.chance(0.3)) continue;
        const durableBefore = log.durablePosition();
        log.kick(true);
        if (prng.chance(0.5)) {
          // What comes now finds a write under way.
          await Promise.resolve();
          for (let i = prng.below(4); i >= 0; i--) model.step(log);
          checkEntries(log, model, prng);
          log.kick(true);
        }
        if (prng.chance(0.7)) {
          await until(() => log.durablePosition() > durableBefore || log.durablePosition() === log.position());
          checkDurable(log, model, before + log.durablePosition());
          await until(() => log.durablePosition() === log.position());
          checkDurable(log, model, before + log.durablePosition());
          await checkReads(log, model, prng);
          checkEntries(log, model, prng);
        }
        if (!prng.chance(0.2)) continue;
        let durable = before + log.durablePosition();
        if (prng.chance(0.7)) await harness.crash();
        else {
          durable = model.frames.length;
          await log.close();
        }
        log = await harness.open();
        before = prefixOf(log, model, durable);
        // Frames that changed nothing leave no trace by which to tell how many came through.
        model.forget(before);
        checkDurable(log, model, before);
        await checkReads(log, model, prng);
      }
      await harness.dispose();
    }
  }, 60_000);
}

/** Polls in the event loop's own pace: the condition has no event of its own. */
export async function until(claim: () => boolean): Promise<void> {
  while (!claim()) await new Promise((resolve) => setImmediate(resolve));
}
