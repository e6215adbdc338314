import { describe, expect, test } from "bun:test";
import { asIndex, asNodeId, asShardId, asTerm, InvariantError, keyMax, Prng } from "#core/base";
import { verifyHistory } from "#core/merkle";
import {
  decodeEvent,
  decodePlacementState,
  decodeRecord,
  encodeEvent,
  encodePlacementState,
  encodeRecord,
  fromBytes,
  toBytes,
} from "#proto";
import { bunHasher } from "../../tests/hashers.ts";
import type { PlacementCommand } from "./command.ts";
import { PlacementMachine } from "./machine.ts";
import { identity, info, Placement, pair, Records, set } from "./machine-fixture.ts";

const bundle = (byte: number) => new Uint8Array(32).fill(byte);

function deploy(placement: Placement, byte: number, types: string[], namespace = "default", nowMs = 1000) {
  placement.nowMs = nowMs;
  return placement.step({ kind: "deploy", namespace, deploy: { bundle: bundle(byte), size: 10, types } });
}

const shown = ({ machine }: Placement, namespace = "default") =>
  machine.deployments(namespace).map(({ type, bundle: b, version, deployedMs }) => [type, b[0], version, deployedMs]);

const newMachine = () => new PlacementMachine({ log: new Records(), hasher: bunHasher });

describe("deployments", () => {
  test("the newest deployment of a type is what runs are pinned to", () => {
    const placement = new Placement();
    expect(deploy(placement, 1, ["order", "refund"])).toMatchObject({
      kind: "reply",
      reply: { kind: "version", version: 1 },
      after: { until: "committed", index: 1 },
    });
    expect(deploy(placement, 2, ["order"], "default", 2000)).toMatchObject({ reply: { version: 2 }, after: { index: 2 } });
    expect(deploy(placement, 3, ["order"], "other")).toMatchObject({ reply: { version: 1 } });
    expect(shown(placement)).toEqual([
      ["order", 2, 2, 2000],
      ["refund", 1, 1, 1000],
    ]);
    const { machine } = placement;
    expect(machine.newest("default", "refund")).toEqual(bundle(1));
    expect(machine.newest("default", "nothing")).toBeUndefined();
    expect(machine.newest("nowhere", "order")).toBeUndefined();
    expect(machine.deployments("default")[0]?.identity).toEqual(identity);
  });

  test("deploying the same bundle again appends nothing and keeps its version, once it is durable", () => {
    const placement = new Placement();
    deploy(placement, 1, ["a", "b"]);
    expect(deploy(placement, 1, ["b", "a", "a"])).toMatchObject({ reply: { version: 1 }, after: { until: "committed", index: 1 } });
    expect(placement.log.records).toHaveLength(1);
    deploy(placement, 2, ["a", "b"]);
    // Going back is a deployment of its own.
    expect(deploy(placement, 1, ["a", "b"])).toMatchObject({ reply: { version: 3 } });
    // One type more is a change.
    expect(deploy(placement, 1, ["a", "b", "c"])).toMatchObject({ reply: { version: 4 } });
  });

  test("what is rebuilt from the records equals what was there, and goes on", () => {
    const placement = new Placement();
    for (let i = 0; i < 20; i++) deploy(placement, i, [`t${i % 3}`, "all"], i % 2 === 0 ? "default" : "other", 1000 + i);
    const again = placement.follower();
    for (const namespace of ["default", "other"]) expect(again.deployments(namespace)).toEqual(placement.machine.deployments(namespace));
    const log = new Records();
    const led = new Placement(again);
    again.lead({ term: asTerm(2), nowMs: 0 });
    expect(deploy(led, 99, ["x"], "default", 0)).toMatchObject({ reply: { version: 11 }, after: { index: 21 } });
    expect(log.records).toHaveLength(0);
    const events = placement.log.records.flatMap((record) => fromBytes(decodeRecord, record.body).event);
    const own = events.filter((bytes) => fromBytes(decodeEvent, bytes).partition === "deploy/default");
    const verdict = verifyHistory(bunHasher, own, { partition: "deploy/default" });
    expect(verdict.ok && verdict.head.size).toBe(10);
  });
});

describe("a replica", () => {
  test("is refused a record that does not continue the chain", () => {
    const placement = new Placement();
    deploy(placement, 1, ["a"]);
    deploy(placement, 2, ["a"]);
    const second = placement.log.records[1] as { index: number; body: Uint8Array };
    expect(() => newMachine().recover(second.index, second.body)).toThrow(
      new InvariantError("Cannot follow event 0 of deploy/default: seq is 1, want 0 (log index 2)"),
    );
  });

  test("takes records in order, only follows or only leads, and needs a term to lead", () => {
    const placement = Placement.of(1);
    const first = placement.log.records[0] as { index: number; body: Uint8Array };
    const follower = placement.follower();
    expect(() => follower.recover(first.index, first.body)).toThrow("placement records come in order: got 1 after 1");
    expect(() => follower.step({ nowMs: 1, request: 1 as never, identity, command: { kind: "leave", node: asNodeId(1) } })).toThrow(
      InvariantError,
    );
    expect(() => placement.machine.recover(9, first.body)).toThrow(InvariantError);
  });

  test("steps over entries without a record, and leads on behind them in its own term", () => {
    const log = new Records();
    const machine = new PlacementMachine({ log, hasher: bunHasher });
    machine.skip(1);
    machine.skip(2);
    machine.lead({ term: asTerm(7), nowMs: 5 });
    const placement = new Placement(machine);
    expect(placement.step({ kind: "bootstrap", clusterId: "c", info: info(1) }).after).toEqual({ until: "committed", index: asIndex(3) });
    expect(log.records.map(({ index, term }) => [Number(index), term])).toEqual([[3, 7]]);
  });

  test("with nothing logged an answer waits for nothing", () => {
    expect(new Placement().step({ kind: "leave", node: asNodeId(1) })).toMatchObject({
      reply: { kind: "rejected", rejection: { reject: "NODE_NOT_FOUND" } },
      after: { until: "now" },
    });
  });

  test("keeps events of kinds and partitions that it does not know in their chains", () => {
    const event = (partition: string, seq: number, prevHash: Uint8Array) =>
      toBytes(encodeEvent, { partition, seq, timeMs: 5, kind: 159, schemaId: 9, payload: Uint8Array.of(1), prevHash });
    const first = event("quota/default", 0, new Uint8Array(32));
    const hash = new Uint8Array(32);
    bunHasher.sha256(first, hash);
    const machine = newMachine();
    machine.recover(1, toBytes(encodeRecord, { event: [first, event("map", 0, new Uint8Array(32))], previous: [0, 0] }));
    machine.recover(2, toBytes(encodeRecord, { event: [event("quota/default", 1, hash)], previous: [1] }));
    const states = new Map(machine.states());
    expect(fromBytes(decodePlacementState, states.get("quota/default" as never) as Uint8Array)).toMatchObject({ size: 2, lastIndex: 2 });
    const again = newMachine();
    for (const state of states.values()) again.loadState(state);
    again.skip(2);
    expect(again.encodeState()).toEqual(machine.encodeState());
  });

  test("refuses a state of another format by name", () => {
    const state = toBytes(encodePlacementState, { format: 99, partition: "map" });
    expect(() => newMachine().loadState(state)).toThrow(new RangeError("Cannot load map: state format 99, want 1"));
  });
});

/** Any command, sensible or not. */
function anyCommand(prng: Prng, placement: Placement): PlacementCommand {
  const node = asNodeId(1 + prng.below(8));
  const shards = [...placement.view.shards.values()];
  const entry = shards[prng.below(shards.length)];
  const shard = asShardId(prng.chance(0.2) ? prng.below(12) : (entry?.shard ?? 1));
  const next = placement.view.ranges[placement.view.ranges.findIndex((each) => each.shard === shard) + 1];
  const two = pair(shard, prng.chance(0.2) ? prng.below(12) : (next?.shard ?? 2));
  const odd = [1, 3, 5][prng.below(3)] as number;
  const nodes = Array.from({ length: odd }, (_, i) => asNodeId(1 + ((node + i) % 8)));
  const epoch = entry?.lease?.epoch ?? 0;
  const change = entry?.change;
  const right = change?.kind === "merge-left" ? placement.view.shards.get(change.right) : undefined;
  const all: PlacementCommand[] = [
    { kind: "bootstrap", clusterId: "c1", info: info(1), shards: 3 },
    { kind: "join", info: info(1 + prng.below(12), prng.chance(0.3) ? { disk: `disk-${prng.below(20)}`, zone: `z${prng.below(3)}` } : {}) },
    { kind: "join", node, info: info(node, { version: `0.${prng.below(3)}.0` }) },
    ...(prng.chance(0.1) ? [{ kind: "leave", node } as const, { kind: "remove", node } as const] : []),
    { kind: "lease", shard, node: entry?.voters[prng.below(3)] ?? node, term: asTerm((entry?.lease?.term ?? 0) + prng.below(2)) },
    { kind: "want-replicas", shard, nodes },
    { kind: "replicas-changed", shard, replicas: set(entry?.wanted ?? [1], (entry?.configIndex ?? 0) + prng.below(2)) },
    { kind: "want-split", shard, at: prng.below(keyMax) },
    { kind: "want-merge", ...two },
    { kind: "cancel-change", shard, ...(prng.chance(0.5) ? { epoch } : {}) },
    { kind: "set-replication", count: odd },
    { kind: "set-entry", class: "policy", name: `p${prng.below(3)}`, value: Uint8Array.of(prng.below(4)), removed: prng.chance(0.3) },
    { kind: "deploy", namespace: "n", deploy: { bundle: bundle(prng.below(4)), size: 1, types: ["a", "b"].slice(prng.below(2)) } },
  ];
  if (change?.kind === "split") {
    const born = { parent: shard, at: change.at };
    all.push({ kind: "lease", shard: change.child, node: entry?.voters[0] ?? node, term: asTerm(1), born });
  }
  if (change?.kind === "merge-left" && right !== undefined) {
    const frozen = { kind: "merge-frozen", ...pair(shard, change.right), change: change.change } as const;
    all.push({ ...frozen, through: asIndex(5), epoch: right.lease?.epoch ?? 0 }, { kind: "merge-cancel", ...pair(shard, change.right) });
  }
  if (change?.kind === "absorb") all.push({ kind: "merge-done", ...pair(shard, change.right) });
  return all[prng.below(all.length)] as PlacementCommand;
}

describe("any commands in any order", () => {
  const seen = new Map<string, number>();

  test.each(Array.from({ length: 40 }, (_, seed) => seed))(
    "leader, follower and a restart from any checkpoint are equal (seed %d)",
    (seed) => {
      const prng = new Prng(seed);
      const placement = new Placement();
      const saved = new Map<string, Uint8Array>();
      let low = 0;
      let epoch = 0;
      const leases = new Set<number>();
      for (let i = 0; i < 250; i++) {
        placement.nowMs += prng.below(50) - 10;
        const command = anyCommand(prng, placement);
        const { reply, after } = placement.step(command);
        seen.set(`${command.kind} ${reply.kind}`, (seen.get(`${command.kind} ${reply.kind}`) ?? 0) + 1);
        // Once more: nothing new may come of it.
        const before = placement.machine.lastIndex;
        const again = placement.step(command);
        // A merge that waits for its replicas may find them there the second time.
        if (reply.kind !== "rejected" && !(reply.kind === "merge" && reply.change === 0)) {
          expect([command, placement.machine.lastIndex, again.reply.kind]).toEqual([command, before, reply.kind]);
        }
        if (after.until === "committed") expect(after.index).toBeLessThanOrEqual(before);
        if (reply.kind === "leased" && !leases.has(reply.epoch)) {
          expect(reply.epoch).toBeGreaterThan(Math.max(0, ...leases));
          leases.add(reply.epoch);
        }
        expect(placement.view.mapEpoch).toBeGreaterThanOrEqual(epoch);
        epoch = placement.view.mapEpoch;
        if (!prng.chance(0.1)) continue;
        const checkpoint = placement.machine.capture(1 + prng.below(4));
        if (prng.chance(0.2)) placement.machine.putBack(checkpoint);
        else {
          for (const row of checkpoint.rows) saved.set(row.partition, row.state);
          low = checkpoint.appliedIndex;
        }
      }
      const want = placement.machine.encodeState();
      const follower = placement.follower();
      expect(follower.encodeState()).toEqual(want);
      expect(follower.view()).toEqual(placement.view);
      const restarted = newMachine();
      for (const state of saved.values()) restarted.loadState(state);
      restarted.skip(low);
      for (const record of placement.log.records) if (record.index > low) restarted.recover(record.index, record.body);
      expect(restarted.encodeState()).toEqual(want);
      expect(restarted.view()).toEqual(placement.view);
      const copied = newMachine();
      copied.loadStates(want);
      expect([copied.encodeState(), Number(copied.lastIndex), copied.clockMs]).toEqual([
        want,
        Number(placement.machine.lastIndex),
        placement.machine.clockMs,
      ]);
      // Each goes on from there with the same bytes.
      for (const machine of [follower, restarted, copied]) machine.lead({ term: asTerm(2), nowMs: placement.nowMs });
      const next = [follower, restarted, copied].map((machine) => {
        machine.step({
          nowMs: placement.nowMs,
          request: 1 as never,
          identity,
          command: { kind: "set-entry", class: "policy", name: "last", value: Uint8Array.of(1) },
        });
        return machine.encodeState();
      });
      expect(next[1]).toEqual(next[0] as Uint8Array);
      expect(next[2]).toEqual(next[0] as Uint8Array);
    },
  );

  test("every command was both taken and refused, where it can be", () => {
    for (const kind of ["want-split", "want-merge", "lease", "want-replicas", "merge-frozen", "replicas-changed"]) {
      const kinds = [...seen.keys()].filter((each) => each.startsWith(`${kind} `));
      expect([kind, kinds.length > 1]).toEqual([kind, true]);
    }
    expect(seen.get("merge-done done")).toBeGreaterThan(10);
  });
});
