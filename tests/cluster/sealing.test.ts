/**
 * Object storage under the compiled executable: history goes there and is read from there, an outage
 * of it stops nothing, and a node that lost its states takes them from it.
 */
import { afterAll, beforeAll, expect, test } from "bun:test";
import { existsSync, readdirSync, readFileSync, renameSync, rmSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { until } from "../until.ts";
import { Cluster, type Server } from "./harness.ts";
import { Nodes } from "./nodes.ts";

const workflows = `
import { activities, durable, signal } from "@hopskip/runtime";
import type * as work from "./activities.ts";
const { upper } = activities<typeof work>({ retry: { initialMs: 10 } });

export const greet = durable(async (name: string) => \`Hello, \${await upper(name)}!\`);
export const collects = durable(async (count: number) => {
  const seen: string[] = [];
  while (seen.length < count) seen.push(await signal<string>("item"));
  return seen;
});
`;
const activityCode = "export const upper = (text: string) => text.toUpperCase();\n";
/** Everything is sealed soon, and nothing that is sealed is kept. */
const soon = ["--seal-size", "2KiB", "--seal-age", "300ms", "--keep-size", "1B", "--log-format", "json"];

interface Sealed {
  readonly shard: number;
  readonly through: number;
  readonly writer: { readonly node: number };
}

/** The newest manifest of each shard in a folder of objects. */
function manifestsIn(objects: string): Map<number, Sealed> {
  const newest = new Map<number, Sealed>();
  if (!existsSync(objects)) return newest;
  for (const cluster of readdirSync(objects).filter((name) => name.startsWith("hop_"))) {
    const folder = join(objects, cluster, "manifest");
    if (!existsSync(folder)) continue;
    for (const name of readdirSync(folder).sort()) {
      const manifest = JSON.parse(readFileSync(join(folder, name), "utf8")) as Sealed;
      newest.set(manifest.shard, manifest);
    }
  }
  return newest;
}

const through = (objects: string, shard = 1) => manifestsIn(objects).get(shard)?.through ?? 0;

/** Waits until the shard has sealed what it has now: nothing more comes for a while. */
async function sealedUp(objects: string): Promise<void> {
  let seen = { through: 0, atMs: performance.now() };
  const isStill = () => {
    const now = through(objects);
    if (now !== seen.through) seen = { through: now, atMs: performance.now() };
    return now > 0 && performance.now() - seen.atMs > 2500;
  };
  await until(isStill, { withinMs: 40_000, what: "everything to be sealed" });
}

const rootOf = (audit: string) => /^root\s+(\w{64})$/m.exec(audit)?.[1];

let alone: Cluster;
let server: Server;
let objects: string;

beforeAll(async () => {
  alone = new Cluster();
  objects = join(alone.folder, "objects");
  writeFileSync(join(alone.folder, "workflows.ts"), workflows);
  writeFileSync(join(alone.folder, "activities.ts"), activityCode);
  const activities = join(alone.folder, "activities.ts");
  server = await alone.server({ args: ["--worker", "--activities", activities, "--object-store", `file://${objects}`, ...soon] });
  await alone.expectOk(["deploy", "workflows.ts"], { server });
}, 60_000);
afterAll(() => alone[Symbol.asyncDispose]());

const ok = (...args: string[]) => alone.expectOk(args, { server });
const run = (instance: string) => ok("run", "greet", "--input", JSON.stringify(instance), "--instance", instance, "--follow");

test("a history goes to object storage, and is proven from there with the root that it had", async () => {
  await ok("run", "collects", "--input", "3", "--instance", "box");
  for (const item of ["a", "b"]) await ok("workflow", "signal", "default:box", "item", "--input", JSON.stringify(item));
  await Promise.all(Array.from({ length: 12 }, (_, i) => run(`early${i}`)));
  const before = rootOf(await ok("audit", "default:early3"));
  expect(before).toBeDefined();
  await sealedUp(objects);
  expect(rootOf(await ok("audit", "default:early3"))).toBe(before as string);
}, 60_000);

test("an outage of object storage hides what is there alone, and stops nothing", async () => {
  const root = rootOf(await ok("audit", "default:early5"));
  renameSync(objects, `${objects}-gone`);
  try {
    const refused = await alone.run(["audit", "default:early5", "--timeout", "3s"], { server });
    expect([refused.code === 0, refused.stderr]).toEqual([false, expect.stringMatching(/object|unavailable|Cannot/)]);
    expect(await run("during")).toContain("Hello, DURING!");
  } finally {
    renameSync(`${objects}-gone`, objects);
  }
  expect(rootOf(await ok("audit", "default:early5"))).toBe(root as string);
  const ended = through(objects);
  await run("after");
  await until(() => through(objects) > ended, { what: "sealing to go on", withinMs: 90_000 });
}, 150_000);

test("a server that lost its states takes them from object storage, and its runs go on", async () => {
  await sealedUp(objects);
  await server.kill();
  for (const name of readdirSync(server.data).filter((each) => /^(checkpoint|visibility)\.db/.test(each))) rmSync(join(server.data, name));
  await server.restart();
  const told = () => server.process.stderr.includes("states were lost here, and taken from object storage");
  await until(told, { what: () => `the states to come: ${server.process.stderr}` });
  await ok("workflow", "signal", "default:box", "item", "--input", '"c"');
  const { result } = JSON.parse(await ok("workflow", "result", "default:box", "--timeout", "20s", "-o", "json")) as { result: string[] };
  expect(result).toEqual(["a", "b", "c"]);
  // Sequence, chain and Merkle range go on over what was sealed, released and taken back.
  expect(await ok("audit", "default:box")).toContain("bytes, chain and Merkle range hold");
  expect(await run("later")).toContain("Hello, LATER!");
}, 90_000);

test("three nodes seal as one: whoever leads goes on where the last one stopped, and all have the same", async () => {
  await using nodes = new Nodes(3);
  const place = join(nodes.cluster.folder, "objects");
  nodes.extra = ["--object-store", `file://${place}`, ...soon.slice(0, -2)];
  const folder = nodes.project({ "workflows.ts": workflows, "activities.ts": activityCode });
  await nodes.form(3);
  await nodes.ok(["deploy", join(folder, "workflows.ts")]);
  const addresses = { grpc: nodes.servers.map(({ grpc }) => grpc).join(",") };
  await nodes.cluster.worker(addresses, ["--activities", join(folder, "activities.ts")]);
  const greet = (name: string) => nodes.ok(["run", "greet", "--input", JSON.stringify(name), "--instance", name, "--follow"]);
  await Promise.all(Array.from({ length: 10 }, (_, i) => greet(`one${i}`)));
  await until(() => through(place) > 0, { what: "the first segment", withinMs: 30_000 });
  const root = rootOf(await nodes.ok(["audit", "default:one1"]));
  const first = manifestsIn(place).get(1)?.writer.node as number;
  const leader = await nodes.numbered(first);
  await leader.kill();
  await Promise.all(Array.from({ length: 10 }, (_, i) => greet(`two${i}`)));
  await until(() => manifestsIn(place).get(1)?.writer.node !== first, { what: "another node to seal", withinMs: 40_000 });
  await leader.restart();
  await nodes.whole(3);
  expect(await nodes.ok(["shard", "verify", "--all"])).not.toContain("differs");
  for (const each of nodes.servers) expect(rootOf(await nodes.ok(["audit", "default:one1"], { server: each }))).toBe(root as string);
}, 180_000);
