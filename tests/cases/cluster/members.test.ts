/**
 * temporal#8667: a page token was not set, so the member list was partial and nodes fought over
 * shards. That lists stay whole while members come and go is in core/placement/members.test.ts and
 * node/cluster/control.test.ts; here 300 members are those of a real node.
 */
import { expect, test } from "bun:test";
import { joinThrough } from "../../../node/cluster/joining.ts";
import { TestNode } from "../../../node/node-fixture.ts";
import { noLogger } from "../../../node/observe/logger.ts";
import { TcpPeerNet } from "../../../node/peer/tcp-peer-net.ts";

const members = 300;
const version = "0.1.0";

test("300 members are listed whole through every page size, counted in the status, and few of them hold shards", async () => {
  await using test = await TestNode.start({ bootstrap: true, peerPort: 0 });
  const stranger = new TcpPeerNet({ host: "127.0.0.1", port: 0, version, logger: noLogger });
  try {
    const identity = { issuer: "core", subject: "node", verified: false, causeSeq: 0 };
    for (let n = 2; n <= members; n++) {
      const at = (port: number) => `127.0.0.1:${port + n}`;
      const info = { peer: at(20_000), grpc: at(30_000), http: at(40_000), zone: "", version, protocol: 1, disk: `disk-${n}` };
      const joined = await joinThrough(stranger, [test.node.peer], { kind: "join", clusterId: test.node.clusterId, info }, { identity });
      expect(joined.node).toBe(n as never);
    }
    const { cluster } = test.client();
    const everyone = Array.from({ length: members }, (_, i) => i + 1);
    for (const limit of [0, 1, 7, 100, 299, 300]) {
      const seen: number[] = [];
      for (let pageToken = ""; ; ) {
        const page = await cluster.members({ limit, pageToken });
        seen.push(...page.member.map(({ node }) => node));
        pageToken = page.nextPageToken;
        if (pageToken === "") break;
      }
      expect(seen).toEqual(everyone);
    }
    expect((await cluster.status()).nodesTotal).toBe(members);
    // Nobody has ever heard of the others: they are given nothing.
    for (const { replica } of (await cluster.shards()).shard) expect(replica.map(({ node }) => node)).toEqual([1]);
  } finally {
    stranger.close();
  }
}, 60_000);
