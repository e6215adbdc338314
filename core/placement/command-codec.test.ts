import { expect, test } from "bun:test";
import { asIndex, asNodeId, asShardId, asTerm, keyMax } from "#core/base";
import { CodecError } from "#proto";
import type { PlacementCommand, PlacementReply } from "./command.ts";
import { decodeCommand, decodeReply, encodeCommand, encodeReply } from "./command-codec.ts";
import { info, lease, pair, set } from "./machine-fixture.ts";
import { decodeReport, encodeReport } from "./plan/report-codec.ts";

const shard = asShardId(3);
const node = asNodeId(4);

const commands: PlacementCommand[] = [
  { kind: "bootstrap", clusterId: "c", info: info(1), replicationWanted: 5, shards: 4 },
  { kind: "bootstrap", clusterId: "c", info: info(1) },
  { kind: "join", clusterId: "c", node, info: info(2) },
  { kind: "join", info: info(2) },
  { kind: "leave", node },
  { kind: "remove", node },
  lease(1, 2, 3),
  lease(1, 2, 3, { parent: 4, at: keyMax }),
  { kind: "lease", shard, node, term: asTerm(1), born: { parent: asShardId(4), at: 5 }, isAhead: true },
  lease(1, 2, 3, { parent: 4, at: 5, replicas: set([1, 2], 6, { outgoing: [node], learners: [asNodeId(9)] }) }),
  { kind: "replicas-changed", shard, replicas: set([1, 2, 3], 40, { outgoing: [node] }) },
  { kind: "want-replicas", shard, nodes: [node, asNodeId(5), asNodeId(6)] },
  { kind: "want-split", shard, at: 12345678901234 },
  { kind: "want-merge", ...pair(1, 2) },
  { kind: "merge-frozen", ...pair(1, 2), change: 8, through: asIndex(2 ** 40), epoch: 9 },
  { kind: "merge-done", ...pair(1, 2) },
  { kind: "merge-cancel", ...pair(1, 2) },
  { kind: "cancel-change", shard },
  { kind: "cancel-change", shard, epoch: 7, reason: "because" },
  { kind: "set-replication", count: 5 },
  { kind: "set-replication", count: 3, reason: "fewer nodes" },
  { kind: "set-entry", class: "policy", name: "p", value: Uint8Array.of(1, 2) },
  { kind: "set-entry", class: "policy", name: "p", value: new Uint8Array(0), removed: true, expected: 3 },
  { kind: "set-entry", class: "policy", name: "p", value: Uint8Array.of(1), expected: 0 },
  { kind: "deploy", namespace: "n", deploy: { bundle: new Uint8Array(32).fill(4), size: 100, types: ["a", "b"] } },
  { kind: "deploy", namespace: "n", deploy: { bundle: new Uint8Array(32).fill(4), size: 100, types: ["a"], held: true } },
  { kind: "route", namespace: "n", route: { type: "a", version: 3, reason: "it is good" } },
  { kind: "route", namespace: "n", route: { type: "a", version: 3, percent: 0, reason: "" } },
];

const replies: PlacementReply[] = [
  { kind: "done" },
  { kind: "joined", clusterId: "c", node },
  { kind: "leased", epoch: 3, version: 2 ** 40 },
  { kind: "split", child: shard, change: 4 },
  { kind: "merge", change: 0 },
  { kind: "removed", gone: false },
  { kind: "removed", gone: true },
  { kind: "version", version: 7 },
  { kind: "rejected", rejection: { reject: "NOT_LEADER", message: "no" } },
  { kind: "rejected", rejection: { reject: "STALE_EPOCH", message: "no", retryAfterMs: 5, epoch: 6 } },
];

test.each(commands.map((each) => [each.kind, each] as const))("%s comes back as it was", (_, command) => {
  expect(decodeCommand(encodeCommand(command))).toEqual(command);
});

test.each(replies.map((each) => [each.kind, each] as const))("the answer %s comes back as it was", (_, reply) => {
  expect(decodeReply(encodeReply(reply))).toEqual(reply);
});

test("a term above 2^32 is kept", () => {
  expect(decodeCommand(encodeCommand(lease(1, 2, 2 ** 40)))).toMatchObject({ term: asTerm(2 ** 40) });
});

test("what a later version says is refused by name, and its reasons count as INTERNAL", () => {
  expect(() => decodeCommand(Uint8Array.of(0xfa, 0x07, 0))).toThrow(CodecError);
  expect(() => decodeReply(new Uint8Array(0))).toThrow(CodecError);
  const later = { kind: "rejected", rejection: { reject: "NEWER" as never, message: "x" } } as const;
  expect(decodeReply(encodeReply(later))).toMatchObject({ rejection: { reject: "INTERNAL", message: "x" } });
});

test("a node's report comes back as it was", () => {
  const load = {
    leads: true,
    bytes: 5e9,
    eventsPerSecond: 12.5,
    partitions: 9,
    lastIndex: 2 ** 35,
    splitAt: 77,
    lag: new Map([[node, 3]]),
  };
  const idle = { leads: false, bytes: 0, eventsPerSecond: 0, partitions: 0, lastIndex: 0, lag: new Map() };
  const loads = new Map([
    [shard, load],
    [asShardId(9), idle],
  ]);
  expect(decodeReport(encodeReport(node, loads), 50)).toEqual({ node, report: { lastHeardMs: 50, loads, isFull: false } });
  expect(decodeReport(encodeReport(node, loads, true), 50).report.isFull).toBe(true);
});
