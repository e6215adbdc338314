import { expect, test } from "bun:test";
import { asNodeId, asShardId, asTerm, HopError } from "#core/base";
import { set } from "../../core/placement/machine-fixture.ts";
import { until } from "../../tests/until.ts";
import { load, type PlacementNode, placementTown } from "./placement-fixture.ts";
import { PlannerLoop, serveTransfers } from "./planner-loop.ts";

const options = { listenMs: 0, settleMs: 0 };
const all = [1, 2, 3].map(asNodeId);
const shard = asShardId(1);

test("whoever leads placement has a shard grow to its replicas; the others plan nothing", async () => {
  using town = placementTown(3, 2);
  const { group, nodes } = town;
  const loops = nodes.map(({ placement }) => new PlannerLoop({ placement, options }));
  for (const { placement } of nodes) placement.start();
  for (const loop of loops.slice(1)) loop.start();
  await until(() => nodes.every(({ placement }) => placement.view.nodes.size === 3));
  await until(() => (nodes[0] as PlacementNode).placement.reports().size === 3, { what: "reports" });
  expect(group.commands).toEqual([]);
  loops[0]?.start();
  await until(() => group.machine.machine.view().shards.get(shard)?.wanted.length === 3, { what: "a plan" });
  expect(group.commands[0]?.identity).toEqual({ issuer: "core", subject: "planner", verified: true, causeSeq: 0 });
  for (const loop of loops) loop.close();
});

test("a node whose disk is full is asked to hand over, when it has told so", async () => {
  using town = placementTown(3, 1);
  const { group, nodes } = town;
  for (const each of [shard, asShardId(0)]) {
    group.do({ kind: "want-replicas", shard: each, nodes: all });
    group.do({ kind: "replicas-changed", shard: each, replicas: set([1, 2, 3], 5) });
  }
  group.do({ kind: "lease", shard, node: asNodeId(2), term: asTerm(1) });
  const [first, second, third] = nodes as [PlacementNode, PlacementNode, PlacementNode];
  second.isFull = true;
  third.isFull = true;
  for (const { placement } of nodes) placement.start();
  serveTransfers(second.peer.net, (id, to) => void group.do({ kind: "lease", shard: id, node: to, term: asTerm(2) }));
  await until(() => first.placement.reports().size === 3, { what: "reports" });
  const loop = new PlannerLoop({ placement: first.placement, options });
  loop.start();
  await until(() => group.machine.machine.view().shards.get(shard)?.lease?.node === 1, { what: "a leader that can write" });
  loop.close();
});

test("a lead that is to move is asked of the node that has it, until it has moved", async () => {
  using town = placementTown(3, 1);
  const { group, nodes } = town;
  group.do({ kind: "want-replicas", shard, nodes: all });
  group.do({ kind: "replicas-changed", shard, replicas: set([1, 2, 3], 5) });
  group.do({ kind: "want-replicas", shard: asShardId(0), nodes: all });
  group.do({ kind: "replicas-changed", shard: asShardId(0), replicas: set([1, 2, 3], 5) });
  group.do({ kind: "lease", shard, node: asNodeId(2), term: asTerm(1) });
  for (const { placement } of nodes) placement.start();
  (nodes[1] as PlacementNode).loads.set(shard, load());
  let asked = 0;
  serveTransfers((nodes[1] as PlacementNode).peer.net, (id, to) => {
    expect([id, to === 1 || to === 3]).toEqual([shard, true]);
    if (asked++ === 0) throw new HopError("NOT_LEADER", "not now");
    group.do({ kind: "lease", shard: id, node: to, term: asTerm(2) });
  });
  await until(() => (nodes[0] as PlacementNode).placement.reports().size === 3, { what: "reports" });
  group.do({ kind: "leave", node: asNodeId(2) });
  const loop = new PlannerLoop({ placement: (nodes[0] as PlacementNode).placement, options });
  loop.start();
  await until(() => group.machine.machine.view().shards.get(shard)?.lease?.node !== 2, { what: "another leader" });
  expect(asked).toBe(2);
  loop.close();
});
