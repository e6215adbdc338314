/**
 * Nodes of one minor version apart work together, so a cluster is upgraded, and rolled back, one
 * node at a time; two minors apart refuse each other by name.
 */
import { afterAll, expect, test } from "bun:test";
import { mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { type RunningNode, startNode } from "#node";
import { HopClient } from "#sdk/client";
import { until } from "../until.ts";

const folder = mkdtempSync(join(tmpdir(), "hop-upgrade-"));
afterAll(() => rmSync(folder, { recursive: true, force: true }));

interface Ports {
  readonly grpc: number;
  readonly peer: number;
}

const portOf = (address: string) => Number(address.slice(address.lastIndexOf(":") + 1));

class Cluster implements AsyncDisposable {
  readonly nodes: RunningNode[] = [];
  private readonly ports: Ports[] = [];

  async start(i: number, version: string): Promise<RunningNode> {
    const ports = this.ports[i] ?? { grpc: 0, peer: 0 };
    const first = this.ports[0];
    const node = await startNode({
      dataDir: join(folder, `n${i}`),
      version,
      grpcPort: ports.grpc,
      httpPort: 0,
      peerPort: ports.peer,
      ...(i === 0 ? { bootstrap: first === undefined } : { seeds: [`127.0.0.1:${first?.peer}`] }),
    });
    this.ports[i] = { grpc: portOf(node.grpc), peer: portOf(node.peer) };
    this.nodes[i] = node;
    await node.member;
    return node;
  }

  client(): HopClient {
    return HopClient.connect({ address: this.nodes.map((node) => node.grpc).join(",") });
  }

  async [Symbol.asyncDispose](): Promise<void> {
    for (const node of this.nodes) await node.close();
  }
}

test("a cluster is upgraded by one minor version and rolled back, one node at a time, while clients write", async () => {
  await using cluster = new Cluster();
  for (const i of [0, 1, 2]) await cluster.start(i, "0.2.0");
  const client = cluster.client();
  await until(async () => (await client.cluster.status()).nodesLive === 3 && (await client.cluster.status()).shardsUnderReplicated === 0, {
    what: "three replicas of everything",
  });
  await client.deploy({ code: new TextEncoder().encode("// none"), types: ["order"] });
  const started: string[] = [];
  const write = async (count: number) => {
    for (let i = 0; i < count; i++) started.push((await client.start("order", undefined, { instance: `o${started.length}` })).id);
  };
  await write(5);
  for (const version of ["0.3.0", "0.2.0"]) {
    for (const i of [0, 1, 2]) {
      const closing = cluster.nodes[i]?.close();
      await write(3);
      await closing;
      await cluster.start(i, version);
      await write(3);
    }
    expect((await client.cluster.status()).versions?.map((each) => each.version)).toEqual([version]);
  }
  for (const run of started) expect((await client.describe(run)).size).toBe(1);
  client.close();
}, 120_000);

test("a node two minor versions apart is refused by name, and touches nothing", async () => {
  const dataDir = join(folder, "n0");
  const before = readFileSync(join(dataDir, "node.json"), "utf8");
  // As if the version after the next one had written it.
  writeFileSync(join(dataDir, "node.json"), before.replace(/"version":"[^"]*"/, '"version":"0.4.0"'));
  await expect(startNode({ dataDir, version: "0.2.0", grpcPort: 0, httpPort: 0 })).rejects.toThrow(/0\.4\.0 wrote it last/);
  expect(readFileSync(join(dataDir, "node.json"), "utf8")).toContain("0.4.0");
});
