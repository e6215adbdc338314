/** What is known of nodes and loads, where placement's leader answers and where it does not. */
import { expect, test } from "bun:test";
import { asNodeId, asShardId } from "#core/base";
import { until } from "../../tests/until.ts";
import { clusterFigures, isReachable, silentMsMax } from "./figures.ts";
import { load, type PlacementNode, placementTown } from "./placement-fixture.ts";

const shard = asShardId(1);
const [one, two, three] = [1, 2, 3].map(asNodeId) as [
  ReturnType<typeof asNodeId>,
  ReturnType<typeof asNodeId>,
  ReturnType<typeof asNodeId>,
];

/** Three nodes that have heard of each other; node 1 leads placement, in which `voters` have a vote, and node 3 has a load. */
async function town(voters = 1) {
  const made = placementTown(3, voters);
  const nodes = made.nodes as readonly [PlacementNode, PlacementNode, PlacementNode];
  nodes[2].loads = new Map([[shard, load({ bytes: 77 })]]);
  for (const { placement } of nodes) placement.start();
  await until(() => nodes[0].placement.reports().size === 3, { what: "all reports" });
  await until(() => nodes.every(({ placement }) => placement.leaderHint === one), { what: "the leader is known" });
  // Nodes 2 and 3 speak with each other too.
  await nodes[1].peer.net.call(three, "placement.leader", new Uint8Array(0));
  return Object.assign(made, { first: nodes[0], second: nodes[1], third: nodes[2] });
}

test("placement's leader tells what every node told it", async () => {
  using made = await town();
  const { leader, nodes } = await clusterFigures(made.second.placement);
  expect(leader).toBe(one);
  expect(nodes?.get(three)?.loads.get(shard)?.bytes).toBe(77);
});

test.each([
  ["is not known any more", 1],
  ["is known still", 2],
] as const)(
  "where it does not answer and %s, a node goes by whom it hears itself, and knows no loads",
  async (_, voters) => {
    using made = await town(voters);
    made.first[Symbol.dispose]();
    const figures = () => clusterFigures(made.second.placement);
    await until(async () => (await figures()).nodes?.get(three)?.loads.size === 0, { what: "the loads are not known any more" });
    await until(async () => !isReachable(await figures(), one, two), { what: "node 1 counts as silent" });
    const { nodes } = await figures();
    expect(nodes?.get(one)?.silentMs).toBeGreaterThan(silentMsMax);
    expect([two, three].map((node) => isReachable({ leader: one, nodes }, node, two))).toEqual([true, true]);
  },
  15_000,
);

test("a leader that has just begun, and heard of nobody yet, is helped by who asks", async () => {
  using made = await town();
  made.group.leader = 0;
  made.group.show();
  // Its own clock of leading begins anew, and what it was told before is of an earlier leadership.
  expect(made.first.placement.leadsSinceMs()).toBeUndefined();
  made.group.leader = 1;
  expect(made.first.placement.leadsSinceMs()).toBeDefined();
  const figures = await clusterFigures(made.second.placement);
  expect(made.first.placement.reports().size).toBeLessThan(3);
  expect([one, two, three].map((node) => isReachable(figures, node, two))).toEqual([true, true, true]);
});
