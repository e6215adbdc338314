/** Cold queries over 100,000 events in a folder: what they see, what they read, what they refuse. */
import { afterAll, beforeAll, describe, expect, setDefaultTimeout, test } from "bun:test";
import { createHash } from "node:crypto";
import { copyFileSync, cpSync, existsSync, mkdtempSync, readdirSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { parse } from "csv-parse/sync";
import { toHex } from "#core/base";
import { EventKind, encodeRunCompleted, encodeRunStarted, encodeStartQueued, toBytes } from "#proto";
import type { Manifest, SegmentEntry } from "#store";
import { busyShard, RecordMaker } from "../../store/segment/sealed/records-fixture.ts";
import { ask, rowsOf } from "./ask.ts";
import { cluster, fillBucket } from "./cold-bucket.ts";

/** On a machine that is busy with other things too. */
setDefaultTimeout(60_000);

const root = mkdtempSync(join(tmpdir(), "hop-cold-"));
afterAll(() => rmSync(root, { recursive: true, force: true }));

const events = 100_000;
const bucket = join(root, "bucket");
const options = { objectStore: `file://${bucket}` };
let manifest: Manifest;

beforeAll(async () => {
  const records = [...busyShard(events)];
  manifest = await fillBucket(options.objectStore, records, Math.ceil(records.length / 10));
}, 60_000);

const readLine = (err: string) => /Read (\d+) of (\d+) segments \(([^)]*)\)/.exec(err)?.slice(1) ?? [];
const timesOf = ({ summary }: SegmentEntry) => summary.extent ?? expect.unreachable();

describe("what is seen", () => {
  test("the rows of each segment are those that the manifest names, to the hash", async () => {
    for (const { summary } of manifest.segments) {
      const found = await rowsOf<{ hash: string }>(
        `SELECT hash FROM events WHERE shard = 1 AND log_index BETWEEN ${summary.firstIndex} AND ${summary.lastIndex} ORDER BY partition, seq`,
        { ...options, all: true },
      );
      const digest = createHash("sha256");
      for (const { hash } of found) digest.update(hash, "hex");
      expect([found.length, digest.digest("hex")]).toEqual([summary.rows, toHex(summary.digest)]);
    }
  }, 60_000);

  test("no event is there twice", async () => {
    const counted = "SELECT count(*) AS rows, count(DISTINCT (partition, seq)) AS events FROM events";
    const rows = manifest.segments.reduce((sum, { summary }) => sum + summary.rows, 0);
    expect(await rowsOf(counted, options)).toEqual([{ rows, events: rows }]);
    expect(rows).toBeGreaterThanOrEqual(events);
  });

  test("kinds have names, payloads are decoded, and runs are made of events", async () => {
    const [started] = await rowsOf("SELECT * FROM events WHERE kind = 'RunStarted' ORDER BY partition LIMIT 1", options);
    expect(started).toMatchObject({
      partition: expect.stringMatching(/^run\/default:order-/),
      namespace: "default",
      seq: 0,
      kind_number: 1,
      data: { generation: 1, type: "order", bundle: "07".repeat(32), input: { sku: expect.any(String), total: expect.any(Number) } },
      identity_subject: "auth0|5f7c8ec7c33c6c004bbafe82",
      identity_verified: true,
      shard: 1,
    });
    const [run] = await rowsOf(`SELECT * FROM runs WHERE run = '${String(started?.run)}'`, options);
    expect(run).toMatchObject({ run: started?.run, generation: 1, type: "order", started: started?.time });
    const [wide] = await rowsOf("SELECT (SELECT count(*) FROM runs) AS runs, (SELECT count(DISTINCT run) FROM events) AS names", options);
    expect(wide?.runs).toBe(wide?.names);
    const counts = "SELECT status, count(*) AS count FROM runs GROUP BY ALL ORDER BY ALL";
    const kinds = "SELECT count(*) FILTER (kind = 'RunCompleted') AS done FROM events";
    const [completed] = await rowsOf(counts, options);
    expect(completed).toEqual({ status: "completed", count: ((await rowsOf(kinds, options))[0] as { done: number }).done });
  });

  test("an event of a kind that is not known, and one whose message can't be read, are shown without data", async () => {
    const url = `file://${join(root, "odd")}`;
    const maker = new RecordMaker();
    maker.record({ partition: "run/a:b", kind: 4_000_000_000 }, { partition: "run/a:b", kind: 1, payload: Uint8Array.of(255) });
    maker.record({ partition: "cluster" });
    await fillBucket(url, maker.records, 10);
    expect(await rowsOf("SELECT run, kind, data FROM events ORDER BY log_index, seq", { objectStore: url })).toEqual([
      { run: "a:b", kind: "kind 4000000000", data: null },
      { run: "a:b", kind: "RunStarted", data: null },
      { run: null, kind: "SignalReceived", data: expect.anything() },
    ]);
  });
});

test("a run whose start was queued was started by who queued it, and ends as any other", async () => {
  const url = `file://${join(root, "queued")}`;
  const maker = new RecordMaker();
  const partition = "run/a:b";
  const by = (subject: string) => ({ issuer: "local", subject });
  const started = (generation: number, ticket: number) => ({
    partition,
    kind: EventKind.runStarted,
    payload: toBytes(encodeRunStarted, { generation, type: "order", ticket }),
  });
  maker.record({ ...started(1, 0), identity: by("ann") });
  maker.record({ partition, kind: EventKind.startQueued, payload: toBytes(encodeStartQueued, { type: "order" }), identity: by("bob") });
  maker.record({ partition, kind: EventKind.runCompleted }, { ...started(2, 1), identity: { issuer: "core", causeSeq: 1 } });
  await fillBucket(url, maker.records, 10);
  const rows = await rowsOf("SELECT generation, status, started_by FROM runs ORDER BY generation", { objectStore: url });
  expect(rows).toEqual([
    { generation: 1, status: "completed", started_by: "ann" },
    { generation: 2, status: "running", started_by: "bob" },
  ]);
});

test("payloads that are no JSON, or one that not every reader takes, break no query", async () => {
  const url = `file://${join(root, "payloads")}`;
  const maker = new RecordMaker();
  const payloads = ['{"n":12345678901234567890}', '"\\ud800"', '{"\\udc00":1}', '"\\ud83d\\ude00"', "\u00ff", "", "{", '{"base64":1}'];
  const bytes = payloads.map((text) => (text === "\u00ff" ? Uint8Array.of(255) : new TextEncoder().encode(text)));
  for (const data of bytes)
    maker.record({ partition: "run/a:b", kind: EventKind.runCompleted, payload: toBytes(encodeRunCompleted, { result: { data } }) });
  await fillBucket(url, maker.records, 100);
  const { out } = await ask("SELECT data->'$.result' AS x FROM events ORDER BY seq", { objectStore: url, csv: true });
  const base64 = (i: number) => `{"base64":"${Buffer.from(bytes[i] as Uint8Array).toString("base64")}"}`;
  expect((parse(out, { columns: true }) as { x: string }[]).map(({ x }) => x)).toEqual([
    '{"n":12345678901234567890}',
    base64(1),
    base64(2),
    '"😀"',
    base64(4),
    "null",
    base64(6),
    '{"base64":1}',
  ]);
});

test("nothing of the folder is changed, and one that was copied without its leavings is read", async () => {
  const copy = join(root, "copy");
  cpSync(bucket, copy, { recursive: true });
  rmSync(join(copy, ".incoming"), { recursive: true, force: true });
  const before = new Set(readdirSync(copy, { recursive: true, encoding: "utf8" }));
  expect((await ask("SELECT 1", { objectStore: `file://${copy}` })).code).toBe(0);
  expect(new Set(readdirSync(copy, { recursive: true, encoding: "utf8" }))).toEqual(before);
});

describe("what is read", () => {
  const whole = () => manifest.segments.reduce((sum, { summary }) => sum + summary.segmentBytes, 0);

  test("a time reads the segments of that time", async () => {
    const [, , third] = manifest.segments as [SegmentEntry, SegmentEntry, SegmentEntry];
    const { firstTimeMs, lastTimeMs } = timesOf(third);
    const range = { since: new Date(firstTimeMs + 1).toISOString(), until: new Date(lastTimeMs).toISOString() };
    const { out, err } = await ask("SELECT min(time_ms), max(time_ms) FROM events", { ...options, ...range, csv: true });
    expect(out.split("\n")[1]).toBe(`${firstTimeMs + 1},${lastTimeMs - 1}`);
    expect(readLine(err).slice(0, 2)).toEqual(["1", "10"]);
    expect(third.summary.segmentBytes).toBeLessThan(whole() / 8);
  });

  test("one run reads the segments that have it, by their filters", async () => {
    const [run] = await rowsOf<{ run: string; events: number; first: number; last: number }>(
      "SELECT run, count(*) AS events, min(log_index) AS first, max(log_index) AS last FROM events GROUP BY run ORDER BY min(time_ms) LIMIT 1",
      options,
    );
    if (run === undefined) return expect.unreachable();
    const { out, err } = await ask("SELECT count(*) FROM events", { ...options, run: run.run, output: "ids" });
    expect(out).toBe(`${run.events}\n`);
    const wanted = manifest.segments.filter(({ summary }) => summary.firstIndex <= run.last && summary.lastIndex >= run.first);
    expect(Number(readLine(err)[0] ?? wanted.length)).toBeLessThanOrEqual(wanted.length);
    const table = await ask("SELECT count(*) FROM events", { ...options, run: run.run });
    expect(readLine(table.err).slice(0, 2)).toEqual([String(wanted.length), "10"]);
    expect(wanted.length).toBeLessThan(5);
  });

  test("what no segment has reads none, and has the same columns", async () => {
    const none = { ...options, namespace: "nobody" };
    const { code, out, err } = await ask("SELECT * FROM events", { ...none, csv: true });
    expect([code, out.split("\n").length, readLine(err).slice(0, 2)]).toEqual([0, 2, ["0", "10"]]);
    const [head] = (await ask("SELECT * FROM events", { ...options, csv: true, limit: "1" })).out.split("\n");
    expect(out).toBe(`${head}\n`);
    expect(await rowsOf("SELECT count(*) AS n FROM runs", none)).toEqual([{ n: 0 }]);
  });
});

describe("what is refused", () => {
  const outside = join(root, "outside.txt");
  writeFileSync(outside, "secret\n");
  const target = join(root, "written.csv");
  const segment = () => join(bucket, (manifest.segments[0] as SegmentEntry).segment);

  const statements: readonly (readonly [string, string])[] = [
    [`COPY (SELECT 1) TO '${target}'`, "Cannot run COPY: a cold query is one statement that only reads"],
    [`ATTACH '${target}'`, "Cannot run ATTACH"],
    ["INSTALL httpfs", "Cannot run INSTALL"],
    ["LOAD httpfs", "Cannot run LOAD"],
    ["PRAGMA database_list", "Cannot run PRAGMA"],
    ["SET memory_limit = '8GB'", "Cannot run SET"],
    [`EXPORT DATABASE '${target}'`, "Cannot run EXPORT"],
    [`EXPLAIN ANALYZE COPY (SELECT 1) TO '${target}'`, "Cannot run EXPLAIN"],
    ["CREATE TABLE t AS SELECT 1", "Cannot run CREATE"],
    ["CALL pragma_version()", "Cannot run CALL"],
    ["/* SELECT */ -- SELECT\n DROP VIEW events", "Cannot run DROP"],
    ["SELECT 1; DROP VIEW events", "Cannot run 2 statements at once"],
    ["", "Cannot run an empty query"],
    [`SELECT 1) TO '${target}'; COPY (SELECT 1`, "Cannot run the query: Parser Error"],
    [`SELECT * FROM query('COPY (SELECT 1) TO ''${target}''')`, "Cannot run the query"],
    [`SELECT * FROM read_text('${outside}')`, `Cannot run the query: it wants "${outside}", and a cold query reads sealed segments only`],
    [`SELECT * FROM read_csv('${outside}')`, "a cold query reads sealed segments only"],
    [`FROM '${outside}'`, "Cannot run the query: Catalog Error"],
    [`SELECT * FROM glob('${root}/*')`, "a cold query reads sealed segments only"],
    ["SELECT * FROM read_parquet('https://localhost/a.parquet')", "a cold query reads sealed segments only"],
    ["SELECT * FROM read_parquet('s3://bucket/a.parquet')", "a cold query reads sealed segments only"],
    ["SELECT getenv('HOME')", "Cannot run the query: Catalog Error"],
    ["SELEC 1", "Cannot run SELEC"],
    ["SELECT no_such_column FROM events", "LINE 1: SELECT no_such_column"],
  ];

  for (const [statement, problem] of statements) {
    test(statement.replaceAll(root, "…").replaceAll("\n", " ") || "nothing", async () => {
      const before = readFileSync(segment());
      const { code, out, err } = await ask(statement, options);
      expect([code, out]).toEqual([2, ""]);
      expect(err).toContain(problem);
      expect(err).toContain("next:");
      expect(existsSync(target)).toBe(false);
      expect(readFileSync(segment()).equals(before)).toBe(true);
    });
  }

  test("a segment is not written over, though it may be read", async () => {
    const before = readFileSync(segment());
    expect((await ask(`COPY (SELECT 1) TO '${segment()}'`, options)).code).toBe(2);
    expect(readFileSync(segment()).equals(before)).toBe(true);
    expect(readdirSync(join(bucket, cluster, "segment")).length).toBe(10);
  });

  test("DESCRIBE, SHOW, SUMMARIZE, VALUES and WITH only read", async () => {
    for (const query of [
      "DESCRIBE events",
      "SHOW TABLES",
      "SUMMARIZE runs",
      "VALUES (1)",
      "WITH a AS (SELECT 1) FROM a",
      "TABLE runs",
      "(SELECT 1)",
    ])
      expect([query, (await ask(query, { ...options, limit: "1" })).code]).toEqual([query, 0]);
    expect((await ask("SELECT 1 -- no more", options)).code).toBe(0);
    expect((await ask("SELECT 1;\n", options)).code).toBe(0);
  });
});

describe("limits", () => {
  test("rows: 1000 unless told otherwise, and it is said that there are more", async () => {
    const cut = await ask("SELECT seq FROM events", { ...options, output: "ids" });
    expect([cut.out.trimEnd().split("\n").length, cut.err]).toEqual([
      1000,
      "There are more rows than 1000: see them with --limit or --all\n",
    ]);
    const exact = await ask("SELECT seq FROM events LIMIT 5", { ...options, output: "ids", limit: "5" });
    expect([exact.out.trimEnd().split("\n").length, exact.err]).toEqual([5, ""]);
    const all = await ask("SELECT seq FROM events", { ...options, output: "ids", all: true });
    expect(all.out.trimEnd().split("\n").length).toBeGreaterThanOrEqual(events);
  });

  test("time: what takes longer is stopped", async () => {
    const endless = "SELECT count(*) FROM range(100000000000) a, range(1000) b WHERE a.range * b.range % 7 = 3";
    const { code, err } = await ask(endless, { ...options, timeout: "1s", since: "1ms" });
    expect([code, err]).toEqual([6, expect.stringContaining("Cannot finish within 1s")]);
    const decoding = "SELECT count(DISTINCT md5(data || a.range)) FROM events, range(100000) a";
    expect((await ask(decoding, { ...options, timeout: "1s" })).code).toBe(6);
    const interrupt = AbortSignal.timeout(300);
    const caught = await ask(endless, { ...options, since: "1ms" }, { interrupt });
    expect(caught.err).toContain("Interrupted");
  }, 30_000);

  test("memory: what needs more is stopped, and nothing is written to disk", async () => {
    const greedy = "SELECT list(payload || event) FROM events, range(50)";
    const { code, err } = await ask(greedy, { ...options, memory: "64MiB" });
    expect([code, err]).toEqual([1, expect.stringContaining("it needs more than 64 MiB of memory")]);
    expect(err).toContain("--memory");
    expect(existsSync(".tmp")).toBe(false);
  }, 30_000);
});

describe("damage", () => {
  const copyOf = (name: string) => {
    const folder = join(root, name);
    cpSync(bucket, folder, { recursive: true });
    return folder;
  };

  test("a segment with one changed bit is not opened, though Parquet would read it", async () => {
    const folder = copyOf("changed");
    const { segment } = manifest.segments[4] as SegmentEntry;
    const bytes = readFileSync(join(folder, segment));
    bytes[bytes.length >> 1] = (bytes[bytes.length >> 1] as number) ^ 1;
    writeFileSync(join(folder, segment), bytes);
    const { code, out, err } = await ask("SELECT count(*) FROM events", { objectStore: `file://${folder}` });
    expect([code, out]).toEqual([1, ""]);
    expect(err).toContain(`Cannot query ${segment}: it is not what was sealed: SHA-256 is`);
    expect(err).toContain("(HASH_MISMATCH)");
  });

  test("another segment in its place, one that is gone, and a changed manifest are found", async () => {
    const [first, second] = manifest.segments as [SegmentEntry, SegmentEntry];
    const swapped = copyOf("swapped");
    copyFileSync(join(bucket, second.segment), join(swapped, first.segment));
    expect((await ask("SELECT 1", { objectStore: `file://${swapped}` })).err).toContain("it is not what was sealed");
    const gone = copyOf("gone");
    rmSync(join(gone, first.segment));
    expect((await ask("SELECT 1", { objectStore: `file://${gone}` })).err).toContain(`${first.segment}: a manifest names it`);
    const forged = copyOf("forged");
    const [name = ""] = readdirSync(join(forged, cluster, "manifest"));
    const path = join(forged, cluster, "manifest", name);
    writeFileSync(path, readFileSync(path, "utf8").replace('"rows": ', '"rows":  '));
    expect((await ask("SELECT 1", { objectStore: `file://${forged}` })).code).toBe(1);
  });
});

describe("forms of the output", () => {
  const awkward = `SELECT 'a "b", c' AS text, NULL AS nothing, 9007199254740993 AS big, 1.5 AS part, TIMESTAMP '2026-02-03 04:05:06.789' AS time,
    encode('é') AS bytes, [1, 2] AS list, '{"n":12345678901234567890}'::JSON AS json, true AS flag, sum(range)::HUGEINT AS sum FROM range(4)`;

  test("JSON keeps digits, bytes are hex, times are as elsewhere", async () => {
    const json = (await ask(awkward, { ...options, output: "jsonl" })).out;
    expect(json).toBe(
      '{"text":"a \\"b\\", c","nothing":null,"big":"9007199254740993","part":"1.5","time":"2026-02-03T04:05:06.789Z","bytes":"c3a9","list":[1,2],"json":{"n":12345678901234567890},"flag":true,"sum":6}\n',
    );
    expect(JSON.parse((await ask(awkward, { ...options, output: "json" })).out)).toEqual([JSON.parse(json)]);
    expect((await ask("SELECT 1 WHERE false", { ...options, output: "json" })).out).toBe("[]\n");
  });

  test("a line of JSON is one line of valid JSON, whatever DuckDB takes for JSON", async () => {
    const query = "SELECT ('{' || chr(10) || '\"a\":' || chr(9) || '1}')::JSON AS lines, 'NaN'::JSON AS nan, '[1,]'::JSON AS comma";
    expect((await ask(query, { ...options, output: "jsonl" })).out).toBe('{"lines":{ "a": 1},"nan":"NaN","comma":"[1,]"}\n');
  });

  test("CSV is read back by a reader of CSV", async () => {
    const { out } = await ask(awkward, { ...options, csv: true });
    expect(parse(out, { columns: true })).toEqual([
      {
        text: 'a "b", c',
        nothing: "",
        big: "9007199254740993",
        part: "1.5",
        time: "2026-02-03T04:05:06.789Z",
        bytes: "c3a9",
        list: "[1,2]",
        json: '{"n":12345678901234567890}',
        flag: "true",
        sum: "6",
      },
    ]);
  });

  test("a table can't steer the terminal", async () => {
    const { out } = await ask("SELECT chr(27) || '[2J' AS x", options);
    expect(out).toBe("x\n\\u001b[2J\n");
  });
});

describe("usage", () => {
  const refused: readonly (readonly [object, number, string])[] = [
    [{ cold: false }, 2, "Cannot query without --cold"],
    [{ objectStore: `file://${join(root, "nowhere")}` }, 4, "there is no such folder"],
    [{ objectStore: "ftp://a/b" }, 2, "it is neither file:///folder nor s3://bucket"],
    [{ cluster: "mine" }, 2, "want hop_ and 16 hex digits"],
    [{ cluster: "hop_ffffffffffffffff" }, 4, "nothing of it is sealed"],
    [{ since: "yesterday" }, 2, "Cannot read --since"],
    [{ since: "2026-13-01" }, 2, "Cannot use --since"],
    [{ since: "1h", until: "2h" }, 2, "no time lies between them"],
    [{ limit: "0" }, 2, "--limit"],
    [{ limit: "5", all: true }, 2, "both --all and --limit"],
    [{ csv: true, output: "json" }, 2, "both --csv and -o json"],
    [{ memory: "much" }, 2, "--memory"],
  ];
  for (const [more, code, problem] of refused) {
    test(`${JSON.stringify(more).replaceAll(root, "…")} is refused with ${code}`, async () => {
      const asked = await ask("SELECT 1", { ...options, ...more });
      expect([asked.code, asked.out]).toEqual([code, ""]);
      expect(asked.err).toContain(problem);
    });
  }

  test("a bucket of two clusters wants to know which", async () => {
    const two = join(root, "two");
    cpSync(bucket, two, { recursive: true });
    cpSync(join(bucket, cluster), join(two, "hop_fedcba9876543210"), { recursive: true });
    const asked = await ask("SELECT 1", { objectStore: `file://${two}` });
    expect([asked.code, asked.err]).toEqual([2, expect.stringContaining(`holds those of ${cluster}, hop_fedcba9876543210`)]);
    expect((await ask("SELECT 1", { objectStore: `file://${two}`, cluster })).code).toBe(0);
  });
});
