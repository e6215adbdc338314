/** What is damaged in object storage is named by whoever restores or checks it, and a restore that fails leaves nothing. */
import { afterAll, beforeAll, expect, test } from "bun:test";
import { existsSync, mkdirSync, mkdtempSync, readdirSync, readFileSync, renameSync, rmSync, statSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join, relative } from "node:path";
import { Server } from "../cluster/harness.ts";
import { filesOf, manifestsIn, SealingNodes, type ShardManifest } from "./restore-fixture.ts";

const instances = Array.from({ length: 10 }, (_, i) => `run${i}`);
let folder: string;
let objects: string;
let old: SealingNodes;
let machines: SealingNodes;
let server: Server;

beforeAll(async () => {
  folder = mkdtempSync(join(tmpdir(), "hop-restore-"));
  objects = join(folder, "objects");
  old = new SealingNodes(1, objects);
  await old.nodes.form(1);
  await old.deploy();
  await old.worker();
  await Promise.all(instances.map((name) => old.greet(name)));
  await old.sealedUp(instances);
  // Now and then the states take the records' place: one more run is behind them.
  for (let i = 0; i < 8 && (i === 0 || newest().records.length === 0); i++) {
    await old.greet(`more${i}`);
    await old.sealedUp([`more${i}`]);
  }
  await old.kill();
  machines = new SealingNodes(2, objects);
  server = await machines.nodes.start();
}, 120_000);

afterAll(async () => {
  for (const each of [old, machines]) await each?.nodes[Symbol.asyncDispose]();
  rmSync(folder, { recursive: true, force: true });
});

const restore = (at: Server = server) => machines.nodes.run(["cluster", "restore"], { server: at });
const verify = () => machines.nodes.run(["backup", "verify", "--object-store", `file://${objects}`]);
const newest = () => manifestsIn(objects).get(1) as ShardManifest;
const pathOf = (key: string) => join(objects, key);

function bytesIn(path: string): number {
  if (!existsSync(path)) return 0;
  const stat = statSync(path);
  if (!stat.isDirectory()) return stat.size;
  return readdirSync(path).reduce((sum, name) => sum + bytesIn(join(path, name)), 0);
}

function flip(path: string): void {
  const bytes = readFileSync(path);
  const at = bytes.length >> 1;
  bytes[at] = (bytes[at] as number) ^ 1;
  writeFileSync(path, bytes);
}

/** Runs with the object changed, and puts it back. */
async function damaged(path: string, change: (path: string) => void, run: () => Promise<void>): Promise<void> {
  const kept = readFileSync(path);
  change(path);
  try {
    await run();
  } finally {
    writeFileSync(path, kept);
  }
}

const manifestPath = () => filesOf(objects, "manifest").at(-1) as string;
const damages: Record<string, () => { path: string; change: (path: string) => void }> = {
  "a segment": () => ({ path: pathOf(newest().segments[0]?.segment as string), change: flip }),
  "a segment that is gone": () => ({ path: pathOf(newest().segments[0]?.segment as string), change: (path) => rmSync(path) }),
  "the index of a segment": () => ({ path: pathOf(newest().segments.at(-1)?.index as string), change: flip }),
  states: () => ({ path: pathOf(newest().checkpoint?.parts[0]?.key as string), change: flip }),
  records: () => ({ path: pathOf(newest().records.at(-1)?.key as string), change: flip }),
  placement: () => ({ path: filesOf(objects, "placement").at(-1) as string, change: flip }),
  "the newest manifest": () => ({
    path: manifestPath(),
    change: (path) =>
      writeFileSync(
        path,
        readFileSync(path, "utf8").replace(/"through": (\d+)/, (_, through) => `"through": ${Number(through) + 1}`),
      ),
  }),
};

test.each(Object.keys(damages))(
  "%s: a restore refuses and names the object, and so does a check",
  async (name) => {
    const { path, change } = (damages[name] as (typeof damages)[string])();
    const key = relative(objects, path);
    await damaged(path, change, async () => {
      const refused = await restore();
      expect([refused.code === 0, refused.stdout, refused.stderr]).toEqual([false, "", expect.stringContaining(key)]);
      const checked = await verify();
      expect([checked.code, checked.stderr]).toEqual([1, expect.stringContaining(`damaged: ${key}: `)]);
    });
    expect([existsSync(join(server.data, "restoring")), filesOf(objects, "claim")]).toEqual([false, []]);
  },
  60_000,
);

test("a manifest that does not follow the one before is refused", async () => {
  const path = filesOf(objects, "manifest").at(-2) as string;
  const change = () =>
    writeFileSync(
      path,
      readFileSync(path, "utf8").replace(/"clockMs": (\d+)/, (_, ms) => `"clockMs": ${Number(ms) + 1}`),
    );
  await damaged(path, change, async () => {
    expect((await restore()).stderr).toContain(`number ${newest().number} does not follow the one before it`);
    expect((await verify()).stderr).toContain(`it does not follow manifest ${newest().number - 1}`);
  });
}, 60_000);

test("fifty restores that fail take no space, here or there", async () => {
  const path = pathOf(newest().records.at(-1)?.key as string);
  await damaged(path, flip, async () => {
    await restore();
    const before = [bytesIn(server.data), bytesIn(objects)];
    for (let i = 0; i < 50; i++) expect((await restore()).code).not.toBe(0);
    expect([bytesIn(server.data), bytesIn(objects)]).toEqual(before);
  });
}, 180_000);

test("a node that was started without object storage, or with another, says what it wants", async () => {
  const other = await machines.nodes.run(["cluster", "restore", "--object-store", "file:///elsewhere"], { server });
  expect(other.stderr).toContain(`this node was started with --object-store file://${objects}, and is to restore from file:///elsewhere`);
  const unknown = await machines.nodes.run(["cluster", "restore", "--cluster", "hop_0123456789abcdef"], { server });
  expect(unknown.stderr).toContain("its placement was never uploaded");
  const none = new Server(machines.nodes.cluster, { data: "none", args: ["--peer-port", "0", "--seed", "127.0.0.1:1"] });
  await none.begin();
  expect((await restore(none)).stderr).toContain("this node has no object storage; start it with --object-store");
}, 60_000);

const clusterIdIn = (data: string) => (JSON.parse(readFileSync(join(data, "node.json"), "utf8")) as { clusterId: string }).clusterId;

test("of two restores at the same time one is made and the other one leaves nothing, and what a crash left does not matter", async () => {
  const second = await machines.nodes.start();
  await second.kill();
  mkdirSync(join(second.data, "restoring", "log"), { recursive: true });
  writeFileSync(join(second.data, "restoring", "log", "half"), "half");
  await second.begin();
  expect(existsSync(join(second.data, "restoring"))).toBe(false);
  const both = await Promise.all([restore(server), restore(second)]);
  // One that begins when the other one has ended is made too, and is the one that may seal from then on.
  const made = [server, second].filter((_, i) => both[i]?.code === 0);
  expect(made.length).toBeGreaterThan(0);
  for (const [i, { code, stderr }] of both.entries()) {
    if (code === 0) continue;
    const { data } = [server, second][i] as Server;
    expect([stderr, readdirSync(data).filter((name) => name.startsWith("restor"))]).toEqual([
      expect.stringContaining("ALREADY_MEMBER"),
      [],
    ]);
    // It may have joined the one that was made, by itself: it has that one as a seed.
    if (existsSync(join(data, "node.json"))) expect(clusterIdIn(data)).toBe(clusterIdIn((made[0] as Server).data));
  }
  const at = made[0] as Server;
  const roots = await machines.nodes.ok(["audit", "default:run1"], { server: at });
  expect(roots).toMatch(/^root\s+\w{64}$/m);
  await at.kill();
  // A crash before the last rename goes on with it.
  mkdirSync(join(at.data, "restored"));
  renameSync(join(at.data, "node.json"), join(at.data, "restored", "node.json"));
  await at.begin();
  await machines.nodes.ok(["cluster", "status", "--wait-nodes", "1", "--timeout", "20s"], { server: at });
  expect(await machines.nodes.ok(["audit", "default:run1"], { server: at })).toBe(roots);
}, 90_000);
