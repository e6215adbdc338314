import { expect, test } from "bun:test";
import type { Partition } from "#core/base";
import type { Envelope } from "#proto";
import { type EnvelopeAnswer, MailRoad } from "./mail.ts";
import { oneShard, type RoutingNode, routingNodes } from "./routing-fixture.ts";

const to = "run/default:b" as Partition;
const envelope: Envelope = {
  from: "run/default:a",
  to,
  settled: 4,
  offeredMs: 1000,
  message: [
    {
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

const roadOf = ({ self, peer, router, shards }: RoutingNode) => new MailRoad({ self, net: peer.net, router, shards });
const send = (road: MailRoad) => new Promise<EnvelopeAnswer>((resolve) => road.send(to, envelope, resolve));

test("an envelope reaches the leader of its receiver's shard, here or elsewhere, and its answer comes back", async () => {
  using nodes = routingNodes(2);
  const [a, b] = nodes as unknown as [RoutingNode, RoutingNode];
  const roads = [a, b].map(roadOf) as [MailRoad, MailRoad];
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
