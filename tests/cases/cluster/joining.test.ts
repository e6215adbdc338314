/**
 * temporal#9987: a node that restarted while its database blinked saw only itself, and was a
 * cluster of one for ever, silently. temporal#3415: two clusters merged over an address that was
 * used again.
 */
import { afterAll, describe, expect, test } from "bun:test";
import { mkdtempSync, rmSync } from "node:fs";
import { createServer } from "node:net";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { NodePhase } from "#proto";
import { HopClient } from "#sdk/client";
import { type NodeConfig, type RunningNode, startNode } from "../../../node/index.ts";
import { stays, until } from "../../until.ts";

const folder = mkdtempSync(join(tmpdir(), "hop-joining-"));
const opened: { close(): unknown }[] = [];
afterAll(async () => {
  for (const each of opened.reverse()) await each.close();
  rmSync(folder, { recursive: true, force: true });
});

type Line = { readonly message: string } & Readonly<Record<string, unknown>>;

class Started {
  readonly lines: Line[] = [];
  node!: RunningNode;

  static async at(name: string, config: Partial<NodeConfig>): Promise<Started> {
    const started = new Started();
    const log = (message: string, fields: object = {}) => void started.lines.push({ ...fields, message });
    started.node = await startNode({
      dataDir: join(folder, name),
      version: "0.1.0",
      grpcPort: 0,
      httpPort: 0,
      logger: { debug: log, info: log, warn: log, error: log },
      ...config,
    });
    opened.push(started.node);
    return started;
  }

  get client(): HopClient {
    const client = HopClient.connect({ address: this.node.grpc, retryMs: 500 });
    opened.push(client);
    return client;
  }

  async isReady(): Promise<boolean> {
    return (await fetch(`http://${this.node.http}/readyz`)).ok;
  }
}

/** Ports that nobody listens on now. */
async function freePorts(count: number): Promise<number[]> {
  const servers = Array.from({ length: count }, () => createServer());
  const ports = await Promise.all(
    servers.map(
      (server) =>
        new Promise<number>((resolve) => server.listen(0, "127.0.0.1", () => resolve((server.address() as { port: number }).port))),
    ),
  );
  await Promise.all(servers.map((server) => new Promise((resolve) => server.close(resolve))));
  return ports;
}

const peer = (port: number | undefined) => `127.0.0.1:${port}`;

/** A cluster of three that is whole. */
async function threeNodes(name: string) {
  const ports = await freePorts(3);
  const configs = ports.map((peerPort) => ({ seeds: ports.map(peer), peerPort }));
  const three = await Promise.all(configs.map((config, n) => Started.at(`${name}-${n}`, config)));
  const first = three[0] as Started;
  await first.client.cluster.init();
  await Promise.all(three.map(({ node }) => node.member));
  await until(async () => {
    const status = await first.client.cluster.status();
    return status.placementVoter.length === 3 && status.shardsUnderReplicated === 0 && status.underWay.length === 0;
  });
  return { three, configs, clusterId: first.node.clusterId };
}

describe("a node with seeds (temporal#9987)", () => {
  test("never leads alone while its seeds are down, deaf or unknown, says why, and joins when one is there", async () => {
    const [down, late, own] = await freePorts(3);
    // Takes connections, and says nothing.
    const deaf = createServer(() => {});
    const deafPort = await new Promise<number>((resolve) =>
      deaf.listen(0, "127.0.0.1", () => resolve((deaf.address() as { port: number }).port)),
    );
    opened.push(deaf);
    const seeds = [peer(down), peer(deafPort), "no-such-host.invalid:7072", peer(late)];
    const seeker = await Started.at("seeker", { seeds, peerPort: own });
    const status = await until(
      async () => {
        const now = await seeker.client.cluster.status();
        return now.seed.length === seeds.length && now.seed.every(({ problem }) => problem !== "") ? now : undefined;
      },
      { what: "a problem with every seed" },
    );
    expect(status).toMatchObject({ phase: NodePhase.joining, clusterId: "", node: 0 });
    expect(status.seed.map(({ seed }) => seed)).toEqual(seeds);
    expect([seeker.node.isMember, seeker.node.clusterId, await seeker.isReady()]).toEqual([false, "", false]);
    await expect(seeker.client.start("any")).rejects.toThrow("looking for its cluster");

    // A seed that is up, and of no cluster either, is no reason to make one.
    const other = await Started.at("late", { seeds: [peer(own)], peerPort: late });
    await until(async () => (await seeker.client.cluster.status()).seed.some(({ problem }) => problem.includes("is joining too")));
    expect([seeker.node.isMember, other.node.isMember]).toEqual([false, false]);
    await other.client.cluster.init();
    await Promise.all([seeker.node.member, other.node.member]);
    expect(seeker.node.clusterId).toBe(other.node.clusterId);
  }, 60_000);

  test("a member of three that comes back alone is no cluster of one: it waits for the others", async () => {
    const { three, configs, clusterId } = await threeNodes("three");
    await Promise.all(three.map(({ node }) => node.close()));

    const alone = await Started.at("three-1", configs[1] as object);
    expect([alone.node.clusterId, alone.node.isMember]).toEqual([clusterId, true]);
    // Longer than several elections.
    const leads = async () => (await alone.client.cluster.status()).placementLeader !== 0;
    await stays(async () => !(await leads()), { forMs: 3000, what: "nobody leads placement" });
    expect(await alone.client.cluster.status()).toMatchObject({ clusterId, placementLeader: 0, nodesTotal: 3 });
    await expect(alone.client.start("any")).rejects.toThrow();
    const second = await Started.at("three-2", configs[2] as object);
    await Promise.all([alone.node.member, second.node.member]);
    await until(async () => (await alone.client.cluster.status()).nodesLive === 2, { what: "two live nodes" });
    expect((await second.client.cluster.status()).clusterId).toBe(clusterId);
  }, 60_000);
});

test("a node of another cluster at an address that was used again is refused by name, and nothing merges (temporal#3415)", async () => {
  const { three, configs, clusterId } = await threeNodes("a");
  const [a1, , a3] = three as [Started, Started, Started];
  await a3.node.close();
  const b1 = await Started.at("b1", { bootstrap: true, peerPort: configs[2]?.peerPort });
  await b1.node.member;
  const foreign = () => [...three, b1].flatMap(({ lines }) => lines).find(({ rule }) => rule === "FOREIGN_CLUSTER");
  const line = await until(foreign, { what: "a refusal by name" });
  expect(JSON.stringify(line)).toContain(clusterId);
  expect(JSON.stringify(line)).toContain(b1.node.clusterId);
  const members = async (of: Started) => (await of.client.cluster.members()).member.map(({ node }) => node);
  expect([await members(a1), await members(b1)]).toEqual([[1, 2, 3], [1]]);
  expect((await a1.client.cluster.status()).clusterId).toBe(clusterId);
  expect(await b1.client.cluster.status()).toMatchObject({ clusterId: b1.node.clusterId, nodesTotal: 1 });
}, 60_000);
