import { expect, test } from "bun:test";
import { asNodeId, type NodeId, placementShard } from "#core/base";
import { emptyView } from "#core/placement";
import { MessageKind, noConf } from "#core/raft";
import { Placement } from "../../core/placement/machine-fixture.ts";
import { stays, until } from "../../tests/until.ts";
import { TestNode } from "../node-fixture.ts";
import type { Fields, Logger } from "../observe/logger.ts";
import { KnownSenders, type KnownSendersParts } from "./known-senders.ts";
import { Pretender } from "./peer-fixture.ts";

const numbers = [1, 2, 3, 4, 9].map(asNodeId);

function senders(parts: Partial<KnownSendersParts>) {
  const said: unknown[] = [];
  const known = new KnownSenders({
    view: () => emptyView,
    conf: () => undefined,
    known: () => [],
    note: (_, __, fields) => void said.push(fields?.node),
    ...parts,
  });
  const taken = () => numbers.filter((from) => known.takes(from, placementShard, { from }));
  return { known, taken, said };
}

test("members of the group and of the cluster are heard, and each other one is named once", () => {
  const { view } = Placement.of(2);
  const { taken, said } = senders({ view: () => view, conf: () => ({ ...noConf, voters: [asNodeId(1)], learners: [asNodeId(4)] }) });
  for (let i = 0; i < 3; i++) expect(taken().map(Number)).toEqual([1, 2, 4]);
  expect(said).toEqual([3, 9].map(asNodeId));
});

test("before its first view a node hears those whom it was told of, and none of them for ever", () => {
  let { view }: { view: KnownSendersParts["view"] } = { view: () => emptyView };
  const { taken } = senders({ view: () => view(), known: () => [asNodeId(3)] });
  expect(taken().map(Number)).toEqual([3]);
  view = () => Placement.of(2).view;
  expect(taken().map(Number)).toEqual([1, 2]);
});

test("nobody speaks for another", () => {
  const { view } = Placement.of(3);
  const { known } = senders({ view: () => view });
  expect(known.takes(asNodeId(2), placementShard, { from: asNodeId(3) })).toBe(false);
});

test("placement does not follow a node with a number that it never gave out", async () => {
  const lines: { readonly message: string; readonly fields: Fields }[] = [];
  const note = (message: string, fields: Fields = {}) => void lines.push({ message, fields });
  const logger: Logger = { debug: note, info: note, warn: note, error: note };
  await using target = await TestNode.start({ peerPort: 0, logger });
  await target.node.member;
  using stranger = new Pretender({ address: target.node.peer }).hello({ clusterId: target.node.clusterId });
  await stranger.next("welcome");
  const message = { kind: MessageKind.heartbeat, shard: placementShard, from: 9 as NodeId, to: 1 as NodeId, term: 99 };
  const beats = setInterval(() => stranger.connection.send({ kind: "raftOf", shard: placementShard, message }), 10);
  await until(() => lines.some(({ fields }) => fields.node === 9), { what: "it is named" });
  // A deployment is placement's to decide: it still leads itself.
  await target.deploy().finally(() => clearInterval(beats));
  await stays(() => lines.filter(({ fields }) => fields.node === 9).length === 1, { forMs: 200, what: "it is named once" });
});
