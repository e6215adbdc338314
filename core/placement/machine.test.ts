import { describe, expect, test } from "bun:test";
import { asIndex, asRequestId, asShardId, asTerm, type Index, type Rejection } from "#core/base";
import { verifyHistory } from "#core/merkle";
import { decodeEvent, decodeRecord, fromBytes, type Identity, Writer } from "#proto";
import { bunHasher } from "../../tests/hashers.ts";
import { PlacementMachine } from "./machine.ts";

const identity: Identity = { issuer: "local", subject: "ada", verified: false, causeSeq: 0 };

/** Keeps what was appended, and scribbles over the writer afterwards as a log that moves on does. */
class Records {
  readonly records: { index: Index; body: Uint8Array }[] = [];
  private readonly writer = new Writer();
  private index = asIndex(0);

  begin(_shard: unknown, index: Index): Writer {
    this.index = index;
    this.writer.at = 0;
    return this.writer;
  }

  end(): void {
    this.records.push({ index: this.index, body: this.writer.bytes.slice(0, this.writer.at) });
    this.writer.bytes.fill(0xee);
  }
}

function machineOn(log: Records): PlacementMachine {
  return new PlacementMachine({ shard: asShardId(0), term: asTerm(1), log, hasher: bunHasher });
}

const bundle = (byte: number) => new Uint8Array(32).fill(byte);
const deploy = (machine: PlacementMachine, byte: number, types: string[], namespace = "default", nowMs = 1000) => {
  const input = {
    kind: "deploy",
    nowMs,
    request: asRequestId(1),
    identity,
    namespace,
    deploy: { bundle: bundle(byte), size: 10, types },
  } as const;
  return machine.step(input)[0];
};
const shown = (machine: PlacementMachine, namespace = "default") =>
  machine.deployments(namespace).map(({ type, bundle: b, version, deployedMs }) => [type, b[0], version, deployedMs]);

describe("PlacementMachine", () => {
  test("the newest deployment of a type is what runs are pinned to", () => {
    const log = new Records();
    const machine = machineOn(log);
    expect(deploy(machine, 1, ["order", "refund"])).toMatchObject({
      kind: "deployed",
      version: 1,
      after: { until: "committed", index: 1 },
    });
    expect(deploy(machine, 2, ["order"], "default", 2000)).toMatchObject({ version: 2, after: { index: 2 } });
    expect(deploy(machine, 3, ["order"], "other")).toMatchObject({ version: 1 });
    expect(shown(machine)).toEqual([
      ["order", 2, 2, 2000],
      ["refund", 1, 1, 1000],
    ]);
    expect(machine.newest("default", "refund")).toEqual(bundle(1));
    expect(machine.newest("default", "nothing")).toBeUndefined();
    expect(machine.newest("nowhere", "order")).toBeUndefined();
    expect(machine.deployments("default")[0]?.identity).toEqual(identity);
  });

  test("deploying the same bundle again appends nothing and keeps its version, once it is durable", () => {
    const log = new Records();
    const machine = machineOn(log);
    deploy(machine, 1, ["a", "b"]);
    expect(deploy(machine, 1, ["b", "a", "a"])).toMatchObject({ version: 1, after: { until: "committed", index: 1 } });
    expect(log.records).toHaveLength(1);
    deploy(machine, 2, ["a", "b"]);
    // Going back is a deployment of its own.
    expect(deploy(machine, 1, ["a", "b"])).toMatchObject({ version: 3 });
    // One type more is a change.
    expect(deploy(machine, 1, ["a", "b", "c"])).toMatchObject({ version: 4 });
  });

  test("what is rebuilt from the records equals what was there, and goes on", () => {
    const log = new Records();
    const machine = machineOn(log);
    for (let i = 0; i < 20; i++) deploy(machine, i, [`t${i % 3}`, "all"], i % 2 === 0 ? "default" : "other", 1000 + i);
    const again = machineOn(log);
    for (const record of log.records.slice()) expect(again.recover(record)).toBeUndefined();
    for (const namespace of ["default", "other"]) expect(again.deployments(namespace)).toEqual(machine.deployments(namespace));
    expect(deploy(again, 99, ["x"], "default", 0)).toMatchObject({ version: 11, after: { index: 21 } });
    const events = log.records.flatMap((record) => fromBytes(decodeRecord, record.body).event);
    const own = events.filter((bytes) => fromBytes(decodeEvent, bytes).partition === "deploy/default");
    const verdict = verifyHistory(bunHasher, own, { partition: "deploy/default" });
    expect(verdict.ok && verdict.head.size).toBe(11);
  });

  test("a record that does not continue the chain is refused by name", () => {
    const log = new Records();
    const machine = machineOn(log);
    deploy(machine, 1, ["a"]);
    deploy(machine, 2, ["a"]);
    const second = log.records[1] as { index: Index; body: Uint8Array };
    const refused = machineOn(new Records()).recover(second) as Rejection;
    expect(refused).toMatchObject({ reject: "HASH_MISMATCH", message: "Cannot follow event 0 of deploy/default: seq is 1, want 0" });
  });
});
