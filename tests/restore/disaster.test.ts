/** A cluster that lost every node and every disk is rebuilt from object storage alone, by the compiled executable. */
import { afterAll, beforeAll, expect, test } from "bun:test";
import { mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { until } from "../until.ts";
import { filesOf, manifestsIn, SealingNodes } from "./restore-fixture.ts";

const instances = Array.from({ length: 16 }, (_, i) => `early${i}`);
const open = ["box", "nap", "gate"];

let folder: string;
let objects: string;
let old: SealingNodes;
let rebuilt: SealingNodes;
let roots: Map<string, string>;
let oldId: string;

const idOf = async ({ nodes }: SealingNodes) => (await nodes.json<{ cluster: string }>(["cluster", "status"])).cluster;
const gateFile = () => join(folder, "gate-is-open");

beforeAll(async () => {
  folder = mkdtempSync(join(tmpdir(), "hop-restore-"));
  objects = join(folder, "objects");
  old = new SealingNodes(3, objects);
  await old.nodes.form(3);
  await old.deploy();
  await old.worker();
  await old.begin("collects", "box", 3);
  await old.signal("box", "a");
  await old.begin("waits", "gate", gateFile());
  await Promise.all(instances.slice(0, 8).map((name) => old.greet(name)));
  await old.nodes.ok(["shard", "split", "1"]);
  await old.nodes.whole(3);
  await Promise.all(instances.slice(8).map((name) => old.greet(name)));
  await old.signal("box", "b");
  await old.begin("naps", "nap", 25);
  await until(async () => (await old.nodes.ok(["workflow", "show", "default:gate"])).includes("not yet"), { what: "an attempt to fail" });
  oldId = await idOf(old);
}, 120_000);

afterAll(async () => {
  for (const each of [old, rebuilt]) await each?.nodes[Symbol.asyncDispose]();
  rmSync(folder, { recursive: true, force: true });
});

test("everything that was uploaded is there, with the roots that it had, and what was open goes on", async () => {
  await old.sealedUp(instances);
  expect(manifestsIn(objects).size).toBe(2);
  roots = await old.roots(instances);
  await old.kill();
  for (const { data } of old.nodes.servers) rmSync(data, { recursive: true, force: true });

  rebuilt = new SealingNodes(3, objects);
  await rebuilt.nodes.start();
  const { code, stdout, stderr } = await rebuilt.nodes.run(["cluster", "restore", "--object-store", `file://${objects}`]);
  expect([code, stderr]).toEqual([
    0,
    expect.stringMatching(/Shard 1: through record \d+, of .*, \d+ events; keys [\s\S]*Shard 2: through record/),
  ]);
  expect(stderr).toMatch(/Placement: as of \d{4}-.* is lost/);
  expect(await idOf(rebuilt)).toBe(stdout.trim());
  expect(stdout.trim()).not.toBe(oldId);
  expect(await rebuilt.roots(instances)).toEqual(roots);
  const listed = await rebuilt.nodes.json<{ run: string }[]>(["workflow", "list"]);
  expect(listed.map(({ run }) => run).sort()).toEqual([...instances, ...open].map((name) => `default:${name}`).sort());
}, 120_000);

test("runs go on: timers wake, signals are taken, activities are tried again, and code is still deployed", async () => {
  await rebuilt.worker();
  await rebuilt.signal("box", "c");
  expect(await rebuilt.result("box")).toEqual(["a", "b", "c"]);
  writeFileSync(gateFile(), "");
  expect(await rebuilt.result("gate")).toBe("passed");
  expect(await rebuilt.result("nap")).toBe("rested");
  expect(await rebuilt.greet("later")).toContain("Hello, LATER!");
}, 120_000);

test("nodes join as usual and get replicas, and the cluster seals on under a higher restore epoch", async () => {
  await rebuilt.nodes.start();
  await rebuilt.nodes.start();
  await rebuilt.nodes.whole(3);
  expect(await rebuilt.nodes.ok(["shard", "verify", "--all"])).not.toContain("differs");
  for (const server of rebuilt.nodes.servers)
    expect(await rebuilt.nodes.ok(["audit", "default:early3"], { server })).toContain(roots.get("early3") as string);
  await rebuilt.sealedUp();
  for (const manifest of manifestsIn(objects).values()) expect(manifest.restoreEpoch).toBe(2);
  expect(filesOf(objects, "claim").map((path) => path.replace(/^.*\./, ""))).toEqual(["json", "verdict"]);
  const { code, stdout, stderr } = await rebuilt.nodes.run(["backup", "verify", "--object-store", `file://${objects}`]);
  expect([code, stdout, stderr]).toEqual([
    0,
    expect.stringMatching(/: 2 shards, .* histories/),
    expect.stringContaining("All of it is there"),
  ]);
}, 120_000);

test("a cluster that is restored again elsewhere seals nothing any more where it was, and says so", async () => {
  const before = new Map([...manifestsIn(objects)].map(([shard, { number }]) => [shard, number]));
  await using third = new Third();
  await third.nodes.nodes.start();
  await third.nodes.restore();
  const fenced = manifestsIn(objects);
  for (const [shard, { number, restoreEpoch }] of fenced) expect([number, restoreEpoch]).toEqual([(before.get(shard) ?? 0) + 1, 3]);
  await Promise.all(["x", "y", "z"].map((name) => rebuilt.greet(name)));
  const status = async () => rebuilt.nodes.ok(["cluster", "status"], { server: rebuilt.nodes.at(0) });
  await until(async () => (await status()).includes("rebuilt from"), { what: "the status to say it", withinMs: 60_000 });
  for (const manifest of manifestsIn(objects).values()) expect(manifest.restoreEpoch).toBe(3);
  expect(await third.nodes.roots(["early1", "later"])).toEqual(await rebuilt.roots(["early1", "later"]));
}, 150_000);

class Third implements AsyncDisposable {
  readonly nodes = new SealingNodes(1, objects);
  async [Symbol.asyncDispose](): Promise<void> {
    await this.nodes.nodes[Symbol.asyncDispose]();
  }
}
