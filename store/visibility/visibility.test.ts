import { afterAll, beforeEach, expect, test } from "bun:test";
import fs from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { asIndex, asShardId, asTerm, HopError, InvariantError, keyMax, keyOfDigest, type RunId, wholeRange } from "#core/base";
import { decodeEvent, decodeRecord, fromBytes, RunStatus } from "#proto";
import { event, fixtureShard, RecordWriter, writeLife } from "../event-fixture.ts";
import { MemoryLogStore } from "../log/memory-log-store.ts";
import { WalLogStore } from "../log/wal-log-store.ts";
import { allRuns } from "./list-fixture.ts";
import { Projector } from "./projector.ts";
import { RunQuery } from "./query.ts";
import type { PlacedEvent } from "./run-rebuild.ts";
import type { RunRow } from "./schema.ts";

const root = fs.mkdtempSync(join(tmpdir(), "hop-visibility-"));
let counter = 0;
let path = "";
let warnings: string[] = [];
beforeEach(() => {
  path = join(root, `${++counter}.db`);
  warnings = [];
});
afterAll(() => fs.rmSync(root, { recursive: true }));

const openAt = (where: string, options: { logId?: string; durable?: number } = {}) =>
  Projector.open({
    path: where,
    logId: options.logId ?? "log-a",
    durableIndex: () => asIndex(options.durable ?? 1e9),
    isRemoved: () => false,
    warn: (text) => void warnings.push(text),
  });

/** A log, and a projection that took in all of it. */
async function project(fill: (writer: RecordWriter) => void) {
  const log = new MemoryLogStore();
  const writer = new RecordWriter(log);
  fill(writer);
  await writer.settle();
  const projector = openAt(path);
  projector.catchUp(log.replay(fixtureShard, asIndex(1)));
  return { log, projector, query: new RunQuery(projector.database, () => projector.commit()) };
}

test("each generation has one row, which says how it went", async () => {
  const { query, projector } = await project((writer) => {
    writer.record(event.started("run/a:one", 1), event.signal("run/a:one"));
    writer.record(event.failed("run/a:one"));
    writer.record(event.started("run/a:one", 2, "refund"));
    writer.record(event.cancelled("run/a:one"), event.blocked("run/a:one"));
    writer.record(event.resumed("run/a:one"));
    writer.record(event.started("run/b:it's; \u{1f600}/", 1), event.completed("run/b:it's; \u{1f600}/"));
  });
  const at = 1_700_000_000_000;
  expect(query.show("a:one" as RunId)).toEqual([
    {
      run: "a:one",
      generation: 2,
      namespace: "a",
      instance: "one",
      type: "refund",
      status: RunStatus.running,
      startedMs: at + 4,
      closedMs: 0,
      bundle: new Uint8Array(32).fill(9),
      note: "",
      cancelRequested: true,
      lastIndex: 5,
      expiredMs: 0,
      searchable: "{}",
      deadLetters: 0,
    },
    {
      run: "a:one",
      generation: 1,
      namespace: "a",
      instance: "one",
      type: "order",
      status: RunStatus.failed,
      startedMs: at + 1,
      closedMs: at + 3,
      bundle: new Uint8Array(32).fill(1),
      note: "OrderError: out of stock",
      cancelRequested: false,
      lastIndex: 2,
      expiredMs: 0,
      searchable: "{}",
      deadLetters: 0,
    },
  ]);
  expect(query.show("b:it's; \u{1f600}/" as RunId).map((row) => [row.instance, row.status])).toEqual([
    ["it's; \u{1f600}/", RunStatus.completed],
  ]);
  expect(query.show("a:' OR 1=1 --" as RunId)).toEqual([]);
  projector.close();
});

test("lists are filtered, newest first, and paged without gaps or repeats while rows come in", async () => {
  const { query, projector, log } = await project((writer) => writeLife(writer, 7, 300));
  const rows = query.list({ ...allRuns, limit: 1000 }).run;
  expect(rows.length).toBeGreaterThan(30);
  expect(rows.map((row) => row.startedMs)).toEqual(rows.map((row) => row.startedMs).sort((a, b) => b - a));
  const paged: string[] = [];
  let pageToken = "";
  do {
    const page = query.list({ ...allRuns, limit: 7, pageToken });
    paged.push(...page.run.map((row) => `${row.run}#${row.generation}`));
    pageToken = page.nextPageToken;
    const writer = new RecordWriter(log);
    writer.index = log.lastIndex(fixtureShard);
    writer.record(event.started(`run/default:late-${paged.length}`, 1));
    await writer.settle();
    projector.catchUp(log.replay(fixtureShard, asIndex(projector.appliedIndex(fixtureShard) + 1)));
  } while (pageToken !== "");
  const known = new Set(rows.map((row) => `${row.run}#${row.generation}`));
  expect(paged.filter((name) => known.has(name))).toEqual([...known]);
  expect(new Set(paged).size).toBe(paged.length);
  for (const filter of [
    { type: "refund" },
    { status: RunStatus.failed },
    { namespace: "default", type: "order", status: RunStatus.completed },
  ]) {
    const want = rows.filter((row) => Object.entries(filter).every(([key, value]) => key === "namespace" || row[key as "type"] === value));
    const got = query.list({ ...allRuns, ...filter, limit: 1000 }).run.filter((row) => !row.run.includes("late"));
    expect(got).toEqual(want);
    expect(want.length).toBeGreaterThan(3);
  }
  expect(query.list({ ...allRuns, namespace: "other" })).toEqual({ run: [], nextPageToken: "" });
  expect(query.list({ ...allRuns, type: "x' OR '1'='1" }).run).toEqual([]);
  projector.close();
});

test("a page token that was not made by a list is refused", async () => {
  const { query, projector } = await project((writer) => writer.record(event.started("run/a:b", 1)));
  for (const pageToken of ["x", "!!", Buffer.from('["a",1,2]').toString("base64url"), Buffer.from("null").toString("base64url")]) {
    expect(() => query.list({ ...allRuns, pageToken })).toThrow(HopError);
  }
  projector.close();
});

test("rebuilt from the log equals the live one, wherever it was interrupted", async () => {
  const { log, projector, query } = await project((writer) => writeLife(writer, 3, 400));
  const live = query.digest();
  projector.close();
  for (const cut of [1, 2, 57, 200, 399, 400]) {
    const where = `${path}-${cut}`;
    const first = openAt(where);
    for (const record of log.replay(fixtureShard, asIndex(1))) if (record.index <= cut) first.apply(record);
    if (cut % 2 === 0) first.commit();
    // The process dies here: what is not committed is gone with it.
    const image = `${where}-image`;
    for (const end of ["", "-wal"]) if (fs.existsSync(where + end)) fs.copyFileSync(where + end, image + end);
    first.close();
    const second = openAt(image);
    // Records that were taken before change nothing.
    second.catchUp(log.replay(fixtureShard, asIndex(1)));
    expect(new RunQuery(second.database).digest()).toBe(live);
    second.close();
  }
  expect(warnings).toEqual([]);
});

test("an index of another log, or from beyond the log's end, is set aside and built again", async () => {
  const { log, projector, query } = await project((writer) => writeLife(writer, 5, 100));
  const live = query.digest();
  projector.close();
  for (const [options, reason] of [
    [{ logId: "log-b" }, "belongs to log log-a"],
    [{ durable: 99 }, "is at index 100"],
  ] as const) {
    const opened = openAt(path, options);
    expect([opened.appliedIndex(fixtureShard), warnings.at(-1)?.includes(reason)]).toEqual([0, true]);
    opened.catchUp(log.replay(fixtureShard, asIndex(1)));
    expect(new RunQuery(opened.database).digest()).toBe(live);
    opened.close();
    projectAgain(log);
  }
});

function projectAgain(log: MemoryLogStore): void {
  const projector = openAt(path);
  projector.catchUp(log.replay(fixtureShard, asIndex(projector.appliedIndex(fixtureShard) + 1)));
  projector.close();
}

test("a newer format is set aside and built again, and said so", async () => {
  const { log, projector, query } = await project((writer) => writeLife(writer, 5, 100));
  const live = query.digest();
  projector.database.run("PRAGMA user_version = 99");
  projector.close();
  const opened = openAt(path);
  expect(warnings).toEqual([
    `The index of runs is built again from the log: ${path} was set aside, because it has format 99, this version writes 4`,
  ]);
  opened.catchUp(log.replay(fixtureShard, asIndex(1)));
  expect(new RunQuery(opened.database).digest()).toBe(live);
  opened.close();
});

const keyOf = (run: string) => keyOfDigest(new Uint8Array(Bun.SHA256.hash(`run/${run}`).buffer));

/** A parent that splits and absorbs its child again, with runs that live through both. */
async function family() {
  const log = new MemoryLogStore();
  const child = asShardId(2);
  const parentWriter = new RecordWriter(log);
  const childWriter = new RecordWriter(log, child, parentWriter.written);
  writeLife(parentWriter, 21, 150);
  const keys = [...parentWriter.chains.keys()].map((name) => keyOf(name.slice(4))).sort((a, b) => a - b);
  const at = keys[keys.length >> 1] as number;
  parentWriter.change({ kind: "split", value: { at, child } });
  parentWriter.hand(childWriter, (name) => keyOf(name.slice(4)) >= at);
  log.setBase(child, asIndex(1), asTerm(1));
  childWriter.index = asIndex(1);
  const moved = [...childWriter.chains.keys()];
  const stayed = [...parentWriter.chains.keys()];
  for (let i = 0; i < 40; i++) {
    childWriter.record(event.blocked(moved[i % moved.length] as string));
    parentWriter.record(event.cancelled(stayed[i % stayed.length] as string));
  }
  for (const name of moved) childWriter.record(event.failed(name));
  const { index: through } = childWriter;
  await childWriter.settle();
  childWriter.hand(parentWriter, () => true);
  parentWriter.change({ kind: "absorbed", value: { shard: child, through, last: keyMax } });
  for (const name of moved) parentWriter.record(event.started(name, 9, "again"));
  await parentWriter.settle();
  return { log, child, at, moved, stayed, through };
}

/** Takes in all shards' records in the order of `pick`, as far as each may come. */
function takeTurns(log: MemoryLogStore, projector: Projector, shards: readonly ReturnType<typeof asShardId>[]): void {
  for (let isMoving = true; isMoving; ) {
    isMoving = false;
    for (const shard of shards) {
      if (!projector.isBegun(shard)) continue;
      for (const record of log.replay(shard, asIndex(projector.appliedIndex(shard) + 1))) {
        if (projector.waitsFor(record) !== undefined) break;
        projector.apply(record);
        isMoving = true;
      }
    }
  }
  projector.commit();
}

test("a split and a merge keep the rows, in whichever order the shards' records come", async () => {
  const { log, child, moved, stayed } = await family();
  const digests = new Set<string>();
  for (const shards of [
    [fixtureShard, child],
    [child, fixtureShard],
  ]) {
    const projector = openAt(":memory:");
    takeTurns(log, projector, shards);
    const query = new RunQuery(projector.database);
    digests.add(query.digest());
    for (const name of moved) {
      const [now, before] = query.show(name.slice(4) as RunId);
      expect([now?.type, now?.status, before?.status]).toEqual(["again", RunStatus.running, RunStatus.failed]);
    }
    for (const name of stayed) expect(query.show(name.slice(4) as RunId)[0]?.cancelRequested).toBe(true);
    projector.close();
  }
  expect(digests.size).toBe(1);
});

test("a record that comes before what it rests on is a broken invariant", async () => {
  const { log, child, through } = await family();
  const projector = openAt(":memory:");
  const [early] = log.replay(child, asIndex(2));
  expect(() => projector.apply(early as never)).toThrow(InvariantError);
  const absorb = [...log.replay(fixtureShard, asIndex(1))].find((record) => projector.waitsFor(record) !== undefined);
  expect(projector.waitsFor(absorb as never)).toEqual({ shard: child, index: through });
  expect(() => projector.apply(absorb as never)).toThrow(InvariantError);
  projector.close();
});

test("a replica that goes takes the rows of its range along, and those of one that comes are taken whole", async () => {
  const { log, child, at, moved, stayed } = await family();
  const projector = openAt(path);
  const [firstPart] = [log.replay(fixtureShard, asIndex(1), asIndex(152))];
  projector.catchUp(firstPart as never);
  projector.catchUp(log.replay(child, asIndex(2)));
  const query = new RunQuery(projector.database);
  const whole = query.digest();
  const shown = (names: readonly string[]) => names.filter((name) => query.show(name.slice(4) as RunId).length > 0).length;
  const right = { first: at, last: keyMax };
  const batches = [...projector.rowsIn(right)];
  const appliedIndex = projector.appliedIndex(child);
  projector.forget(child, right);
  expect([shown(moved), shown(stayed), projector.isBegun(child), projector.appliedIndex(child)]).toEqual([0, stayed.length, false, 0]);
  for (const batch of batches) projector.takeRows(batch);
  projector.begin(child, asIndex(appliedIndex));
  projector.close();
  const again = openAt(path);
  expect([new RunQuery(again.database).digest(), again.appliedIndex(child)]).toEqual([whole, appliedIndex]);
  again.retain([right]);
  expect(new RunQuery(again.database).show(stayed[0]?.slice(4) as RunId)).toEqual([]);
  expect([...again.rowsIn(wholeRange)].flat().length).toBe(batches.flat().length);
  again.retain([]);
  expect([...again.rowsIn(wholeRange)]).toEqual([]);
  again.close();
});

test("entries without a record, and those of membership, move the applied index and no row", async () => {
  const log = new MemoryLogStore();
  log.append(fixtureShard, [
    { index: asIndex(1), term: asTerm(1), kind: "data", data: new Uint8Array(0) },
    { index: asIndex(2), term: asTerm(1), kind: "config", data: new Uint8Array([10, 200, 1]) },
  ]);
  log.kick(true);
  await new Promise<void>((resolve) => {
    log.onDurable = resolve;
  });
  const projector = openAt(path);
  projector.catchUp(log.replay(fixtureShard, asIndex(1)));
  projector.close();
  const again = openAt(path);
  expect([again.appliedIndex(fixtureShard), [...again.rowsIn(wholeRange)]]).toEqual([2, []]);
  again.close();
});

test("a projecting process killed with -9 at any commit goes on to the same rows", async () => {
  const dir = join(root, `log-${counter}`);
  const log = await WalLogStore.open({ dir, segmentBytes: 1 << 16, bufferBytes: 4096 });
  const writer = new RecordWriter(log);
  writeLife(writer, 11, 400);
  await writer.settle();
  await log.close();
  for (const lines of [1, 3, 2, 9, 5]) {
    const child = Bun.spawn([process.execPath, join(import.meta.dir, "projector-fixture.ts"), dir, path], { stdout: "pipe" });
    let seen = 0;
    for await (const chunk of child.stdout) {
      seen += new TextDecoder().decode(chunk).split("\n").length - 1;
      if (seen >= lines) break;
    }
    child.kill("SIGKILL");
    await child.exited;
  }
  const opened = await WalLogStore.open({ dir, segmentBytes: 1 << 16, bufferBytes: 4096 });
  const options = {
    logId: opened.logId,
    durableIndex: () => opened.durableIndex(fixtureShard),
    isRemoved: () => false,
    warn: (text: string) => void warnings.push(text),
  };
  const survivor = Projector.open({ path, ...options });
  const fresh = Projector.open({ path: ":memory:", ...options });
  expect(survivor.appliedIndex(fixtureShard)).toBeGreaterThan(0);
  for (const projector of [survivor, fresh])
    projector.catchUp(opened.replay(fixtureShard, asIndex(projector.appliedIndex(fixtureShard) + 1)));
  expect(new RunQuery(survivor.database).digest()).toBe(new RunQuery(fresh.database).digest());
  expect(warnings).toEqual([]);
  survivor.close();
  fresh.close();
  await opened.close();
}, 90_000);

test("rows that were being made anew when the process ended are known to be not all of them", async () => {
  const range = { first: 0, last: keyMax };
  const first = openAt(path);
  first.begin(fixtureShard, asIndex(5));
  first.rebuild(fixtureShard, range);
  expect([first.isUnfinished(fixtureShard), first.follows(fixtureShard)]).toEqual([true, false]);
  first.close();
  const second = openAt(path);
  expect([second.isUnfinished(fixtureShard), second.follows(fixtureShard)]).toEqual([true, false]);
  second.rebuild(fixtureShard, range).close();
  second.begin(fixtureShard, asIndex(7));
  second.close();
  const third = openAt(path);
  expect([third.isUnfinished(fixtureShard), third.appliedIndex(fixtureShard)]).toEqual([false, 7]);
  third.rebuild(fixtureShard, range).close();
  third.forget(fixtureShard, range);
  expect(third.isUnfinished(fixtureShard)).toBe(false);
  third.close();
});

const expiredOne = {
  generation: 1,
  type: "order",
  status: RunStatus.failed,
  startedMs: 1000,
  closedMs: 2000,
  bundle: new Uint8Array(32).fill(1),
  note: "n",
};

test("a history that expired leaves the rows that its event names, also where nothing else of it is there", async () => {
  const second = { ...expiredOne, generation: 2, closedMs: 3000, status: RunStatus.completed };
  const { query, projector, log } = await project((writer) => {
    writer.record(event.started("run/a:one", 1), event.failed("run/a:one"));
    writer.record(event.started("run/a:one", 2), event.completed("run/a:one"));
    writer.record(event.started("run/a:two", 1));
    writer.record(event.expired("run/a:one", expiredOne, second));
    writer.record(event.started("run/a:one", 3));
    writer.record(event.completed("run/a:two"));
  });
  const shown = query.show("a:one" as RunId);
  expect(shown.map(({ generation, closedMs, expiredMs }) => [generation, closedMs, expiredMs > 0])).toEqual([
    [3, 0, false],
    [2, 3000, true],
    [1, 2000, true],
  ]);
  expect(query.hasExpired()).toBe(true);
  const digest = query.digest();
  // As sealed segments may have it: all of it, some of it, or nothing but that event and what came later.
  const events: PlacedEvent[] = [];
  for (const { index, body } of log.replay(fixtureShard, asIndex(1)))
    for (const bytes of fromBytes(decodeRecord, body).event) {
      const { partition, seq } = fromBytes(decodeEvent, bytes);
      events.push({ partition: partition as PlacedEvent["partition"], seq, index, event: bytes.slice() });
    }
  for (const missing of [[], [0], [0, 1, 2], [1, 3], [0, 1, 2, 3]]) {
    const rebuild = projector.rebuild(fixtureShard, wholeRange);
    rebuild.add(events.filter(({ partition, seq }) => partition !== "run/a:one" || !missing.includes(seq)));
    for (const rows of rebuild.rows()) projector.takeRows(rows);
    rebuild.close();
    projector.begin(fixtureShard, asIndex(6));
    expect([missing, query.digest()]).toEqual([missing, digest]);
  }
  // Without that event, what is missing is missing.
  const rebuild = projector.rebuild(fixtureShard, wholeRange);
  rebuild.add(events.filter(({ partition, seq }) => partition === "run/a:one" && seq !== 0 && seq < 4));
  expect(() => [...rebuild.rows()]).toThrow("event 1 of run a:one is there, and its start is not");
});

test("ended() finds what a policy is about, page by page, the newest run of a name alone", async () => {
  const { query } = await project((writer) => {
    for (let i = 0; i < 5; i++)
      writer.record(event.started(`run/a:${i}`, 1, i % 2 === 0 ? "order" : "refund"), event.completed(`run/a:${i}`));
    writer.record(event.started("run/a:0", 2, "order"));
    writer.record(event.started("run/b:0", 1, "order"), event.completed("run/b:0"));
    writer.record(event.started("run/a:live", 1, "order"));
    writer.record(event.expired("run/a:2", { ...expiredOne, status: RunStatus.completed }));
  });
  const found = (types: { only: string } | { except: string[] }, beforeMs = Number.MAX_SAFE_INTEGER, ranges = [wholeRange]) => {
    const names: string[] = [];
    for (let after: RunRow | undefined; ; ) {
      const rows = query.ended({ namespace: "a", types, beforeMs, ranges, after, limit: 1 });
      after = rows[0];
      if (after === undefined) return names;
      names.push(after.instance);
    }
  };
  expect(found({ except: [] })).toEqual(["1", "3", "4"]);
  expect(found({ only: "refund" })).toEqual(["1", "3"]);
  expect(found({ except: ["refund", "other"] })).toEqual(["4"]);
  const [row] = query.show("a:3" as RunId);
  expect(found({ except: [] }, row?.closedMs)).toEqual(["1"]);
  expect(found({ except: [] }, Number.MAX_SAFE_INTEGER, [])).toEqual([]);
});

test("what is searchable is merged into a run's row, whether it began in the batch or before, and taken away by null", async () => {
  const [one, two] = ["run/default:a", "run/default:b"];
  const writers: RecordWriter[] = [];
  const { log, projector, query } = await project((writer) => {
    writers.push(writer);
    writer.record(event.started(one, 1), event.searchable(one, "customer", "ann"), event.searchable(one, "total", 5));
    writer.record(event.searchable(one, "total", 120.5), event.searchable(one, "paid", { time: 5 }));
  });
  const [writer] = writers as [RecordWriter];
  writer.record(event.searchable(one, "customer", null), event.started(two, 1));
  await writer.settle();
  projector.catchUp(log.replay(fixtureShard, asIndex(3)));
  const rows = query.list({ ...allRuns, query: "total > 100" }).run;
  expect(rows.map(({ run, searchable }) => [run, searchable])).toEqual([["default:a", '{"paid":{"time":5},"total":120.5}']]);
  expect(query.list({ ...allRuns, query: "customer IS NULL" }).run).toHaveLength(2);
  expect(query.list({ ...allRuns, query: "paid < '1970-01-02' AND status = 'running'" }).run).toHaveLength(1);
  projector.close();
});
