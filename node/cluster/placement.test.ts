/** Placement over real links: every node sees the leader's view and reaches it, whoever leads. */
import { describe, expect, test } from "bun:test";
import { asNodeId, asShardId, asTerm, type HopError } from "#core/base";
import { encodeCommand } from "#core/placement";
import { encodePlacementAsk, toBytes } from "#proto";
import { info } from "../../core/placement/machine-fixture.ts";
import { until } from "../../tests/until.ts";
import { TestPeer } from "../peer/peer-fixture.ts";
import { ClusterDeployments } from "./deployments.ts";
import { clusterFigures, isReachable } from "./figures.ts";
import { joinThrough } from "./joining.ts";
import { MemberAddresses } from "./node-list.ts";
import { load, type PlacementNode, placementTown } from "./placement-fixture.ts";
import { ada } from "./routing-fixture.ts";

type Three = [PlacementNode, PlacementNode, PlacementNode];
const bundle = new Uint8Array(32).fill(5);
const deploy = (types: string[] = ["order"]) => ({ bundle, size: 10, types });

describe("the view", () => {
  test("comes to every node, voter or not, and follows the leader's", async () => {
    using town = placementTown(3, 2);
    const { group, nodes } = town;
    for (const { placement } of nodes) placement.start();
    const version = () => group.machine.machine.view().version;
    await until(() => nodes.every(({ placement }) => placement.view.version === version()), { what: "the first view" });
    for (let i = 0; i < 30; i++) group.do({ kind: "set-entry", class: "policy", name: `p${i}`, value: new Uint8Array([i]) });
    await until(() => nodes.every(({ placement }) => placement.view.version === version()), { what: "the changes" });
    for (const { placement } of nodes) expect(placement.view).toEqual(group.machine.machine.view());
  });

  test("is kept while nobody leads, and goes on under another leader", async () => {
    using town = placementTown(3, 2);
    const { group, nodes } = town;
    const [, , third] = nodes as unknown as Three;
    for (const { placement } of nodes) placement.start();
    await until(() => third.placement.view.nodes.size === 3);
    group.leader = 0;
    const seen: number[] = [];
    third.placement.onView(({ version }) => void seen.push(version));
    await until(() => third.placement.leaderHint === undefined, { what: "the watch's end" });
    expect(third.placement.view.nodes.size).toBe(3);
    group.leader = 2;
    group.do({ kind: "join", info: info(4) });
    await until(() => third.placement.view.nodes.size === 4);
    expect(seen).toEqual([...seen].sort((a, b) => a - b));
  });
});

describe("commands", () => {
  test("reach the leader from everywhere, with who asked, before the first view as after it", async () => {
    using town = placementTown(3, 1);
    const { group, nodes } = town;
    for (const [i, { placement }] of nodes.entries()) {
      const reply = await placement.command(ada, { kind: "set-entry", class: "policy", name: "p", value: new Uint8Array([i]) });
      expect(reply).toEqual({ kind: "version", version: i + 1 });
    }
    expect(group.commands.map(({ identity }) => identity)).toEqual([ada, ada, ada]);
  });

  test("wait for a leader, find the next one, and say so when there is none", async () => {
    using town = placementTown(3, 3);
    const { group, nodes } = town;
    const [, , third] = nodes as unknown as Three;
    group.leader = 0;
    const waiting = third.placement.command(ada, { kind: "set-replication", count: 1 });
    await expect(third.placement.command(ada, { kind: "set-replication", count: 1 }, 80)).rejects.toMatchObject({
      reason: "STORE_UNAVAILABLE",
    });
    group.leader = 2;
    expect(await waiting).toEqual({ kind: "done" });
    group.leader = 1;
    expect(await third.placement.command(ada, { kind: "set-replication", count: 3 })).toEqual({ kind: "done" });
  });

  test("a refusal of placement's is an answer, and is not tried again", async () => {
    using town = placementTown(2, 1);
    const { group, nodes } = town;
    const second = nodes[1] as PlacementNode;
    const lease = { kind: "lease", shard: asShardId(9), node: asNodeId(2), term: asTerm(1) } as const;
    expect(await second.placement.command(ada, lease)).toMatchObject({ kind: "rejected", rejection: { reject: "SHARD_NOT_FOUND" } });
    const error = (await second.placement.demand(ada, lease).catch((cause: unknown) => cause)) as HopError;
    expect(error.reason).toBe("SHARD_NOT_FOUND");
    expect(group.commands).toHaveLength(2);
  });
});

test("a deployment through one node is known there when it is answered, and elsewhere after a refresh", async () => {
  using town = placementTown(3, 1);
  const [, second, third] = town.nodes as unknown as Three;
  second.placement.start();
  const [here, there] = [new ClusterDeployments(second.placement), new ClusterDeployments(third.placement)];
  expect(await here.deploy(ada, "default", deploy())).toBe(1);
  expect(here.bundle("default", { type: "order" })).toEqual(bundle);
  expect(there.bundle("default", { type: "order" })).toBeUndefined();
  await there.refresh();
  expect([there.bundle("default", { type: "order" }), there.types("default")]).toEqual([bundle, ["order"]]);
});

describe("reports", () => {
  test("are heard by the leader alone, and told by it to whoever asks", async () => {
    using town = placementTown(3, 2);
    const { group, nodes } = town;
    const [first, second, third] = nodes as unknown as Three;
    third.loads.set(asShardId(1), load({ bytes: 7, eventsPerSecond: 1.5, splitAt: 99, lag: new Map([[asNodeId(1), 4]]) }));
    for (const { placement } of nodes) placement.start();
    await until(() => first.placement.reports().size === 3, { what: "three reports" });
    expect(first.placement.reports().get(asNodeId(3))?.loads.get(asShardId(1))).toEqual(third.loads.get(asShardId(1)) as never);
    expect(second.placement.reports().size).toBe(0);
    const figures = await clusterFigures(second.placement);
    expect(figures.leader).toBe(asNodeId(1));
    expect(figures.nodes?.get(asNodeId(3))?.loads).toEqual(third.loads);
    expect(isReachable(figures, asNodeId(3), asNodeId(2))).toBe(true);
    expect(isReachable(figures, asNodeId(4), asNodeId(2))).toBe(false);
    group.leader = 2;
    await until(() => second.placement.reports().size === 3, { what: "reports to the new leader" });
    expect(first.placement.leadsSinceMs()).toBeUndefined();
    expect(first.placement.reports().size).toBe(0);
    expect(second.placement.leadsSinceMs()).toBeGreaterThan(0);
  });
});

describe("joining", () => {
  test("a stranger gets its number through any member, the same one when it asks again", async () => {
    using town = placementTown(2, 1);
    using stranger = new TestPeer(0);
    const through = town.nodes.map(({ peer }) => peer.net.address);
    const join = { kind: "join", info: info(3) } as const;
    for (const addresses of [through, [...through].reverse(), ["127.0.0.1:1", ...through]]) {
      expect(await joinThrough(stranger.net, addresses, join, { identity: ada })).toEqual({ clusterId: "c1", node: asNodeId(3) });
    }
    // What a stranger says of itself is not vouched for.
    expect(town.group.commands.map(({ identity }) => identity)).toEqual(Array(3).fill({ ...ada, verified: false }));
    const foreign = joinThrough(stranger.net, through, { ...join, clusterId: "other" }, { identity: ada });
    await expect(foreign).rejects.toThrow("c1");
  });

  test("a stranger may ask for nothing else", async () => {
    using town = placementTown(1, 1);
    using stranger = new TestPeer(0);
    const body = toBytes(encodePlacementAsk, { identity: ada, command: encodeCommand({ kind: "remove", node: asNodeId(1) }) });
    const address = (town.nodes[0] as PlacementNode).peer.net.address;
    for (const method of ["placement.join", "placement.command", "placement.report", "placement.figures"])
      await expect(stranger.net.callAt({ address }, method, body)).rejects.toThrow(/may only join|only members/);
    expect(town.group.commands).toEqual([]);
  });
});

test("clients are told of the members' addresses when they change, and of none where there is one node", async () => {
  using town = placementTown(1, 1);
  const { group, nodes } = town;
  const { placement } = nodes[0] as PlacementNode;
  placement.start();
  const addresses = new MemberAddresses(placement);
  const told: string[][] = [];
  addresses.onNodes(({ address = [] }) => void told.push([...address]));
  await until(() => placement.view.nodes.size === 1);
  expect(addresses.nodes().address).toEqual([]);
  group.do({ kind: "join", info: info(2) });
  group.do({ kind: "set-entry", class: "policy", name: "p", value: new Uint8Array([1]) });
  group.do({ kind: "join", info: info(3) });
  const [one, two, three] = [1, 2, 3].map((node) => `10.0.0.${node}:7070`) as [string, string, string];
  expect(told).toEqual([
    [one, two],
    [one, two, three],
  ]);
  group.do({ kind: "remove", node: asNodeId(2) });
  expect(addresses.nodes()).toEqual({ address: [one, three], version: placement.view.version });
});
