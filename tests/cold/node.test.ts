/** What a real node seals is what cold queries, offline audits and other readers see; every example of docs/COLD-QUERIES.md runs. */
import { afterAll, beforeAll, describe, expect, setDefaultTimeout, test } from "bun:test";
import { createHash } from "node:crypto";
import { existsSync, readdirSync, readFileSync, statSync, utimesSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { DuckDBInstance } from "@duckdb/node-api";
import { decodeManifest, type Manifest } from "#store";
import { Cluster, type Server, until } from "../cluster/harness.ts";
import { pythonWithArrow } from "../segments/pyarrow.ts";
import { readSource } from "../sources.ts";

const workflows = `
import { activities, durable, searchable, signal } from "@hopskip/runtime";
import type * as work from "./activities.ts";
const { upper } = activities<typeof work>({});
export const greet = durable(async (name: string) => \`Hello, \${await upper(name)}!\`);
export const large = durable(async (bytes: number) => "x".repeat(bytes));
export const fails = durable(async (what: string) => { throw new RangeError(what); });
export const collects = durable(async (count: number) => {
  const seen: string[] = [];
  while (seen.length < count) seen.push(await signal<string>("item"));
  return seen;
});
export const tagged = durable(async (customer: string) => searchable("customer", customer));
`;

/** On a machine that is busy with other things too. */
setDefaultTimeout(60_000);

const hop = new Cluster();
const bucket = join(hop.folder, "objects");
const cold = ["--object-store", `file://${bucket}`];
const python = await pythonWithArrow();
const missing = typeof python === "string" ? ` (skipped here: ${python.split("\n")[0]})` : "";
/** Begun before the shard is split in two, and ended after the two are one again. */
const divided = Array.from({ length: 8 }, (_, i) => `default:divided-${i}`);
let server: Server;

const ok = (args: readonly string[], input?: string) => hop.expectOk(args, { server, ...(input === undefined ? {} : { input }) });
const ask = async (query: string, ...more: string[]) =>
  JSON.parse(await ok(["sql", "--cold", "-", "-o", "json", "--all", ...cold, ...more], query)) as Record<string, unknown>[];
const countOf = async (condition: string) => (await ask(`SELECT count(*) AS count FROM events WHERE ${condition}`))[0]?.count as number;

/** The newest manifest of each shard. */
function manifests(): Manifest[] {
  const newest = new Map<number, Manifest>();
  for (const cluster of readdirSync(bucket).filter((name) => name.startsWith("hop_"))) {
    const folder = join(bucket, cluster, "manifest");
    for (const name of readdirSync(folder).sort()) {
      const manifest = decodeManifest(readFileSync(join(folder, name), "utf8"), name);
      newest.set(manifest.shard, manifest);
    }
  }
  return [...newest.values()];
}

const isSealed = (condition: string, count: number) =>
  until(async () => existsSync(join(bucket)) && (await countOf(condition).catch(() => 0)) >= count, {
    withinMs: 60_000,
    what: `${count} sealed events where ${condition}`,
  });

beforeAll(async () => {
  writeFileSync(join(hop.folder, "workflows.ts"), workflows);
  writeFileSync(join(hop.folder, "activities.ts"), "export const upper = (text: string) => text.toUpperCase();\n");
  const soon = ["--seal-size", "2KiB", "--seal-age", "300ms", "--keep-size", "1B"];
  server = await hop.server({ args: ["--worker", "--activities", join(hop.folder, "activities.ts"), ...cold, ...soon] });
  await ok(["deploy", "workflows.ts"]);
  await ok(["run", "greet", "--input", '"Ada"', "--instance", "ada", "--follow"]);
  await ok(["run", "greet", "--input-lines", "-", "--follow"], Array.from({ length: 40 }, (_, i) => `"name ${i}"\n`).join(""));
  await ok(["run", "large", "--input", "200000", "--instance", "big", "--follow"]);
  await hop.run(["run", "fails", "--input", '"no such order"', "--instance", "bad", "--follow"], { server });
  await ok(["run", "tagged", "--input", '"ann"', "--instance", "tag", "--follow"]);
  for (const run of divided) await ok(["run", "collects", "--input", "3", "--instance", run.slice(8)]);
  for (const run of divided) await ok(["workflow", "signal", run, "item", "--input", '"a"']);
  await isSealed("kind = 'SignalReceived'", divided.length);
  await ok(["shard", "split", "1"]);
  for (const run of divided) await ok(["workflow", "signal", run, "item", "--input", '"b"']);
  await isSealed("kind = 'SignalReceived'", 2 * divided.length);
  await ok(["shard", "merge", "1"]);
  for (const run of divided) await ok(["workflow", "signal", run, "item", "--input", '"c"']);
  for (const run of divided) await ok(["workflow", "result", run]);
  await isSealed("kind IN ('RunCompleted', 'RunFailed')", 43 + divided.length);
}, 120_000);
afterAll(() => hop[Symbol.asyncDispose]());

describe("hop sql --cold", () => {
  test("runs are as the server lists them", async () => {
    interface Run {
      readonly run: string;
      readonly type: string;
      readonly status: string;
      readonly startedAt: string;
      readonly closedAt: string;
    }
    const listed = JSON.parse(await ok(["workflow", "list", "--all", "-o", "json"])) as Run[];
    const wanted = listed.map(({ run, type, status, startedAt, closedAt }) => ({
      run,
      type,
      status,
      started: startedAt,
      closed: closedAt,
    }));
    expect(wanted.length).toBe(44 + divided.length);
    const found = await ask("SELECT run, type, status, started, closed FROM runs");
    const byName = (a: object, b: object) => ((a as Run).run < (b as Run).run ? -1 : 1);
    expect(found.sort(byName)).toEqual(wanted.sort(byName));
  });

  test("inputs, results, failures and blobs are there as JSON", async () => {
    const [ada, bad, big] = await ask("SELECT * FROM runs WHERE instance IN ('ada', 'bad', 'big') ORDER BY instance");
    expect(ada).toMatchObject({ input: "Ada", result: "Hello, ADA!", failure: null, generation: 1, namespace: "default" });
    expect(bad).toMatchObject({ status: "failed", result: null, failure: { type: "RangeError", message: "no such order" } });
    const blob = createHash("sha256")
      .update(`"${"x".repeat(200_000)}"`)
      .digest("hex");
    expect(big).toMatchObject({ input: 200_000, result: { blob, size: 200_002 } });
    expect(existsSync(join(bucket, manifests()[0]?.cluster as string, "blob", blob))).toBe(true);
  });

  test("after a split and a merge each event is there once, in the log of one shard, to the hash of its manifest", async () => {
    const all = manifests();
    expect(all.length).toBe(2);
    const segments = all.flatMap(({ segments }) => segments.map(({ summary }) => summary));
    expect(segments.length).toBeGreaterThan(3);
    const rows = segments.reduce((sum, summary) => sum + summary.rows, 0);
    const [counts] = await ask(
      "SELECT count(*) AS rows, count(DISTINCT (partition, seq)) AS events, count(DISTINCT shard) AS shards FROM events",
    );
    expect(counts).toEqual({ rows, events: rows, shards: 2 });
    const gaps = await ask("SELECT run FROM events GROUP BY run HAVING min(seq) <> 0 OR max(seq) + 1 <> count(*)");
    expect(gaps).toEqual([]);
    const both = "SELECT run, string_agg(shard, '' ORDER BY seq) AS shards FROM events GROUP BY run HAVING count(DISTINCT shard) = 2";
    const led = await ask(both);
    expect(led.length).toBeGreaterThan(0);
    for (const { shards } of led) expect(shards).toMatch(/^1+2+1+$/);
    const rowsFound = await ask("SELECT shard, log_index, hash FROM events ORDER BY partition, seq");
    for (const { shard, firstIndex, lastIndex, digest } of segments) {
      const isIn = (row: Record<string, unknown>) =>
        row.shard === shard && (row.log_index as number) >= firstIndex && (row.log_index as number) <= lastIndex;
      const hashes = createHash("sha256");
      for (const { hash } of rowsFound.filter(isIn)) hashes.update(hash as string, "hex");
      expect(hashes.digest("hex")).toBe(Buffer.from(digest).toString("hex"));
    }
  });

  test("the executable extracts DuckDB when it is first asked, and nothing else; a damaged library is put right", async () => {
    const cache = join(hop.folder, "cache");
    const env = { HOP_CACHE: cache };
    await hop.expectOk(["--version"], { env });
    await hop.expectOk(["audit", "default:ada", ...cold], { env });
    expect(existsSync(cache)).toBe(false);
    const query = ["sql", "--cold", "SELECT version() AS version", "-o", "ids", ...cold];
    expect(await hop.expectOk(query, { env })).toMatch(/^v\d+\.\d+\.\d+\n$/);
    const folders = readdirSync(cache).filter((name) => name !== "segments");
    expect(folders).toEqual([expect.stringMatching(/^duckdb-[0-9a-f]{16}$/)]);
    const library = join(cache, folders[0] as string, "libduckdb.so");
    const { atime, mtime } = statSync(library);
    writeFileSync(library, readFileSync(library).fill(0, 0, 4));
    utimesSync(library, atime, mtime);
    const { code, stdout } = await hop.run(query, { env });
    expect([code, stdout]).toEqual([0, expect.stringMatching(/^v/)]);
  });

  test("says what it read on standard error, and has the data alone on standard output", async () => {
    const { code, stdout, stderr } = await hop.run(["sql", "--cold", "SELECT type FROM runs", "--run", "ada", "--csv", ...cold]);
    expect([code, stdout]).toEqual([0, "type\ngreet\n"]);
    expect(stderr).toMatch(/^Read \d+ of \d+ segments \(\S+ \S+ of \S+ \S+\); the newest sealed event is of 20\S+Z\n$/);
  });
});

describe("hop audit --object-store", () => {
  const rootOf = (text: string) => /^root\s+([0-9a-f]{64})$/m.exec(text)?.[1];

  test("prints what the server's audit prints, root included, also of runs that two shards have", async () => {
    for (const run of ["default:ada", "default:big", "default:bad", ...divided]) {
      const [online, offline] = [await ok(["audit", run]), await hop.expectOk(["audit", run, ...cold])];
      expect(offline).toBe(online);
      expect(rootOf(offline)).toBeDefined();
    }
  });

  test("makes proofs and checks roots without a server", async () => {
    const [run = ""] = divided;
    await ok(["audit", run, "--save-root", "online.root"]);
    await hop.expectOk(["audit", run, "--root", "online.root", "--proof", "offline.proof", "--seq", "1", ...cold]);
    expect(await hop.expectOk(["audit", "verify", "offline.proof", "--root", "online.root"])).toContain("✓");
  });

  test("says so where a run is not there, and where a flag does not fit", async () => {
    const nobody = await hop.run(["audit", "default:nobody", ...cold]);
    expect([nobody.code, nobody.stderr]).toEqual([4, expect.stringContaining("no segment at file://")]);
    expect((await hop.run(["audit", ...cold])).code).toBe(2);
    expect((await hop.run(["audit", "a", "--data", "x", ...cold])).code).toBe(2);
    expect((await hop.run(["audit", "a", "--cluster", "hop_0123456789abcdef"])).code).toBe(2);
  });

  test("finds a changed byte of a segment and of a blob", async () => {
    const copy = join(hop.folder, "copy");
    await Bun.$`cp -r ${bucket} ${copy}`.quiet();
    const there = ["--object-store", `file://${copy}`];
    const [cluster = ""] = readdirSync(copy).filter((name) => name.startsWith("hop_"));
    const flip = (file: string) => {
      const bytes = readFileSync(file);
      bytes[bytes.length >> 1] = (bytes[bytes.length >> 1] as number) ^ 1;
      writeFileSync(file, bytes);
    };
    for (const name of readdirSync(join(copy, cluster, "blob"))) flip(join(copy, cluster, "blob", name));
    const blob = await hop.run(["audit", "default:big", ...there]);
    expect([blob.code, blob.stderr]).toEqual([1, expect.stringContaining("is not what was recorded")]);
    for (const name of readdirSync(join(copy, cluster, "segment"))) {
      const bytes = readFileSync(join(copy, cluster, "segment", name)).fill(0);
      writeFileSync(join(copy, cluster, "segment", name), bytes);
    }
    const segment = await hop.run(["audit", "default:ada", ...there]);
    expect([segment.code, segment.stderr]).toEqual([1, expect.stringContaining("HASH_MISMATCH")]);
  });
});

const page = await readSource("docs/COLD-QUERIES.md");

describe("docs/COLD-QUERIES.md", () => {
  const blocks = [...page.matchAll(/^```(\w+)\n([\s\S]*?)^```$/gm)].map(([, language = "", text = ""]) => ({ language, text }));
  const queries = blocks.filter(({ language }) => language === "sql").map(({ text }) => text);
  const here = (text: string) =>
    text.replaceAll("/data/objects", bucket).replaceAll("hop_0123456789abcdef", manifests()[0]?.cluster as string);

  test("there are examples", () => expect(queries.length).toBeGreaterThan(6));

  for (const query of queries.filter((text) => !text.includes("read_parquet"))) {
    test(`finds rows: ${query.split("\n").find((line) => !line.startsWith("--"))}`, async () => {
      expect((await ask(query)).length).toBeGreaterThan(0);
    });
  }

  test("names every column of both views", async () => {
    for (const view of ["events", "runs"])
      for (const { column_name: name } of await ask(`DESCRIBE ${view}`)) expect(page).toContain(`\`${String(name)}\``);
  });

  test("what it shows for a shell runs", async () => {
    const lines = blocks.filter(({ language }) => language === "sh").flatMap(({ text }) => text.trimEnd().split("\n"));
    expect(lines.length).toBe(3);
    for (const line of lines) {
      const words = [...line.replace(/ > \S+$/, "").matchAll(/"([^"]*)"|(\S+)/g)].map(([, quoted, bare]) => quoted ?? bare ?? "");
      const args = words.slice(1).map((word) => (/^(s3|file):/.test(word) ? `file://${bucket}` : word.replace("order-1", "ada")));
      const { code, stdout, stderr } = await hop.run(args, { env: { HOP_OBJECT_STORE: `file://${bucket}` } });
      expect([line, code, stdout !== "", stderr.includes("error")]).toEqual([line, 0, true, false]);
    }
  });

  test("DuckDB reads the folder by itself", async () => {
    const db = await DuckDBInstance.create(":memory:");
    const connection = await db.connect();
    const direct = queries.filter((text) => text.includes("read_parquet"));
    expect(direct.length).toBe(1);
    for (const query of direct) {
      const rows = await (await connection.run(here(query))).getRows();
      expect(rows.reduce((sum, row) => sum + Number(row[1]), 0)).toBe(await countOf("true"));
    }
    connection.closeSync();
    db.closeSync();
  });

  test.skipIf(missing !== "")(`the Python example counts the same events${missing} [needs pyarrow]`, async () => {
    if (typeof python === "string") throw new Error(python);
    const example = blocks.find(({ language }) => language === "python")?.text ?? "";
    writeFileSync(join(hop.folder, "example.py"), here(example));
    const said = JSON.parse(await python(join(hop.folder, "example.py")));
    expect(said).toEqual({ events: await countOf("true"), started: await countOf("kind = 'RunStarted'") });
  });
});
