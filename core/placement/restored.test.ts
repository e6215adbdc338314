import { expect, test } from "bun:test";
import { asNodeId, asShardId, asTerm, keyMax } from "#core/base";
import { bunHasher } from "../../tests/hashers.ts";
import { PlacementMachine } from "./machine.ts";
import { identity, info, Placement, Records } from "./machine-fixture.ts";
import { leaseEpochsSkipped, restoredPlacement, uploadedPlacement } from "./restored.ts";

const bundle = new Uint8Array(32).fill(7);

/** A cluster of two nodes with two shards, code, a policy and another replication factor. */
function uploaded(): Uint8Array {
  const old = new Placement();
  old.do({ kind: "bootstrap", clusterId: "hop_old", info: info(1), shards: 2 });
  old.do({ kind: "join", clusterId: "hop_old", info: info(2) });
  old.do({ kind: "lease", shard: asShardId(1), node: asNodeId(1), term: asTerm(3) });
  old.do({ kind: "deploy", namespace: "default", deploy: { bundle, size: 9, types: ["order"] } });
  old.do({ kind: "set-entry", class: "policy", name: "limits", value: new Uint8Array([1]) });
  old.do({ kind: "set-entry", class: "policy", name: "limits", value: new Uint8Array([2]) });
  old.do({ kind: "set-replication", count: 5, reason: "more" });
  return old.machine.encodeState();
}

const half = (keyMax + 1) / 2;
const cluster = {
  clusterId: "hop_new",
  objects: "hop_old",
  restoreEpoch: 2,
  info: info(9),
  nowMs: 5000,
  shards: [
    { shard: asShardId(1), range: { first: 0, last: half - 1 }, ancestors: [], epoch: 400 },
    { shard: asShardId(7), range: { first: half, last: keyMax }, ancestors: [asShardId(1)], epoch: 12 },
  ],
};

/** The new cluster's placement, and its log. */
function restored() {
  const log = new Records();
  const machine = new PlacementMachine({ log, hasher: bunHasher });
  machine.skip(1);
  machine.lead({ term: asTerm(1), nowMs: cluster.nowMs });
  machine.restore(restoredPlacement(uploaded(), cluster), { nowMs: cluster.nowMs, identity });
  return { log, machine };
}

test("an uploaded placement says what a restore has to know", () => {
  const { shards, lastShard, nextNode, clusterId, bundles } = uploadedPlacement(uploaded());
  expect([shards.map(({ shard }) => Number(shard)), lastShard, Number(nextNode), clusterId]).toEqual([[1, 2], 2, 3, "hop_old"]);
  expect(bundles).toEqual([bundle]);
});

test("what was set goes on with its versions, on one node of a new number", () => {
  const view = restored().machine.view();
  expect([view.clusterId, view.version, view.replicationWanted, view.replicationSet?.version]).toEqual(["hop_new", 2, 5, 2]);
  expect([...view.nodes.values()].map(({ node, standing }) => [Number(node), standing])).toEqual([
    [1, "removed"],
    [2, "removed"],
    [3, "member"],
  ]);
  expect(view.deployments.get("default")?.types.get("order")).toMatchObject({ bundle, version: 1 });
  expect(view.entries.get("policy")?.get("limits")).toMatchObject({ version: 2, value: new Uint8Array([2]), changedIn: 2 });
  const shards = [...view.shards.values()].map(({ shard, voters, wanted, lease, change }) => [
    Number(shard),
    voters,
    wanted,
    lease,
    change,
  ]);
  const self = [asNodeId(3)];
  expect(shards).toEqual([
    [1, self, self, undefined, undefined],
    [7, self, self, undefined, undefined],
  ]);
  expect(view.placement?.voters).toEqual(self);
});

test("leases are void, and new ones are above all that the old cluster can have given", () => {
  const placement = new Placement(restored().machine);
  expect(placement.do({ kind: "lease", shard: asShardId(1), node: asNodeId(3), term: asTerm(2) })).toMatchObject({
    kind: "leased",
    epoch: 401 + leaseEpochsSkipped,
  });
});

test("a follower folds the same, and who joins is told where the objects are", () => {
  const { log, machine } = restored();
  const follower = new PlacementMachine({ log: new Records(), hasher: bunHasher });
  follower.skip(1);
  for (const { index, body } of log.records) follower.recover(index, body);
  expect(follower.encodeState()).toEqual(machine.encodeState());
  const placement = new Placement(machine);
  expect(placement.do({ kind: "join", info: info(4) })).toEqual({
    kind: "joined",
    clusterId: "hop_new",
    node: asNodeId(4),
    objects: "hop_old",
    restoreEpoch: 2,
  });
});

test("a placement of many policies is shared out over records", () => {
  const old = new Placement();
  old.do({ kind: "bootstrap", clusterId: "hop_old", info: info(1) });
  for (let i = 0; i < 40; i++) old.do({ kind: "set-entry", class: "policy", name: `p${i}`, value: new Uint8Array(50_000) });
  const events = restoredPlacement(old.machine.encodeState(), {
    ...cluster,
    shards: [{ ...(cluster.shards[0] as (typeof cluster.shards)[0]), range: { first: 0, last: keyMax } }],
  });
  expect(events.length).toBeGreaterThan(3);
  expect(events.filter((each) => each.cluster !== undefined)).toEqual([events.at(-1) as (typeof events)[0]]);
  const machine = new PlacementMachine({ log: new Records(), hasher: bunHasher });
  machine.lead({ term: asTerm(1), nowMs: 1 });
  machine.restore(events, { nowMs: 1, identity });
  expect(machine.view().entries.get("policy")?.size).toBe(40);
});
