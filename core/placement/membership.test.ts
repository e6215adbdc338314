import { describe, expect, test } from "bun:test";
import { asNodeId, keyMax } from "#core/base";
import type { NodeInfo } from "#proto";
import { ids, info, Placement } from "./machine-fixture.ts";

const standings = ({ view }: Placement) => [...view.nodes.values()].map(({ node, standing }) => `${node} ${standing}`);
const join = (own: NodeInfo, more: { node?: number; clusterId?: string } = {}) => {
  const { node, clusterId } = more;
  return { kind: "join", info: own, ...(node && { node: asNodeId(node) }), ...(clusterId && { clusterId }) } as const;
};

describe("bootstrap", () => {
  test("makes a cluster of one node that holds every key, and only once", () => {
    const placement = new Placement();
    const bootstrap = { kind: "bootstrap", clusterId: "c1", info: info(1), shards: 3, replicationWanted: 5 } as const;
    expect(placement.view).toMatchObject({ clusterId: "", version: 0, placement: undefined });
    expect(placement.do(bootstrap)).toEqual({ kind: "joined", clusterId: "c1", node: asNodeId(1) });
    const { view } = placement;
    expect([view.clusterId, view.replicationWanted, Number(view.version)]).toEqual(["c1", 5, 1]);
    expect(view.ranges.map(({ shard, range, voters }) => [Number(shard), range.first, ids(voters)])).toEqual([
      [1, 0, [1]],
      [2, Math.floor((keyMax + 1) / 3), [1]],
      [3, Math.floor(((keyMax + 1) / 3) * 2), [1]],
    ]);
    expect(view.ranges.at(-1)?.range.last).toBe(keyMax);
    expect(ids(placement.shard(0).wanted)).toEqual([1]);
    expect(placement.do(bootstrap)).toEqual({ kind: "joined", clusterId: "c1", node: asNodeId(1) });
    expect(placement.view).toBe(view);
    expect(placement.refusal({ ...bootstrap, clusterId: "c2" })).toMatchObject({ reject: "ALREADY_MEMBER" });
    expect(placement.refusal({ ...bootstrap, info: info(2) })).toMatchObject({ reject: "ALREADY_MEMBER" });
  });

  test.each([
    [{ clusterId: "" }, "its id is empty"],
    [{ shards: 0 }, "it is to have 0 shards, want 1–1024"],
    [{ replicationWanted: 2 }, "the replication factor is 2, want 1, 3, 5 or 7"],
    [{ info: info(1, { peer: "nowhere" }) }, 'its peer address "nowhere" is not host:port'],
    [{ info: info(1, { grpc: "0.0.0.0:7070" }) }, "address of any machine"],
    [{ info: info(1, { zone: "\ud800" }) }, "not well-formed"],
  ])("refuses %j", (fields, message) => {
    const refused = new Placement().refusal({ kind: "bootstrap", clusterId: "c1", info: info(1), ...fields });
    expect(refused.reject).toBe("BAD_REQUEST");
    expect(refused.message).toContain(message);
  });
});

describe("join", () => {
  test("gives each data folder one number, however often it asks", () => {
    const placement = Placement.of(1);
    expect(placement.do(join(info(2)))).toEqual({ kind: "joined", clusterId: "c1", node: asNodeId(2) });
    expect(placement.do(join(info(2)))).toMatchObject({ node: 2 });
    expect(placement.do(join(info(3), { clusterId: "c1" }))).toMatchObject({ node: 3 });
    expect(standings(placement)).toEqual(["1 member", "2 member", "3 member"]);
  });

  test("takes what a known node says of itself now", () => {
    const placement = Placement.of(2);
    const { version } = placement.view;
    const moved = info(9, { disk: "disk-2", zone: "b" });
    expect(placement.do(join(moved, { node: 2 }))).toMatchObject({ node: 2 });
    expect(placement.view.nodes.get(asNodeId(2))?.info).toEqual(moved);
    expect(placement.view.version).toBe(version + 1);
    placement.do(join(moved, { node: 2 }));
    expect(placement.view.version).toBe(version + 1);
  });

  test("an empty disk under a member's address is another node, and the member counts as lost", () => {
    const placement = Placement.of(3);
    expect(placement.do(join(info(2, { disk: "new" })))).toMatchObject({ node: 4 });
    expect(standings(placement)).toEqual(["1 member", "2 lost", "3 member", "4 member"]);
    expect(placement.view.nodes.get(asNodeId(2))?.replacedBy).toBe(asNodeId(4));
    // Lost is lost once: the next one replaces the newer.
    expect(placement.do(join(info(2, { disk: "newer" })))).toMatchObject({ node: 5 });
    expect(standings(placement)).toEqual(["1 member", "2 lost", "3 member", "4 lost", "5 member"]);
  });

  test("is refused where it names another cluster, another folder, or a number that is none", () => {
    const placement = Placement.of(2);
    expect(placement.refusal(join(info(3), { clusterId: "c2" }))).toMatchObject({ reject: "FOREIGN_CLUSTER" });
    expect(placement.refusal(join(info(2, { disk: "x" }), { node: 2 }))).toMatchObject({ reject: "NOT_A_MEMBER" });
    expect(placement.refusal(join(info(7), { node: 7 }))).toMatchObject({ reject: "NODE_NOT_FOUND" });
    expect(new Placement().refusal(join(info(1)))).toMatchObject({ reject: "STORE_UNAVAILABLE" });
  });

  test("a loopback address is refused where a member has another one", () => {
    const local = (number: number) => info(number, { peer: `127.0.0.1:${number}`, grpc: "localhost:7070", http: "" });
    const mixed = Placement.of(1);
    for (const own of [local(2), info(2, { grpc: "[::1]:7070" })]) {
      expect(mixed.refusal(join(own)).message).toMatch(/only its own machine reaches, and node 1 is at 10\.0\.0\.1:7072/);
    }
    const alone = new Placement();
    alone.do({ kind: "bootstrap", clusterId: "c1", info: local(1) });
    expect(alone.do(join(local(2)))).toMatchObject({ node: 2 });
    // Its own address does not stand in the way of a node that moves.
    const one = Placement.of(1);
    expect(one.do(join(info(1, { peer: "127.0.0.1:1", grpc: "", http: "" }), { node: 1 }))).toMatchObject({ node: 1 });
  });
});

describe("leave and remove", () => {
  test("a number is never given twice, and a removed node does not come back", () => {
    const placement = Placement.of(3);
    expect(placement.do({ kind: "leave", node: asNodeId(3) })).toEqual({ kind: "done" });
    expect(placement.do({ kind: "leave", node: asNodeId(3) })).toEqual({ kind: "done" });
    expect(standings(placement)).toEqual(["1 member", "2 member", "3 leaving"]);
    expect(placement.do({ kind: "remove", node: asNodeId(3) })).toEqual({ kind: "removed", gone: true });
    expect(placement.do({ kind: "remove", node: asNodeId(3) })).toEqual({ kind: "removed", gone: true });
    expect(placement.refusal(join(info(3), { node: 3 }))).toMatchObject({ reject: "NOT_A_MEMBER" });
    expect(placement.refusal(join(info(3)))).toMatchObject({ reject: "NOT_A_MEMBER" });
    expect(placement.do(join(info(3, { disk: "new" })))).toMatchObject({ node: 4 });
    expect(standings(placement)).toEqual(["1 member", "2 member", "3 removed", "4 member"]);
    const follower = placement.follower();
    expect([...follower.view().nodes.keys()]).toEqual([1, 2, 3, 4].map(asNodeId));
  });

  test("a node that holds replicas is lost first, and gone when they are elsewhere", () => {
    const placement = Placement.of(4);
    for (const shard of [0, 1]) placement.place(shard, [1, 2, 3]);
    expect(placement.do({ kind: "remove", node: asNodeId(3) })).toEqual({ kind: "removed", gone: false });
    expect(standings(placement)[2]).toBe("3 lost");
    for (const shard of [0, 1]) placement.place(shard, [1, 2, 4]);
    expect(placement.do({ kind: "remove", node: asNodeId(3) })).toEqual({ kind: "removed", gone: true });
  });

  test("the last member stays", () => {
    const placement = Placement.of(2);
    placement.do({ kind: "leave", node: asNodeId(1) });
    for (const kind of ["leave", "remove"] as const)
      expect(placement.refusal({ kind, node: asNodeId(2) })).toMatchObject({ reject: "BAD_REQUEST" });
    for (const kind of ["leave", "remove"] as const)
      expect(placement.refusal({ kind, node: asNodeId(9) })).toMatchObject({ reject: "NODE_NOT_FOUND" });
  });
});
