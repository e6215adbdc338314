import { afterAll, beforeEach, expect, test } from "bun:test";
import fs from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { asIndex, HopError, type RunId } from "#core/base";
import { type ListRequest, RunStatus } from "#proto";
import { event, fixtureShard, RecordWriter, writeLife } from "../event-fixture.ts";
import { MemoryLogStore } from "../log/memory-log-store.ts";
import { WalLogStore } from "../log/wal-log-store.ts";
import { Projector } from "./projector.ts";
import { RunQuery } from "./query.ts";

const root = fs.mkdtempSync(join(tmpdir(), "hop-visibility-"));
let counter = 0;
let path = "";
let warnings: string[] = [];
beforeEach(() => {
  path = join(root, `${++counter}.db`);
  warnings = [];
});
afterAll(() => fs.rmSync(root, { recursive: true }));

const all: ListRequest = { namespace: "", status: 0, type: "", limit: 0, pageToken: "" };
const openAt = (where: string, options: { logId?: string; durable?: number } = {}) =>
  Projector.open({
    path: where,
    logId: options.logId ?? "log-a",
    durableIndex: () => asIndex(options.durable ?? 1e9),
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
  const rows = query.list({ ...all, limit: 1000 }).run;
  expect(rows.length).toBeGreaterThan(30);
  expect(rows.map((row) => row.startedMs)).toEqual(rows.map((row) => row.startedMs).sort((a, b) => b - a));
  const paged: string[] = [];
  let pageToken = "";
  do {
    const page = query.list({ ...all, limit: 7, pageToken });
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
    const got = query.list({ ...all, ...filter, limit: 1000 }).run.filter((row) => !row.run.includes("late"));
    expect(got).toEqual(want);
    expect(want.length).toBeGreaterThan(3);
  }
  expect(query.list({ ...all, namespace: "other" })).toEqual({ run: [], nextPageToken: "" });
  expect(query.list({ ...all, type: "x' OR '1'='1" }).run).toEqual([]);
  projector.close();
});

test("a page token that was not made by a list is refused", async () => {
  const { query, projector } = await project((writer) => writer.record(event.started("run/a:b", 1)));
  for (const pageToken of ["x", "!!", Buffer.from('["a",1,2]').toString("base64url"), Buffer.from("null").toString("base64url")]) {
    expect(() => query.list({ ...all, pageToken })).toThrow(HopError);
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
}, 20_000);
