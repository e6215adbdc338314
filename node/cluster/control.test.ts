/** What people ask of a cluster, over the real placement machine and real links. */
import { describe, expect, test } from "bun:test";
import { asIndex, asNodeId, asShardId, asTerm, HopError, keyMax } from "#core/base";
import type { PlacementCommand } from "#core/placement";
import { MemberState, NodePhase, type ProgressInit } from "#proto";
import { info, set } from "../../core/placement/machine-fixture.ts";
import { until } from "../../tests/until.ts";
import type { Asker } from "../service/cluster-control.ts";
import { ConsistencyCheck } from "./consistency-check.ts";
import { NodeControl } from "./control.ts";
import { ControlTown, type Digests, membership } from "./control-fixture.ts";
import { serveDiskUse } from "./disk-use.ts";
import { clusterFigures, isReachable } from "./figures.ts";
import { load, type PlacementNode } from "./placement-fixture.ts";
import { serveTransfers } from "./planner-loop.ts";
import { ada } from "./routing-fixture.ts";
import type { Verifier } from "./verify.ts";

const shard = asShardId;
const node = asNodeId;
const middle = 2 ** 47;

const asker = (signal = new AbortController().signal): Asker => ({ identity: ada, gone: signal });

async function all(stream: AsyncIterable<ProgressInit>, onStep: (step: ProgressInit) => void = () => {}): Promise<string[]> {
  const texts: string[] = [];
  for await (const step of stream) {
    texts.push(`${step.text}${step.finished === true ? " ." : ""}`);
    onStep(step);
  }
  return texts;
}

const reasonOf = (stream: AsyncIterable<unknown>) =>
  all(stream as AsyncIterable<ProgressInit>).then(String, (error: HopError) => error.reason);

describe("what is shown", () => {
  test("a status counts what lives, what lacks replicas and what has no leader", async () => {
    using town = new ControlTown();
    const control = await town.at(2);
    await town.heard();
    const status = await control.status();
    expect(status).toMatchObject({
      clusterId: "c1",
      node: 2,
      phase: NodePhase.member,
      placementLeader: 1,
      placementVoter: [1],
      nodesLive: 3,
      nodesTotal: 3,
      shardsTotal: 1,
      shardsUnderReplicated: 0,
      shardsWithoutLeader: 0,
      versions: [{ version: "0.2.0", nodes: 3 }],
      replicationFactor: 3,
      underWay: [],
      peer: "10.0.0.2:7072",
    });
    town.group.do({ kind: "remove", node: node(3) });
    town.group.do({ kind: "want-split", shard: shard(1), at: middle });
    const later = await (await town.at(2)).status();
    expect(later).toMatchObject({ nodesLive: 2, nodesTotal: 3, shardsUnderReplicated: 1 });
    expect(later.underWay).toEqual(["node 3 is lost", "shard 1 splits off shard 2"]);
  });

  test("pages of 300 members have each of them once, whoever is asked, while others come and go", async () => {
    using town = new ControlTown();
    for (let i = 4; i <= 300; i++) town.group.machine.do({ kind: "join", info: info(i) });
    town.group.show();
    const control = await town.at(3);
    const seen: number[] = [];
    for (let after = 0; ; ) {
      const { items, isMore } = await control.members({ limit: 37, withRemoved: false, ...(after === 0 ? {} : { after }) });
      seen.push(...items.map((member) => member.node ?? 0));
      if (!isMore) break;
      after = seen.at(-1) as number;
      if (after === 37) {
        town.group.do({ kind: "remove", node: node(20) });
        town.group.do({ kind: "remove", node: node(200) });
        await town.at(3);
      }
    }
    expect(seen).toEqual(Array.from({ length: 300 }, (_, i) => i + 1).filter((id) => id !== 200));
    const { items } = await control.members({ limit: 1000, withRemoved: true });
    expect(items).toHaveLength(300);
    expect(items[199]).toMatchObject({ node: 200, state: MemberState.removed });
  });

  test("members tell where they stand, shards who holds and leads them", async () => {
    using town = new ControlTown();
    const loads = new Map([
      [
        shard(1),
        load({
          bytes: 70,
          eventsPerSecond: 2.5,
          lastIndex: 100,
          lag: new Map([
            [node(2), 0],
            [node(3), 40],
          ]),
        }),
      ],
    ]);
    const first = town.town.nodes[0] as PlacementNode;
    first.loads = loads;
    serveDiskUse(first.peer.net, import.meta.dir);
    const control = await town.at(3);
    await town.heard();
    const { items: members } = await control.members({ limit: 10, withRemoved: false });
    expect(
      members.map(({ node: id, state, shardsLed, replicas, placementVoter }) => [id, state, shardsLed, replicas, placementVoter]),
    ).toEqual([
      [1, MemberState.live, 2, 2, true],
      [2, MemberState.live, 0, 1, false],
      [3, MemberState.live, 0, 1, false],
    ]);
    expect(members[0]).toMatchObject({ peer: "10.0.0.1:7072", grpc: "10.0.0.1:7070", version: "0.2.0" });
    // What does not answer is not known.
    expect(members.map(({ diskBytes = 0 }) => diskBytes > 0)).toEqual([true, false, false]);
    const info1 = await control.shard(shard(1));
    expect(info1).toMatchObject({
      shard: 1,
      first: 0,
      last: keyMax,
      leader: 1,
      term: 2,
      lastIndex: 100,
      bytes: 70,
      rateMilli: 2500,
      change: "",
    });
    expect(info1.replica).toEqual([
      { node: 1, learner: false, matchIndex: 100, lag: 0, progress: "leader", live: true },
      { node: 2, learner: false, matchIndex: 100, lag: 0, progress: "replicate", live: true },
      { node: 3, learner: false, matchIndex: 60, lag: 40, progress: "replicate", live: true },
    ]);
    const { items: shards, isMore } = await control.shards({ limit: 10 });
    expect([shards.map((each) => each.shard), isMore]).toEqual([[0, 1], false]);
    expect(shards[0]).toMatchObject({ range: "placement", leader: 1 });
    await expect(control.shard(shard(9))).rejects.toMatchObject({ reason: "SHARD_NOT_FOUND" });
  });
});

describe("changes of shards", () => {
  test("a split is followed to the child's first lease, and a second one meanwhile is refused", async () => {
    using town = new ControlTown();
    const control = await town.at(2);
    const born = { parent: shard(1), at: middle } as const;
    const texts = await all(control.split(shard(1), middle, asker()), ({ done, text }) => {
      if (!text?.startsWith("Waiting")) return;
      expect(done).toBe(0);
      expect(town.group.machine.do({ kind: "want-split", shard: shard(1), at: middle + 5 })).toMatchObject({
        rejection: { reject: "SHARD_BUSY" },
      });
      town.group.do({ kind: "lease", shard: shard(2), node: node(1), term: asTerm(1), born });
    });
    expect(texts).toEqual([
      "Shard 1 is to split at 0x8000000000000000; the new shard is 2",
      "Waiting for the leader of shard 1",
      "Shard 2 owns 0x8000000000000000–0xffffffffffffffff .",
    ]);
    expect(town.group.commands.at(-1)).toMatchObject({ identity: ada, command: { kind: "want-split" } });
    expect(await reasonOf(control.split(shard(1), middle + 1, asker()))).toBe("BAD_REQUEST");
    expect(await reasonOf(control.split(shard(7), undefined, asker()))).toBe("SHARD_NOT_FOUND");
  });

  test("without a key the leader's own is taken", async () => {
    using town = new ControlTown();
    (town.town.nodes[0] as PlacementNode).loads = new Map([[shard(1), load({ splitAt: 12345 })]]);
    const control = await town.at(2);
    await town.heard();
    const gone = new AbortController();
    await all(control.split(shard(1), undefined, asker(gone.signal)), () => gone.abort());
    expect(town.group.commands.at(-1)?.command).toEqual({ kind: "want-split", shard: shard(1), at: 12345 } as PlacementCommand);
  });

  test("a split that is given up is an error, and one nobody listens to goes on", async () => {
    using town = new ControlTown();
    const control = await town.at(2);
    const epoch = town.group.machine.machine.view().shards.get(shard(1))?.lease?.epoch ?? 0;
    const given = all(control.split(shard(1), middle, asker()), ({ text }) => {
      if (text?.startsWith("Waiting")) town.group.do({ kind: "cancel-change", shard: shard(1), epoch, reason: "no room" });
    });
    await expect(given).rejects.toThrow("the split of shard 1 was given up");
    const gone = new AbortController();
    await all(control.split(shard(1), middle, asker(gone.signal)), () => gone.abort());
    expect(town.group.machine.machine.view().shards.get(shard(1))?.change?.kind).toBe("split");
  });

  test("a merge is asked for again when placement gave it up, and followed to its end", async () => {
    using town = new ControlTown();
    const born = { parent: shard(1), at: middle } as const;
    town.group.do({ kind: "want-split", shard: shard(1), at: middle });
    const lease = town.group.do({ kind: "lease", shard: shard(2), node: node(1), term: asTerm(1), born });
    const control = await town.at(3);
    await town.heard();
    let tries = 0;
    const texts = await all(control.merge(shard(1), asker()), ({ text }) => {
      if (text !== "Shard 2 stops and its replicas follow") {
        if (text === "Shard 1 takes in the log of shard 2") town.group.do({ kind: "merge-done", left: shard(1), right: shard(2) });
        return;
      }
      if (tries++ === 0) return town.group.do({ kind: "merge-cancel", left: shard(1), right: shard(2) });
      const change = town.group.machine.machine.view().shards.get(shard(1))?.change?.change ?? 0;
      const epoch = lease.kind === "leased" ? lease.epoch : 0;
      return town.group.do({ kind: "merge-frozen", left: shard(1), right: shard(2), change, through: asIndex(9), epoch });
    });
    expect(texts).toEqual([
      "Shard 2 stops and its replicas follow",
      "Not all replicas of shard 2 followed in time; trying again",
      "Shard 2 stops and its replicas follow",
      "Shard 1 takes in the log of shard 2",
      "Shard 1 has taken in shard 2 .",
    ]);
    expect(await reasonOf(control.merge(shard(1), asker()))).toBe("BAD_REQUEST");
    await expect(control.shard(shard(2))).rejects.toThrow("shard 1 has taken it in");
  });

  test("a merge is refused before anything is asked where a node of its replicas is away, and says which", async () => {
    using town = new ControlTown(4);
    const born = { parent: shard(1), at: middle } as const;
    town.group.do({ kind: "want-split", shard: shard(1), at: middle });
    town.group.do({ kind: "lease", shard: shard(2), node: node(1), term: asTerm(1), born });
    const control = await town.at(2);
    await town.heard();
    const away = town.town.nodes[2] as PlacementNode;
    away[Symbol.dispose]();
    const first = (town.town.nodes[0] as PlacementNode).placement;
    await until(async () => !isReachable(await clusterFigures(first), node(3), node(1)), { what: "node 3 counts as silent" });
    const refused = await all(control.merge(shard(1), asker())).catch((error: unknown) => error as HopError);
    expect(refused).toMatchObject({ reason: "STORE_UNAVAILABLE", message: expect.stringContaining("node 3 can't be reached") as string });
    expect(town.group.commands.map(({ command }) => command.kind)).not.toContain("want-merge");
  }, 15_000);

  test("a move is followed through its learner, and refused where it can't be done", async () => {
    using town = new ControlTown(4);
    const control = await town.at(2);
    const move = { shard: shard(1), from: node(3), to: node(4) };
    const steps: Record<string, PlacementCommand> = {
      "Waiting for the leader of shard 1": {
        kind: "replicas-changed",
        shard: shard(1),
        replicas: set([1, 2, 3], 6, { learners: [node(4)] }),
      },
      "Node 4 learns the shard's log": {
        kind: "replicas-changed",
        shard: shard(1),
        replicas: set([1, 2, 4], 7, { outgoing: [node(1), node(2), node(3)] }),
      },
      "Node 4 has a vote; node 3 leaves": { kind: "replicas-changed", shard: shard(1), replicas: set([1, 2, 4], 8) },
    };
    const texts = await all(control.move(move, asker()), ({ text = "" }) => {
      const step = steps[text];
      if (step !== undefined) town.group.do(step);
    });
    expect(texts).toEqual(["Shard 1 is to be on nodes 1, 2, 4", ...Object.keys(steps), "Shard 1 is on nodes 1, 2, 4 ."]);
    expect(await reasonOf(control.move(move, asker()))).toBe("BAD_REQUEST");
    expect(await reasonOf(control.move({ ...move, from: node(1), to: node(9) }, asker()))).toBe("NODE_NOT_FOUND");
    expect(await reasonOf(control.move({ ...move, from: node(1), to: node(2) }, asker()))).toBe("BAD_REQUEST");
  });

  test("a transfer asks the leader until another node leads", async () => {
    using town = new ControlTown();
    const control = await town.at(3);
    let asked = 0;
    serveTransfers((town.town.nodes[0] as PlacementNode).peer.net, (id, to) => {
      expect([id, to]).toEqual([shard(1), node(2)]);
      if (asked++ === 0) throw new HopError("NOT_LEADER", "not now");
      town.group.do({ kind: "lease", shard: id, node: to, term: asTerm(9) });
    });
    expect(await all(control.transfer({ shard: shard(1), to: node(2) }, asker()))).toEqual([
      "Node 1 hands shard 1 over to node 2",
      "Node 2 leads shard 1 .",
    ]);
    expect(asked).toBe(2);
    expect(await reasonOf(control.transfer({ shard: shard(1), to: node(9) }, asker()))).toBe("NODE_NOT_FOUND");
  });

  test("a node that leaves is followed until it holds nothing", async () => {
    using town = new ControlTown(4);
    const control = await town.at(1);
    const texts = await all(control.leave(node(3), asker()), ({ text = "" }) => {
      if (!text.startsWith("Node 3 still")) return;
      town.group.do({ kind: "want-replicas", shard: shard(1), nodes: [1, 2, 4].map(node) });
      town.group.do({ kind: "replicas-changed", shard: shard(1), replicas: set([1, 2, 4], 9) });
      town.group.do({ kind: "remove", node: node(3) });
    });
    expect([texts[0], texts.at(-1)]).toEqual(["Node 3 gives 1 replicas away", "Node 3 was removed ."]);
    expect(await reasonOf(control.leave(node(3), asker()))).toBe("NODE_NOT_FOUND");
  });
});

describe("verify", () => {
  const verdicts = async (town: ControlTown, id?: number) => {
    const control = await town.at(2);
    const out: { shard?: number | undefined; ok?: boolean | undefined; verdict?: string | undefined }[] = [];
    for await (const each of control.verify(id === undefined ? undefined : shard(id), asker())) out.push(each);
    return out.map(({ shard: of, ok, verdict }) => [of, ok, verdict]);
  };

  test("compares all replicas of a shard, or of every shard", async () => {
    using town = new ControlTown();
    expect(await verdicts(town, 1)).toEqual([[1, true, "equal"]]);
    expect(await verdicts(town)).toEqual([
      [0, true, "equal"],
      [1, true, "equal"],
    ]);
    (town.digests[2] as Digests).state = 2;
    expect(await verdicts(town, 1)).toEqual([[1, false, "node 3 differs from node 1"]]);
  });

  test("compares logs at a common index while the shard is busy, and names who does not answer", async () => {
    using town = new ControlTown();
    (town.digests[1] as Digests).index = 12;
    expect(await verdicts(town, 1)).toEqual([
      [1, true, "the logs are equal through index 10; the states changed all the time and were not compared"],
    ]);
    (town.digests[1] as Digests).log = 2;
    expect(await verdicts(town, 1)).toEqual([[1, false, "node 2 differs from node 1"]]);
    (town.town.nodes[2] as PlacementNode).peer.net.close();
    expect(await verdicts(town, 1)).toEqual([[1, false, "node 3 did not answer"]]);
  }, 15_000);

  test("compares of the logs what every replica still has", async () => {
    using town = new ControlTown();
    (town.digests[1] as Digests).forgotten = 4;
    (town.digests[2] as Digests).forgotten = 7;
    expect(await verdicts(town, 1)).toEqual([[1, true, "equal"]]);
    (town.digests[1] as Digests).log = 2;
    expect(await verdicts(town, 1)).toEqual([[1, false, "node 2 differs from node 1"]]);
  });

  test("leaves out a replica that has not caught up", async () => {
    using town = new ControlTown(4);
    const learner = town.digests[3] as Digests;
    town.group.do({ kind: "want-replicas", shard: shard(1), nodes: [1, 2, 4].map(node) });
    town.group.do({ kind: "replicas-changed", shard: shard(1), replicas: set([1, 2, 3], 9, { learners: [node(4)] }) });
    Object.assign(learner, { index: 0, state: 0, log: 0 });
    expect(await verdicts(town, 1)).toEqual([[1, true, "equal; node 4 still learns the shard"]]);
    learner.index = 9;
    expect(await verdicts(town, 1)).toEqual([[1, true, "equal; node 4 still learns the shard"]]);
    learner.index = 10;
    expect(await verdicts(town, 1)).toEqual([[1, false, "node 4 differs from node 1"]]);
    // A member that lost its states, and is given them again.
    (town.digests[1] as Digests).index = 0;
    learner.index = 0;
    expect(await verdicts(town, 1)).toEqual([[1, true, "equal; node 2, 4 still learns the shard"]]);
  });
});

test("the check in the background tells replicas that differ, and not of one that is still empty", async () => {
  using town = new ControlTown(4);
  await town.at(1);
  const { placement } = town.town.nodes[0] as PlacementNode;
  town.group.do({ kind: "want-replicas", shard: shard(1), nodes: [1, 2, 4].map(node) });
  town.group.do({ kind: "replicas-changed", shard: shard(1), replicas: set([1, 2, 3], 9, { learners: [node(4)] }) });
  Object.assign(town.digests[3] as Digests, { index: 0, state: 0, log: 0 });
  const told: string[] = [];
  let rounds = 0;
  const verify: Verifier["verify"] = (each, gone) => {
    rounds++;
    return (town.verifiers[0] as Verifier).verify(each, gone);
  };
  const onDifference = (each: number, verdict: string) => void told.push(`${each} ${verdict}`);
  const check = new ConsistencyCheck({ placement, verifier: { verify }, onDifference, roundMs: 50 });
  check.start();
  await until(() => rounds === 3, { what: "rounds" });
  expect(told).toEqual([]);
  (town.digests[2] as Digests).state = 2;
  await until(() => told.length > 0, { what: "a difference" });
  expect(told[0]).toBe("1 node 3 differs from node 1; node 4 still learns the shard");
  check.close();
});

test("entries are versioned, read where they were set, and listed by name", async () => {
  using town = new ControlTown();
  const control = await town.at(3);
  const value = new Uint8Array([1]);
  const change = { class: "policy", name: "b", value } as const;
  expect(await control.setEntry({ ...change, expectedVersion: 0 }, asker())).toBe(1);
  expect(await control.entry(change)).toMatchObject({ name: "b", version: 1, identity: ada });
  await expect(control.setEntry({ ...change, value: new Uint8Array([2]), expectedVersion: 0 }, asker())).rejects.toMatchObject({
    reason: "VERSION_CONFLICT",
  });
  await control.setEntry({ ...change, name: "a" }, asker());
  const { items, isMore } = await (town.controls[1] as NodeControl).entries({ class: "policy", limit: 1 });
  expect([items.map(({ name }) => name), isMore]).toEqual([["a"], true]);
  expect((await control.entries({ class: "policy", limit: 9, after: "a" })).items.map(({ name }) => name)).toEqual(["b"]);
  await expect(control.entry({ class: "namespace", name: "b" })).rejects.toMatchObject({ reason: "ENTRY_NOT_FOUND" });
});

test("a node that belongs to no cluster tells how it looks for one, and refuses the rest", async () => {
  let isMember = false;
  const added: string[] = [];
  const listeners: (() => void)[] = [];
  const control = new NodeControl({
    membership: membership(0, {
      phase: () => (isMember ? NodePhase.member : NodePhase.joining),
      clusterId: () => (isMember ? "c1" : ""),
      node: () => (isMember ? 4 : 0),
      seeds: () => added.map((seed) => ({ seed, problem: "refused" })),
      addSeeds: (seeds) => void added.push(...seeds),
      onChange: (listener) => {
        listeners.push(listener);
        return () => {};
      },
    }),
    member: () => undefined,
  });
  expect(await control.status()).toMatchObject({ clusterId: "", phase: NodePhase.joining });
  await expect(control.members({ limit: 1, withRemoved: false })).rejects.toMatchObject({ reason: "STORE_UNAVAILABLE" });
  expect(await reasonOf(control.split(shard(1), undefined, asker()))).toBe("STORE_UNAVAILABLE");
  const texts = await all(control.join(["a:1"], asker()), () => {
    isMember = true;
    queueMicrotask(() => {
      for (const listener of listeners) listener();
    });
  });
  expect(texts).toEqual(["Looking for a cluster: a:1: refused", "This is node 4 of c1 ."]);
  expect(await reasonOf(control.join(["a:1"], asker()))).toBe("ALREADY_MEMBER");
});
