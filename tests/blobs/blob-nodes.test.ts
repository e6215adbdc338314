/** Blobs under the compiled executable, on three nodes and one more: uploaded, collected, and there whoever dies. */
import { afterAll, beforeAll, expect, test } from "bun:test";
import { existsSync, readdirSync } from "node:fs";
import { join } from "node:path";
import { fromHex, toHex } from "#core/base";
import { HopClient } from "#sdk/client";
import type { Server } from "#tests/cluster";
import { Nodes } from "../cluster/nodes.ts";
import { until } from "../until.ts";

const workflows = `
import { durable } from "@hopskip/runtime";
export const echo = durable(async (text: string) => text + "!");
`;
const graceS = 10;
const large = (i: number, bytes = 150_000) => JSON.stringify(String(i).padStart(bytes, "x"));

let nodes: Nodes;
let objects: string;

beforeAll(async () => {
  nodes = new Nodes(4, 3);
  objects = join(nodes.cluster.folder, "objects");
  // Nothing is sealed while the test lasts.
  nodes.extra = ["--worker", "--object-store", `file://${objects}`, "--seal-age", "1h", "--blob-grace", `${graceS}s`];
  await nodes.form(3);
  await nodes.ok(["deploy", join(nodes.project({ "workflows.ts": workflows }), "workflows.ts")]);
}, 90_000);
afterAll(() => nodes[Symbol.asyncDispose]());

const blobsOn = (server: Server): string[] =>
  (readdirSync(join(server.data, "blobs"), { recursive: true }) as string[])
    .map((name) => name.split("/").at(-1) ?? "")
    .filter((name) => name.length === 64);

function storedBlobs(): string[] {
  const [cluster] = existsSync(objects) ? readdirSync(objects).filter((name) => name.startsWith("hop_")) : [];
  const folder = join(objects, cluster ?? "", "blob");
  return existsSync(folder) ? readdirSync(folder).sort() : [];
}

const copiesOf = (name: string) => nodes.servers.filter((server) => blobsOn(server).includes(name)).length;
const echo = (i: number, bytes?: number) =>
  nodes.ok(["run", "echo", "--input", "-", "--instance", `echo-${i}`, "--follow"], { input: large(i, bytes) });
const hashOf = (text: string) => toHex(Bun.SHA256.hash(text) as Uint8Array);

test("what a run names is in object storage soon, and long before it is sealed", async () => {
  expect(JSON.parse(await echo(1))).toBe(`${JSON.parse(large(1))}!`);
  // The code, the input and the result.
  await until(() => storedBlobs().length === 3, { what: () => `three blobs; there are ${storedBlobs().length}` });
  expect(storedBlobs()).toContain(hashOf(large(1)));
  expect(readdirSync(join(objects, readdirSync(objects).find((name) => name.startsWith("hop_")) ?? ""))).not.toContain("manifest");
}, 60_000);

test("what no event names is removed from every node when its time is over, and never uploaded", async () => {
  const refused = await nodes.run(["run", "nothing", "--input", "-"], { input: large(2) });
  expect(refused.stderr).toContain("is not deployed");
  const abandoned = hashOf(large(2));
  expect(copiesOf(abandoned)).toBeGreaterThanOrEqual(2);
  await until(() => copiesOf(abandoned) === 0, { withinMs: 40_000, what: "the abandoned blob to go" });
  expect(storedBlobs()).not.toContain(abandoned);
  expect(copiesOf(hashOf(large(1)))).toBeGreaterThanOrEqual(2);
  const pages = await Promise.all(nodes.servers.map(async ({ http }) => (await fetch(`http://${http}/metrics`)).text()));
  const sum = (name: string) => pages.reduce((total, page) => total + Number(new RegExp(`^${name} (\\d+)$`, "m").exec(page)?.[1]), 0);
  expect(sum("hopskip_blobs_collected")).toBeGreaterThanOrEqual(2);
  // Where two nodes bring one blob at the same time, one of them puts it.
  expect(sum("hopskip_blobs_uploaded")).toBeGreaterThanOrEqual(1);
  expect(sum("hopskip_blobs_waiting")).toBe(0);
}, 90_000);

test("a node that dies while large payloads are on their way loses none of them", async () => {
  const victim = nodes.at(2);
  const running = Array.from({ length: 16 }, (_, i) => echo(10 + i, 1_000_000));
  await until(() => blobsOn(victim).length > 6, { what: "blobs on the node that is to die" });
  await victim.kill();
  const outputs = await Promise.all(running);
  for (const [i, output] of outputs.entries()) expect(JSON.parse(output)).toBe(`${JSON.parse(large(10 + i, 1_000_000))}!`);
  await victim.restart();
  await nodes.whole(3);
  await until(() => storedBlobs().length === 3 + 32, {
    withinMs: 40_000,
    what: () => `35 blobs in object storage; there are ${storedBlobs().length}`,
  });
}, 120_000);

test("a node with an empty disk has every blob out of object storage, where all others are down", async () => {
  const fresh = await nodes.start();
  await fresh.process.line(/^ready grpc=/m);
  await nodes.whole(4);
  await Promise.all(nodes.servers.slice(0, 3).map((server) => server.kill()));
  const all = storedBlobs();
  const lacked = all.filter((name) => !blobsOn(fresh).includes(name));
  expect(lacked.length).toBeGreaterThan(0);
  const client = HopClient.connect({ address: fresh.grpc, retryMs: 3_000 });
  try {
    for (const name of all) {
      const data = await client.blob(fromHex(name) as Uint8Array);
      expect(toHex(Bun.SHA256.hash(data) as Uint8Array)).toBe(name);
    }
    expect(all.filter((name) => !blobsOn(fresh).includes(name))).toEqual([]);
    const unknown = new Uint8Array(32).fill(5);
    const refused = await client.blob(unknown).catch((error: { reason: string }) => error.reason);
    expect(refused).toBe("STORE_UNAVAILABLE");
  } finally {
    client.close();
  }
}, 120_000);
