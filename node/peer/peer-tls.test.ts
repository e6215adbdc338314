/** Links between nodes under mutual TLS: the same as without, for those whom the cluster's authority vouches for. */
import { describe, expect, test } from "bun:test";
import { asShardId } from "#core/base";
import { hasOpenssl, TestAuthority } from "../../tests/certificates.ts";
import { until } from "../../tests/until.ts";
import { cluster, node, Pretender, TestPeer, text, utf8 } from "./peer-fixture.ts";
import type { PeerTlsOptions } from "./tcp-peer-net.ts";

const hosts = ["DNS:hop-node"];

describe("links under TLS", () => {
  const authority = hasOpenssl ? new TestAuthority() : undefined;
  const own = (name: string): PeerTlsOptions => ({ ...(authority as TestAuthority).issue(name, hosts), serverName: "hop-node" });

  test.skipIf(!hasOpenssl)(`carry calls, streams and Raft messages [needs openssl]`, async () => {
    using a = new TestPeer(1, { tls: own("a") });
    using b = new TestPeer(2, { tls: own("b") });
    a.meet(b);
    const shards: number[] = [];
    b.net.onRaft = (_, shard) => void shards.push(shard);
    b.net.serve("echo", (_, body) => body);
    b.net.serveStream("chunks", async function* () {
      for (let i = 0; i < 50; i++) yield new Uint8Array(200_000).fill(i);
    });
    expect(text(await a.net.call(node(2), "echo", utf8("sealed")))).toBe("sealed");
    expect((await a.net.call(node(2), "echo", new Uint8Array(5 << 20))).length).toBe(5 << 20);
    const chunks = await Array.fromAsync(a.net.stream(node(2), "chunks", utf8("")));
    expect(chunks.map((chunk) => chunk.at(-1))).toEqual(Array.from({ length: 50 }, (_, i) => i));
    expect(a.net.sendRaft(node(2), asShardId(4), { kind: 1, term: 1 })).toBe(true);
    await until(() => shards.length === 1);
  });

  test.skipIf(!hasOpenssl)(`are not made with a node of another authority, either way, nor without TLS [needs openssl]`, async () => {
    using a = new TestPeer(1, { tls: own("a") });
    const foreign = { ...new TestAuthority().issue("b", hosts), serverName: "hop-node" };
    using b = new TestPeer(2, { tls: foreign });
    using c = new TestPeer(3);
    a.meet(b, c);
    b.meet(a);
    c.meet(a);
    const outcome = (from: TestPeer, to: number) => from.net.call(node(to), "echo", utf8("")).catch((error: Error) => error.message);
    expect(await outcome(a, 2)).toContain("TLS handshake failed");
    expect(await outcome(b, 1)).toContain("TLS handshake failed");
    expect(await outcome(a, 3)).toContain("Cannot reach node 3");
    expect(await outcome(c, 1)).toContain("Cannot reach node 1");
    using plain = new Pretender(a.net).hello();
    await plain.end();
    expect(plain.items).toEqual([]);
    expect(a.net.figures()).toMatchObject({ accepted: 0, refused: 0 });
  });

  test.skipIf(!hasOpenssl)(`are refused to a good certificate with a foreign cluster id [needs openssl]`, async () => {
    using a = new TestPeer(1, { tls: own("a") });
    using b = new TestPeer(2, { tls: own("b"), identity: { clusterId: "hop_00000000000000bb", nodeId: node(2) } });
    b.meet(a);
    const message = await b.net.call(node(1), "echo", utf8("")).catch((error: Error) => error.message);
    expect(message).toContain(`it is of cluster "hop_00000000000000bb", this is ${cluster}`);
  });
});
