import { describe, expect, test } from "bun:test";
import { asNodeId, asShardId, type NodeId } from "#core/base";
import { info, Placement, pair } from "../machine-fixture.ts";
import { planCluster } from "./plan.ts";
import type { NodeReport, PlanInput, PlanStep, ShardLoadReport } from "./plan-input.ts";

const shown = (steps: readonly PlanStep[]) =>
  steps.map((step) => {
    if (step.kind === "transfer") return `transfer ${step.shard} ${step.from}→${step.to}`;
    const { command } = step;
    if (command.kind === "want-replicas") return `move ${command.shard} to ${command.nodes.join()}`;
    if (command.kind === "want-split") return `split ${command.shard} at ${command.at}`;
    if (command.kind === "want-merge" || command.kind === "merge-cancel") return `${command.kind} ${command.left} ${command.right}`;
    return command.kind === "remove" ? `remove ${command.node}` : command.kind;
  });

interface Scene {
  /** Milliseconds since each node was heard; left out: now. null: never. */
  readonly silent?: Readonly<Record<number, number | null>>;
  readonly loads?: Readonly<Record<number, Partial<ShardLoadReport>>>;
  /** Nodes whose disk is full. */
  readonly full?: readonly number[];
  readonly leadsForMs?: number;
  readonly options?: PlanInput["options"];
  readonly self?: number;
}

function plan(placement: Placement, scene: Scene = {}): string[] {
  const { view, nowMs } = placement;
  const reports = new Map<NodeId, NodeReport>();
  for (const node of view.nodes.keys()) {
    const silence = scene.silent?.[node] ?? 0;
    if (scene.silent?.[node] === null) continue;
    const loads = new Map<ReturnType<typeof asShardId>, ShardLoadReport>();
    for (const [shard, load] of Object.entries(scene.loads ?? {})) {
      const none = { leads: true, bytes: 0, eventsPerSecond: 0, partitions: 100, lastIndex: 1, lag: new Map() };
      if (view.shards.get(asShardId(Number(shard)))?.lease?.node === node) loads.set(asShardId(Number(shard)), { ...none, ...load });
    }
    reports.set(node, { lastHeardMs: nowMs - silence, loads, isFull: scene.full?.includes(node) ?? false });
  }
  const leadsSinceMs = nowMs - (scene.leadsForMs ?? 100_000);
  return shown(
    planCluster({ view, reports, nowMs, self: asNodeId(scene.self ?? 1), leadsSinceMs, ...(scene.options && { options: scene.options }) }),
  );
}

/** Placement and `shards` shards on nodes 1, 2, 3, led by node 1, 2 or 3 in turn. */
function cluster(nodes: number, options: { shards?: number; zone?: (node: number) => string; on?: number[] } = {}): Placement {
  const placement = Placement.of(nodes, options);
  placement.nowMs = 200_000;
  const on = options.on ?? [1, 2, 3];
  placement.place(0, on);
  for (let shard = 1; shard <= (options.shards ?? 1); shard++) {
    placement.place(shard, on);
    placement.lease(shard, on[(shard - 1) % on.length] as number, 1);
  }
  return placement;
}

describe("replicas", () => {
  test("grow with the cluster, always to an odd number", () => {
    expect(plan(Placement.of(1))).toEqual([]);
    expect(plan(Placement.of(2))).toEqual([]);
    expect(plan(Placement.of(3))).toEqual(["move 0 to 1,2,3", "move 1 to 1,2,3"]);
    expect(plan(cluster(4))).toEqual([]);
    // Placement takes five where it can, shards what is wished for.
    expect(plan(cluster(5))).toEqual(["move 0 to 1,2,3,4,5"]);
    const five = cluster(5);
    five.place(0, [1, 2, 3, 4, 5]);
    five.do({ kind: "set-replication", count: 5 });
    expect(plan(five)).toEqual(["move 1 to 1,2,3,4,5"]);
    five.do({ kind: "set-replication", count: 1 });
    expect(plan(five)).toEqual(["move 1 to 1"]);
  });

  test("of a node that is not heard of for 30 s are replaced, of one that is only slow are not", () => {
    expect(plan(cluster(4), { silent: { 3: 29_000 } })).toEqual([]);
    expect(plan(cluster(4), { silent: { 3: 31_000 } })).toEqual(["move 0 to 1,2,4", "move 1 to 1,2,4"]);
    expect(plan(cluster(4), { silent: { 3: 11_000 }, options: { deadAfterMs: 10_000 } })).toHaveLength(2);
    // Nobody else is there: better a dead member than one fewer.
    expect(plan(cluster(3), { silent: { 3: 1_000_000 } })).toEqual([]);
    // The one that could take them is not heard of just now.
    expect(plan(cluster(4), { silent: { 3: 31_000, 4: 6000 } })).toEqual([]);
  });

  test("are left alone without a quorum, and while one change is under way", () => {
    expect(plan(cluster(5), { silent: { 2: 31_000, 3: 31_000 } })).toEqual([]);
    const moving = cluster(4);
    moving.do({ kind: "want-replicas", shard: asShardId(1), nodes: [1, 2, 4].map(asNodeId) });
    expect(plan(moving, { silent: { 2: 31_000 } })).toEqual(["move 0 to 1,3,4"]);
    // A target that died before it got there is replaced by another.
    const stuck = cluster(5);
    stuck.place(0, [1, 2, 3, 4, 5]);
    stuck.do({ kind: "want-replicas", shard: asShardId(1), nodes: [1, 2, 4].map(asNodeId) });
    expect(plan(stuck, { silent: { 4: 31_000 } })).toEqual(["move 1 to 1,2,3"]);
    // With nobody else, what was begun is given up.
    const alone = cluster(4);
    alone.do({ kind: "leave", node: asNodeId(3) });
    alone.do({ kind: "want-replicas", shard: asShardId(1), nodes: [1, 2, 4].map(asNodeId) });
    expect(plan(alone, { silent: { 4: 31_000 }, options: { handOverMs: 0 } })).toEqual(["move 1 to 1,2,3"]);
  });

  test("two dead members of five are replaced one after the other", () => {
    const placement = cluster(7, { on: [1, 2, 3, 4, 5] });
    placement.do({ kind: "set-replication", count: 5 });
    expect(plan(placement, { silent: { 4: 31_000, 5: 31_000 } })).toEqual(["move 0 to 1,2,3,5,6", "move 1 to 1,2,3,5,6"]);
  });

  test("a new leader of placement waits until it has heard of all, or long enough", () => {
    const placement = cluster(4);
    expect(plan(placement, { leadsForMs: 1000, silent: { 3: null } })).toEqual([]);
    expect(plan(placement, { leadsForMs: 6000, silent: { 3: null } })).toEqual([]);
    expect(plan(placement, { leadsForMs: 31_000, silent: { 3: null } })).toHaveLength(2);
    expect(plan(Placement.of(3), { leadsForMs: 1000 })).toHaveLength(2);
    expect(plan(Placement.of(3), { leadsForMs: 1000, silent: { 2: null } })).toEqual([]);
  });

  test("a lost node is replaced at once, then removed", () => {
    const placement = cluster(3);
    placement.do({ kind: "join", info: info(3, { disk: "new" }) });
    expect(plan(placement, { silent: { 3: 1000 } })).toEqual(["move 0 to 1,2,4", "move 1 to 1,2,4"]);
    for (const shard of [0, 1]) placement.place(shard, [1, 2, 4]);
    expect(plan(placement)).toEqual(["remove 3"]);
    placement.do({ kind: "remove", node: asNodeId(3) });
    expect(plan(placement)).toEqual([]);
  });
});

describe("a leaving node", () => {
  test("hands over what it leads, then gives its replicas away, then is removed", () => {
    const placement = cluster(4);
    placement.do({ kind: "leave", node: asNodeId(1) });
    expect(plan(placement)).toEqual(["transfer 0 1→2", "transfer 1 1→3"]);
    placement.lease(1, 2, 2);
    expect(plan(placement, { self: 3 })).toEqual(["move 0 to 2,3,4", "move 1 to 2,3,4"]);
    for (const shard of [0, 1]) placement.place(shard, [2, 3, 4]);
    expect(plan(placement, { self: 3 })).toEqual(["remove 1"]);
  });

  test("that can't hand over is moved from regardless", () => {
    const placement = cluster(4);
    placement.do({ kind: "leave", node: asNodeId(1) });
    placement.nowMs += 11_000;
    placement.lease(0, 2, 2);
    expect(plan(placement, { self: 2 })).toEqual(["transfer 1 1→2", "move 0 to 2,3,4"]);
    const alone = cluster(2, { on: [1] });
    alone.do({ kind: "leave", node: asNodeId(1) });
    expect(plan(alone)).toEqual(["move 0 to 2", "move 1 to 2"]);
  });
});

describe("a node whose disk is full", () => {
  test("gives its leads to nodes that can write, placement's first: the others' leases rest on that", () => {
    const placement = cluster(3, { shards: 3 });
    expect(plan(placement, { full: [2] })).toEqual(["transfer 2 2→1"]);
    expect(plan(placement, { full: [1] })).toEqual(["transfer 0 1→2"]);
    expect(plan(placement, { full: [1], self: 2 })).toEqual(["transfer 1 1→2"]);
    expect(plan(placement, { full: [1, 2], self: 3 })).toEqual(["transfer 1 1→3", "transfer 2 2→3"]);
  });

  test("is given nothing while it is, and keeps what it has where all are", () => {
    const placement = cluster(3, { shards: 4 });
    for (let shard = 1; shard <= 4; shard++) placement.lease(shard, 1, 2);
    expect(plan(placement, { full: [2] })).toEqual(["transfer 1 1→3", "transfer 2 1→3"]);
    expect(plan(placement, { full: [2, 3] })).toEqual([]);
    expect(plan(placement, { full: [1, 2, 3] })).toEqual([]);
    expect(plan(cluster(4), { silent: { 3: 31_000 }, full: [4] })).toEqual([]);
  });
});

describe("zones", () => {
  test("a replica that shares a zone moves to one that has none", () => {
    const zone = (node: number) => ["", "a", "a", "b", "c"][node] as string;
    expect(plan(cluster(4, { zone }))).toEqual(["move 0 to 1,3,4", "move 1 to 1,3,4"]);
    expect(plan(cluster(4, { zone }), { silent: { 4: 6000 } })).toEqual([]);
    // With two zones for three replicas there is nothing to gain.
    expect(plan(cluster(4, { zone: (node) => (node % 2 === 0 ? "a" : "b") }))).toEqual([]);
  });

  test("a dead node's replica goes where its zone is not crowded", () => {
    const zone = (node: number) => ["", "a", "b", "c", "a", "c"][node] as string;
    const placement = cluster(5, { zone });
    placement.place(0, [1, 2, 3, 4, 5]);
    expect(plan(placement, { silent: { 3: 31_000 } })).toEqual(["move 1 to 1,2,5"]);
  });
});

describe("leaders", () => {
  test("are evened out, one that lags is not given more", () => {
    const placement = cluster(3, { shards: 4 });
    for (let shard = 1; shard <= 4; shard++) placement.lease(shard, 1, 2);
    expect(plan(placement)).toEqual(["transfer 1 1→2", "transfer 2 1→3"]);
    const lag = new Map([[asNodeId(2), 5000]]);
    expect(plan(placement, { loads: { 1: { lag }, 2: { lag }, 3: { lag }, 4: { lag } } })).toEqual(["transfer 1 1→3", "transfer 2 1→3"]);
  });

  test("stay where they are for some seconds after a change of their shard's keys", () => {
    const placement = cluster(3, { shards: 4 });
    for (let shard = 1; shard <= 4; shard++) placement.lease(shard, 1, 2);
    for (const kind of ["want-merge", "merge-cancel"] as const) placement.do({ kind, ...pair(1, 2) });
    expect(plan(placement)).toEqual(["transfer 3 1→2", "transfer 4 1→3"]);
    placement.nowMs += 5000;
    expect(plan(placement)).toEqual(["transfer 1 1→2", "transfer 2 1→3"]);
  });
});

describe("keys", () => {
  const quiet = { shardsMin: 1 };

  test("a shard that is large or busy is split where its leader says, or in the middle", () => {
    const placement = cluster(3, { shards: 2 });
    const { first } = placement.shard(2).range;
    expect(plan(placement, { loads: { 1: { bytes: 2 ** 30 }, 2: { eventsPerSecond: 9000, splitAt: first + 99 } } })).toEqual([
      `split 1 at ${2 ** 46}`,
      `split 2 at ${first + 99}`,
    ]);
    // A key that is not inside is none; one partition can't be split; enough is enough.
    expect(plan(placement, { loads: { 2: { bytes: 2 ** 30, splitAt: first } } })).toEqual([`split 2 at ${first + 2 ** 46}`]);
    expect(plan(placement, { loads: { 2: { bytes: 2 ** 30, partitions: 1 } } })).toEqual([]);
    expect(plan(placement, { loads: { 2: { bytes: 2 ** 30 } }, options: { shardsMax: 2 } })).toEqual([]);
    expect(plan(placement, { loads: { 1: { bytes: 2 ** 30 }, 2: { bytes: 2 ** 30 } }, options: { keyChangesMax: 1 } })).toHaveLength(1);
  });

  test("a busy shard stays whole where no other node could take a part of it, a large one does not", () => {
    const placement = cluster(1, { on: [1] });
    expect(plan(placement, { loads: { 1: { eventsPerSecond: 9000 } } })).toEqual([]);
    expect(plan(placement, { loads: { 1: { bytes: 2 ** 30 } } })).toEqual([`split 1 at ${2 ** 47}`]);
    const three = cluster(3);
    expect(plan(three, { silent: { 2: 9000, 3: 2000 }, loads: { 1: { eventsPerSecond: 9000 } } })).toHaveLength(1);
    expect(plan(three, { silent: { 2: 9000, 3: 9000 }, loads: { 1: { eventsPerSecond: 9000 } } })).toEqual([]);
  });

  test("small quiet neighbours are merged, down to a number of shards", () => {
    const placement = cluster(3, { shards: 3 });
    const loads = { 1: { bytes: 10 }, 2: { bytes: 10 }, 3: { bytes: 10 } };
    expect(plan(placement, { loads, options: quiet })).toEqual(["want-merge 1 2"]);
    expect(plan(placement, { loads })).toEqual([]);
    expect(plan(placement, { loads: { ...loads, 1: { bytes: 2 ** 29 } }, options: quiet })).toEqual(["want-merge 2 3"]);
    // Nothing is known of the third one.
    expect(plan(placement, { loads: { 1: { eventsPerSecond: 4000 }, 2: {} }, options: quiet })).toEqual([]);
  });

  test("a merge that takes too long is cancelled, and both are left alone for a while", () => {
    const placement = cluster(3, { shards: 2 });
    const scene = { loads: { 1: {}, 2: {} }, options: quiet };
    placement.do({ kind: "want-merge", ...pair(1, 2) });
    placement.nowMs += 1500;
    expect(plan(placement, scene)).toEqual([]);
    placement.nowMs += 1000;
    expect(plan(placement, scene)).toEqual(["merge-cancel 1 2"]);
    placement.do({ kind: "merge-cancel", ...pair(1, 2) });
    expect(plan(placement, scene)).toEqual([]);
    placement.nowMs += 60_000;
    expect(plan(placement, scene)).toEqual(["want-merge 1 2"]);
  });

  test("a merge is cancelled also by a leader of placement that still listens", () => {
    const placement = cluster(3, { shards: 2 });
    placement.do({ kind: "want-merge", ...pair(1, 2) });
    placement.nowMs += 3000;
    expect(plan(placement, { leadsForMs: 10, silent: { 2: null } })).toEqual(["merge-cancel 1 2"]);
  });
});
