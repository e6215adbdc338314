import { expect, test } from "bun:test";
import { HopError, noBytes, type Partition } from "#core/base";
import { blankMessage } from "#core/run";
import { decodeStartOrder, type Envelope, fromBytes, MessageKind } from "#proto";
import { type EnvelopeAnswer, MailRoad } from "./mail.ts";
import { oneShard, type RoutingNode, routingNodes } from "./routing-fixture.ts";
import type { NewestBundles } from "./start-bundles.ts";

const to = "run/default:b" as Partition;
const envelope: Envelope = {
  from: "run/default:a",
  to,
  settled: 4,
  offeredMs: 1000,
  message: [
    {
      ...blankMessage,
      number: 5,
      kind: 1,
      op: 2,
      generation: 1,
      name: "go",
      payload: { data: new Uint8Array([1]), ref: undefined },
      of: 0,
      status: 0,
      failure: undefined,
    },
  ],
};

const none: NewestBundles = { bundle: () => undefined, refresh: () => Promise.resolve() };
const roadOf = ({ self, peer, router, shards }: RoutingNode, bundles = none) =>
  new MailRoad({ self, net: peer.net, router, shards, bundles });
const send = (road: MailRoad, sent = envelope) => new Promise<EnvelopeAnswer>((resolve) => road.send(to, sent, resolve));

test("an envelope reaches the leader of its receiver's shard, here or elsewhere, and its answer comes back", async () => {
  using nodes = routingNodes(2);
  const [a, b] = nodes as unknown as [RoutingNode, RoutingNode];
  const roads = [a, b].map((node) => roadOf(node)) as [MailRoad, MailRoad];
  for (const { router } of [a, b]) router.install(oneShard(2));
  const port = b.lead();
  for (const road of roads) expect(await send(road)).toEqual({ taken: 1, refusal: [], settled: 0, stale: false, retryAfterMs: 0 });
  expect(port.envelopes).toEqual([envelope, envelope]);
});

test("without a leader, at a node that leads no more, or with the link down the sender is told, once", async () => {
  using nodes = routingNodes(2);
  const [a, b] = nodes as unknown as [RoutingNode, RoutingNode];
  const road = roadOf(a);
  roadOf(b);
  expect(await send(road)).toMatchObject({ rejection: { reject: "STORE_UNAVAILABLE" } });
  a.router.install(oneShard(0));
  expect(await send(road)).toMatchObject({ rejection: { reject: "NOT_LEADER" } });
  a.router.install(oneShard(2, 2));
  expect(await send(road)).toMatchObject({ rejection: { reject: "NOT_LEADER" } });
  const port = b.lead();
  port.envelope = (_, done) => {
    done({ kind: "rejected", rejection: { reject: "STALE_EPOCH", message: "the keys are another shard's" } });
    return 1 as never;
  };
  expect(await send(road)).toMatchObject({ rejection: { reject: "STALE_EPOCH" } });
  b.peer.net.close();
  expect(await send(road)).toMatchObject({ rejection: { reject: "STORE_UNAVAILABLE" } });
});

test("a start gets the code that is newest where it arrives, asked for where it is not known; one that names its own keeps it", async () => {
  using nodes = routingNodes(2);
  const [a, b] = nodes as unknown as [RoutingNode, RoutingNode];
  for (const { router } of [a, b]) router.install(oneShard(2));
  const port = b.lead();
  const [own, deployed] = [1, 2].map((byte) => new Uint8Array(32).fill(byte)) as [Uint8Array, Uint8Array];
  const startOf = (type: string, bundle: Uint8Array) => ({
    ...blankMessage,
    kind: MessageKind.start,
    start: { ...fromBytes(decodeStartOrder, noBytes), type, bundle },
  });
  const asked: string[] = [];
  let isKnown = false;
  const bundles: NewestBundles = {
    bundle: (namespace, { type }) => {
      asked.push(`${namespace} ${type}`);
      return type === "known" || (type === "new" && isKnown) ? deployed : undefined;
    },
    refresh: async () => {
      isKnown = true;
    },
  };
  const road = roadOf(a, none);
  roadOf(b, bundles);
  const sent = { ...envelope, message: [startOf("known", noBytes), startOf("own", own)] };
  expect(await send(road, sent)).toMatchObject({ taken: 2 });
  expect(port.envelopes.at(-1)?.message.map(({ start }) => start?.bundle)).toEqual([deployed, own]);
  expect(asked).toEqual(["default known"]);
  await send(road, { ...envelope, message: [startOf("new", noBytes), startOf("nobody's", noBytes)] });
  expect(port.envelopes.at(-1)?.message.map(({ start }) => start?.bundle)).toEqual([deployed, noBytes]);
  const { length } = port.envelopes;
  roadOf(b, { bundle: () => undefined, refresh: () => Promise.reject(new HopError("STORE_UNAVAILABLE", "placement has no leader")) });
  expect(await send(road, sent)).toMatchObject({ rejection: { reject: "STORE_UNAVAILABLE" } });
  expect(port.envelopes.length).toBe(length);
});
