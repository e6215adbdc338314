/** Cold queries of a bucket: fetched once, checked each time, kept within bounds. */
import { afterAll, beforeAll, beforeEach, expect, test } from "bun:test";
import { existsSync, mkdirSync, mkdtempSync, readdirSync, readFileSync, rmSync, statSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { basename, join } from "node:path";
import { asIndex, asShardId, runPartition } from "#core/base";
import { FolderLock, type Manifest, type SegmentEntry } from "#store";
import type { SqlOptions } from "../../cmd/command/sql.ts";
import { busyShard, RecordMaker } from "../../store/segment/sealed/records-fixture.ts";
import { Cluster } from "../cluster/harness.ts";
import { bucket, credentials, onServer, versitygwServer } from "../objects/s3-server.ts";
import { until } from "../until.ts";
import { type Asked, ask } from "./ask.ts";
import { fillBucket } from "./cold-bucket.ts";

const workflow = `import { durable } from "@hopskip/runtime";\nexport const echo = durable(async (value: unknown) => value);\n`;
const names = ["AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_REGION"] as const;
const before = names.map((name) => process.env[name]);
const root = mkdtempSync(join(tmpdir(), "hop-cold-s3-"));

beforeAll(() => {
  const [id, secret, region] = names;
  Object.assign(process.env, { [id]: credentials.accessKeyId, [secret]: credentials.secretAccessKey, [region]: "us-east-1" });
});
afterAll(() => {
  for (const [at, name] of names.entries()) {
    if (before[at] === undefined) delete process.env[name];
    else process.env[name] = before[at];
  }
  rmSync(root, { recursive: true, force: true });
});

onServer("cold queries", await versitygwServer(), (server) => {
  let manifest: Manifest;
  let options: SqlOptions;
  let cache = "";
  let caches = 0;
  beforeAll(async () => {
    const objectStore = `s3://${bucket}/here?endpoint=${encodeURIComponent(server().endpoint)}&path-style=true`;
    const records = [...busyShard(20_000)];
    manifest = await fillBucket(objectStore, records, Math.ceil(records.length / 8));
    options = { objectStore };
  });
  beforeEach(() => {
    cache = join(root, String(++caches));
  });

  const asked = (query: string, more: SqlOptions = {}): Promise<Asked> =>
    ask(query, { ...options, ...more }, { env: { HOP_CACHE: cache } });
  const fetched = ({ err }: Asked) => /, ([^,)]*) of it fetched/.exec(err)?.[1];
  const kept = () => readdirSync(join(cache, "segments", "kept")).sort();
  const nameOf = ({ segment }: SegmentEntry) => basename(segment);
  const lastTime = () => new Date((manifest.segments.at(-1) as SegmentEntry).summary.extent?.firstTimeMs ?? 0).toISOString();
  const rows = () => manifest.segments.reduce((sum, { summary }) => sum + summary.rows, 0);

  test("all segments are fetched at first, and none the second time", async () => {
    const query = "SELECT count(*) AS rows, count(DISTINCT (partition, seq)) AS events FROM events";
    const [first, second] = [await asked(query, { csv: true }), await asked(query, { csv: true })];
    expect(first.out).toBe(`rows,events\n${rows()},${rows()}\n`);
    expect(second.out).toBe(first.out);
    expect(fetched(first)).toMatch(/^\d.*iB$/);
    expect(fetched(second)).toBe("0 B");
    expect(kept()).toEqual(manifest.segments.map(nameOf).sort());
    expect(readdirSync(join(cache, "segments", "open"))).toEqual([]);
  });

  test("only the segments of the time or the run that is asked for are fetched", async () => {
    const last = manifest.segments.at(-1) as SegmentEntry;
    expect((await asked("SELECT count(*) FROM events", { since: lastTime(), output: "ids" })).out).toBe(`${last.summary.rows}\n`);
    expect(kept()).toEqual([nameOf(last)]);
    cache = join(root, "nothing");
    const none = await asked("SELECT count(*) FROM events", { run: "default:no-such-order" });
    expect([none.out.split("\n")[1]?.trim(), fetched(none)]).toEqual(["0", "0 B"]);
    expect(kept()).toEqual([]);
  });

  test("a copy that changed in the cache is noticed and fetched again", async () => {
    const query = "SELECT sum(seq) FROM events";
    const good = await asked(query, { since: lastTime() });
    const [name = ""] = kept();
    const path = join(cache, "segments", "kept", name);
    const bytes = readFileSync(path);
    bytes[100] = (bytes[100] as number) ^ 1;
    writeFileSync(path, bytes);
    const again = await asked(query, { since: lastTime() });
    expect(again.out).toBe(good.out);
    expect(fetched(again)).toBe(fetched(good));
    expect(fetched(await asked(query, { since: lastTime() }))).toBe("0 B");
  });

  test("the cache keeps to its bounds: what was used longest ago goes", async () => {
    const [first, ...others] = manifest.segments as [SegmentEntry, ...SegmentEntry[]];
    await asked("SELECT 1", { until: new Date(first.summary.extent?.lastTimeMs ?? 0).toISOString() });
    expect(kept()).toContain(nameOf(first));
    const room = Math.max(...manifest.segments.map(({ summary }) => summary.segmentBytes)) + 1;
    const { code, err } = await asked("SELECT 1", { since: lastTime(), cacheSize: `${room}B` });
    expect(err).not.toContain("error");
    expect([code, kept()]).toEqual([0, [nameOf(others.at(-1) as SegmentEntry)]]);
    const tooMuch = await asked("SELECT 1", { cacheSize: `${room}B` });
    expect([tooMuch.code, tooMuch.err]).toEqual([1, expect.stringContaining("Cannot fetch 8 segments")]);
    expect(tooMuch.err).toContain("--cache-size");
  });

  test("what a query that was killed left behind is cleared, and what a living one reads is not", async () => {
    const open = join(cache, "segments", "open");
    mkdirSync(join(open, "dead"), { recursive: true });
    writeFileSync(join(open, "dead", "half.parquet.part"), "x");
    const living = FolderLock.acquire(join(open, "living"));
    await asked("SELECT 1", { since: lastTime() });
    expect(readdirSync(open)).toEqual(["living"]);
    living.release();
  });

  test("an object that was changed in the bucket is not queried", async () => {
    const objectStore = `s3://${bucket}/changed?endpoint=${encodeURIComponent(server().endpoint)}&path-style=true`;
    const maker = new RecordMaker({ shard: asShardId(3), after: asIndex(0) });
    maker.record({ partition: runPartition("a:b" as never) });
    const { segments } = await fillBucket(objectStore, maker.records, 10, asShardId(3));
    const { openObjectStore } = await import("#store");
    const objects = openObjectStore(objectStore);
    const { segment } = segments[0] as SegmentEntry;
    const bytes = (await objects.get(segment)) as Uint8Array;
    bytes[20] = (bytes[20] as number) ^ 1;
    await objects.put(segment, bytes);
    await objects.close();
    const refused = await asked("SELECT count(*) FROM events", { objectStore });
    expect([refused.code, refused.out]).toEqual([1, ""]);
    expect(refused.err).toContain("HASH_MISMATCH");
    expect(kept()).toEqual([]);
  });

  test("the executable asks and audits what a node has sealed into a bucket", async () => {
    await using hop = new Cluster();
    const url = `s3://${bucket}/node?endpoint=${encodeURIComponent(server().endpoint)}&path-style=true`;
    const env = { AWS_ACCESS_KEY_ID: credentials.accessKeyId, AWS_SECRET_ACCESS_KEY: credentials.secretAccessKey, AWS_REGION: "us-east-1" };
    const cold = ["--object-store", url];
    writeFileSync(join(hop.folder, "workflows.ts"), workflow);
    const node = await hop.server({ args: ["--worker", ...cold, "--seal-size", "2KiB", "--seal-age", "300ms"], env });
    await hop.expectOk(["deploy", "workflows.ts"], { server: node });
    await hop.expectOk(["run", "echo", "--input", '"over there"', "--instance", "one", "--follow"], { server: node });
    const query = ["sql", "--cold", "SELECT result->>'$' FROM runs WHERE status = 'completed'", "--csv", "--cache-size", "1MiB", ...cold];
    const own = { ...env, HOP_CACHE: join(hop.folder, "cache") };
    const asksUntil = async () => (await hop.run(query, { env: own })).stdout.includes("over there");
    await until(asksUntil, { withinMs: 60_000, what: "the run to be sealed" });
    await node.stop();
    expect(await hop.expectOk(["audit", "one", ...cold], { env })).toMatch(
      /2 events of run\/default:one: bytes, chain and Merkle range hold/,
    );
    const { code, stderr } = await hop.run(query, { env: { ...own, AWS_SECRET_ACCESS_KEY: "wrong" } });
    expect([code, stderr.includes("next: say who you are")]).toEqual([3, false]);
  });

  test("the folder of the cache is its owner's", async () => {
    await asked("SELECT 1", { since: lastTime() });
    expect(statSync(join(cache, "segments")).mode & 0o077).toBe(0);
    expect(existsSync(join(cache, "segments", "kept"))).toBe(true);
  });
});
