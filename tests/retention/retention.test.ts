/** Histories of ended runs go from object storage when their time is over, and nothing that was proven of them breaks. */
import { afterAll, beforeAll, expect, test } from "bun:test";
import { mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { bagPeaks, savedRootText } from "#core/merkle";
import { unpackChunks } from "../../node/seal/chunk-objects.ts";
import { bunHasher } from "../hashers.ts";
import { manifestsIn, rootOf, SealingNodes } from "../restore/restore-fixture.ts";
import { until } from "../until.ts";

/** In inputs alone: results have it in capitals, and outcomes are kept. */
const secret = "whispered-text";
const store = () => `file://${objects}`;
const kept = ["stays0", "stays1"];

let folder: string;
let objects: string;
let town: SealingNodes;
let roots: Map<string, string>;

const run = (instance: string, input: unknown, namespace = "brief") =>
  town.nodes.ok(["run", "greet", "--input", JSON.stringify(input), "--instance", instance, "-n", namespace, "--follow"]);
const audit = (name: string, ...more: string[]) => town.nodes.run(["audit", name, ...more]);
const sql = async (query: string) =>
  JSON.parse(await town.nodes.ok(["sql", "--cold", "--object-store", store(), query, "-o", "json"])) as unknown;

beforeAll(async () => {
  folder = mkdtempSync(join(tmpdir(), "hop-retention-"));
  objects = join(folder, "objects");
  town = new SealingNodes(1, objects);
  town.nodes.extra = [...town.nodes.extra, "--object-grace", "1s"];
  await town.nodes.form(1);
  for (const namespace of ["brief", "default"]) await town.nodes.ok(["deploy", join(town.project, "workflows.ts"), "-n", namespace]);
  const activities = ["--activities", join(town.project, "activities.ts")];
  for (const namespace of ["brief", "default"])
    await town.nodes.cluster.worker({ grpc: town.nodes.at(0).grpc }, [...activities, "-n", namespace]);
}, 120_000);

afterAll(async () => {
  await town?.nodes[Symbol.asyncDispose]();
  rmSync(folder, { recursive: true, force: true });
});

/** The root of the run's first event alone, as somebody kept it then. */
async function cutRoot(file: string, name: string): Promise<void> {
  const events = JSON.parse(await town.nodes.ok(["audit", name, "-o", "json"])) as { events: readonly { hash: string }[] };
  const peaks = Uint8Array.fromHex(events.events[0]?.hash as string);
  writeFileSync(file, savedRootText({ partition: `run/${name}`, size: 1, peaks, root: bagPeaks(bunHasher, 1, peaks) }));
}

/** Whether an object that a newest manifest names has the text in an event, uncompressed. */
const recordsSay = (text: string) =>
  [...manifestsIn(objects).values()]
    .flatMap(({ records }) => records.map(({ key }) => key))
    .some((key) => [...unpackChunks(readFileSync(join(objects, key)), key)].some((chunk) => Buffer.from(chunk).includes(text)));

test("a policy is set by name, checked, and kept with who set it", async () => {
  const refused = await town.nodes.run(["namespace", "set", "brief", "--input", '{"retentionMs":5}']);
  expect([refused.code, refused.stderr]).toEqual([2, expect.stringContaining('"retentionMs" is 5, want 1000 to')]);
  expect(await town.nodes.ok(["namespace", "set", "brief", "--input", '{"owner":"ada"}'])).toBe("1\n");
  expect(await town.nodes.ok(["namespace", "set", "brief", "--type", "collects", "--retention", "forever"])).toBe("2\n");
  expect(JSON.parse(await town.nodes.ok(["namespace", "get", "brief"]))).toEqual({
    owner: "ada",
    types: { collects: { retentionMs: null } },
  });
  const alone = await town.nodes.run(["namespace", "set", "brief", "--type", "collects"]);
  expect([alone.code, alone.stderr]).toEqual([2, expect.stringContaining("Cannot use --type without --retention")]);
}, 60_000);

test("an ended run's history goes from every object, and its root is still known", async () => {
  for (const name of ["gone0", "gone1", "gone2"]) await run(name, `${secret}-${name}`);
  for (const name of kept) await run(name, `stays-${name}`, "default");
  await town.nodes.ok(["run", "collects", "--input", "1", "--instance", "box", "-n", "brief"]);
  await town.nodes.ok(["workflow", "signal", "brief:box", "item", "--input", '"x"']);
  const rootFile = join(folder, "gone0.root");
  const proofFile = join(folder, "gone0.proof");
  const early = join(folder, "early.root");
  const started = join(folder, "started.root");
  await cutRoot(started, "brief:gone0");
  const before = rootOf(await town.nodes.ok(["audit", "brief:gone0", "--save-root", rootFile, "--proof", proofFile]));
  await town.nodes.ok(["audit", "brief:box", "--save-root", early]);
  await town.sealedUp();
  expect(recordsSay(secret) || JSON.stringify(await sql("SELECT payload FROM events WHERE partition = 'run/brief:gone0'")).length > 2).toBe(
    true,
  );
  roots = new Map(
    await Promise.all(kept.map(async (name) => [name, rootOf(await town.nodes.ok(["audit", `default:${name}`])) ?? ""] as const)),
  );

  expect(await town.nodes.ok(["namespace", "set", "brief", "--retention", "1s"])).toBe("3\n");
  const goneRows = async () =>
    (await sql("SELECT count(*)::INT AS rows FROM events WHERE partition LIKE 'run/brief:gone%'")) as { rows: number }[];
  // One event of each is left.
  await until(async () => (await goneRows())[0]?.rows === 3, { what: "the rows to go", withinMs: 90_000 });
  await until(() => !recordsSay(secret), { what: "the records to go", withinMs: 90_000 });

  const { code, stdout } = await audit("brief:gone0", "--root", rootFile);
  expect([code, stdout]).toEqual([
    0,
    expect.stringMatching(
      new RegExp(
        `HistoryExpired[\\s\\S]*the history of \\d+ events under root ${before} was taken away on .*greet completed.*namespace brief keeps histories 1s \\(version 3, set by `,
      ),
    ),
  ]);
  expect(stdout).toContain("✓ saved-consistency");
  // From the objects alone, with the same words; and what was proven of an event that is gone is proven still.
  const cold = await audit("brief:gone0", "--root", rootFile, "--object-store", store());
  expect([cold.code, cold.stdout]).toEqual([0, expect.stringContaining(`under root ${before} was taken away`)]);
  expect(await town.nodes.ok(["audit", "verify", proofFile])).toContain("✓");
  expect(
    await sql("SELECT run, generation, type, status, expired IS NOT NULL AS gone FROM runs WHERE namespace = 'brief' ORDER BY run"),
  ).toEqual([
    { run: "brief:box", generation: 1, type: "collects", status: "completed", gone: false },
    ...["gone0", "gone1", "gone2"].map((name) => ({ run: `brief:${name}`, generation: 1, type: "greet", status: "completed", gone: true })),
  ]);
  expect(await town.nodes.ok(["storage", "--expired", "--object-store", store()])).toMatch(
    /^NAMESPACE .* EXPIRED[\s\S]*^brief .* [1-9]\d*$/m,
  );
  // A root from before the end is neither confirmed nor doubted.
  const short = await audit("brief:gone0", "--root", started);
  expect([short.code, short.stderr]).toEqual([
    1,
    expect.stringMatching(/can't be compared with [\s\S]*saved when the run had ended, or later/),
  ]);
  // A type with a word of its own keeps its history.
  expect(await town.nodes.ok(["audit", "brief:box", "--root", early])).toContain("RunCompleted");
}, 200_000);

test("others are as they were, and lists, results and refusals say what is there", async () => {
  for (const name of kept) expect(rootOf(await town.nodes.ok(["audit", `default:${name}`]))).toBe(roots.get(name) as string);
  const listed = await town.nodes.json<{ run: string; status: string; historyExpiredAt: string | null }[]>([
    "workflow",
    "list",
    "-n",
    "brief",
  ]);
  expect(listed.map((each) => `${each.run} ${each.status} ${each.historyExpiredAt === null ? "kept" : "gone"}`).sort()).toEqual([
    "brief:box completed kept",
    ...["gone0", "gone1", "gone2"].map((name) => `brief:${name} completed gone`),
  ]);
  expect(await town.nodes.ok(["workflow", "show", "brief:gone0"])).toMatch(/retention took the first \d+ away/);
  expect(await town.nodes.ok(["workflow", "result", "brief:gone0"])).toContain(`Hello, ${secret.toUpperCase()}-GONE0!`);
  const asked = await town.nodes.run(["workflow", "query", "brief:gone0", "anything"]);
  expect([asked.code, asked.stderr]).toEqual([5, expect.stringContaining("was taken away by retention")]);
}, 60_000);

test("histories that a split divided between two logs expire too", async () => {
  const names = Array.from({ length: 6 }, (_, i) => `half${i}`);
  await town.nodes.ok(["namespace", "set", "brief", "--retention", "forever"]);
  await Promise.all(names.map((name) => run(name, `${secret}-${name}`)));
  await town.nodes.ok(["shard", "split", "1"]);
  await town.nodes.whole(1);
  await town.sealedUp();
  await town.nodes.ok(["namespace", "set", "brief", "--retention", "1s"]);
  const left = async () =>
    (await sql("SELECT count(*)::INT AS rows FROM events WHERE partition LIKE 'run/brief:half%'")) as { rows: number }[];
  await until(async () => (await left())[0]?.rows === names.length, { what: "the rows to go", withinMs: 120_000 });
  const shards = (await sql(
    "SELECT DISTINCT shard FROM events WHERE kind = 'HistoryExpired' AND partition LIKE 'run/brief:half%'",
  )) as unknown[];
  expect(shards).toHaveLength(2);
  for (const name of names) expect((await audit(`brief:${name}`, "--object-store", store())).stdout).toContain("was taken away on");
}, 180_000);

test("a name goes on after its history expired, on the same chain", async () => {
  await town.nodes.ok(["namespace", "set", "brief", "--retention", "forever"]);
  const rootFile = join(folder, "gone1.root");
  await town.nodes.ok(["audit", "brief:gone1", "--save-root", rootFile]);
  await run("gone1", "again");
  const again = await town.nodes.ok(["audit", "brief:gone1", "--root", rootFile]);
  expect(again).toMatch(/HistoryExpired[\s\S]*generation 2[\s\S]*RunCompleted/);
}, 60_000);

test("a backup without what expired is whole, and a cluster is rebuilt from it that says the same", async () => {
  await town.sealedUp();
  const { code, stdout, stderr } = await town.nodes.run(["backup", "verify", "--object-store", store()]);
  expect([code, stdout, stderr]).toEqual([0, expect.stringContaining("9 of them expired"), expect.stringContaining("All of it is there")]);
  const before = rootOf(await town.nodes.ok(["audit", "brief:gone0"]));
  await town.kill();
  const rebuilt = new SealingNodes(1, objects);
  try {
    await rebuilt.nodes.start();
    await rebuilt.restore();
    expect(rootOf(await rebuilt.nodes.ok(["audit", "brief:gone0", "--root", join(folder, "gone0.root")]))).toBe(before as string);
    expect(await rebuilt.nodes.ok(["audit", "brief:gone1"])).toMatch(/HistoryExpired[\s\S]*generation 2/);
    const listed = await rebuilt.nodes.json<{ run: string; generation: number; historyExpiredAt: string | null }[]>([
      "workflow",
      "list",
      "-n",
      "brief",
    ]);
    expect(
      listed
        .filter((each) => each.historyExpiredAt !== null && each.run.includes("gone"))
        .map(({ run: name, generation }) => `${name} ${generation}`)
        .sort(),
    ).toEqual(["gone0", "gone1", "gone2"].map((name) => `brief:${name} 1`));
    for (const name of kept) expect(rootOf(await rebuilt.nodes.ok(["audit", `default:${name}`]))).toBe(roots.get(name) as string);
  } finally {
    await rebuilt.nodes[Symbol.asyncDispose]();
  }
}, 150_000);
