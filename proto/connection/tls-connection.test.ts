/** A framed socket under TLS is a connection like the others, and one that strangers don't get. */
import { describe, expect, test } from "bun:test";
import { hasOpenssl, TestAuthority } from "../../tests/certificates.ts";
import { until } from "../../tests/until.ts";
import { workerCodec } from "./codecs.ts";
import { connectionSuite, Recorder, suiteServerCodec } from "./connection.suite.ts";
import type { Closing, FrameBounds } from "./connection.ts";
import { connectSocket, type SocketPeer, type SocketTls, serveSocket } from "./socket-connection.ts";

const bounds: FrameBounds = { frameBytesSoft: 1 << 20, frameBytesMax: 1 << 26, bufferedBytesMax: 1 << 28 };
const loopback = { hostname: "127.0.0.1", port: 0 };

if (hasOpenssl) {
  const authority = new TestAuthority();
  const own: SocketTls = { ...authority.issue("node", ["DNS:hop-node", "IP:127.0.0.1"]), requireClientCert: true };
  connectionSuite("tls socket", {
    async serve(bounded, open) {
      const server = serveSocket(loopback, suiteServerCodec, bounded, open, { tls: own });
      return {
        connect: (codec, openClient) => connectSocket(server.address, codec, bounded, openClient, own),
        stop: () => server.close(),
      };
    },
  });
}

describe("a TLS socket", () => {
  const authority = hasOpenssl ? new TestAuthority() : undefined;
  const issue = (from: TestAuthority | undefined, hosts = ["DNS:hop-node"]) => (from as TestAuthority).issue("node", hosts);

  /** What a client that shows `client` sees, and which peers the server opened a stream to. */
  async function attempt(serverTls: SocketTls, client: SocketTls | undefined): Promise<{ closing: Closing; peers: SocketPeer[] }> {
    const peers: SocketPeer[] = [];
    const open = (_: unknown, peer: SocketPeer) => {
      peers.push(peer);
      return new Recorder<unknown>();
    };
    const server = serveSocket(loopback, suiteServerCodec, bounds, open, { tls: { requireClientCert: true, ...serverTls } });
    const seen = new Recorder<unknown>();
    const connection = connectSocket(server.address, workerCodec, bounds, () => seen, client);
    connection.send({ kind: "ack", value: { number: 1 } });
    if (client?.cert === serverTls.cert && client.serverName === "hop-node") {
      await until(() => peers.length === 1);
      connection.close("seen");
    }
    const closing = await seen.end();
    server.close();
    return { closing, peers };
  }

  test.skipIf(!hasOpenssl)(`names who connected [needs openssl]`, async () => {
    const own = issue(authority);
    const { peers } = await attempt(own, { ...own, serverName: "hop-node" });
    expect(peers).toMatchObject([{ address: "127.0.0.1", certificateName: "node" }]);
  });

  test.skipIf(!hasOpenssl)(
    `opens no stream to a client without a certificate, or with one of another authority [needs openssl]`,
    async () => {
      const own = issue(authority);
      const foreign = { ...issue(new TestAuthority()), ca: own.ca, serverName: "hop-node" };
      const plain = await attempt(own, undefined);
      expect(plain).toMatchObject({ closing: { kind: "lost" }, peers: [] });
      expect(await attempt(own, foreign)).toMatchObject({ closing: { kind: "lost" }, peers: [] });
    },
  );

  test.skipIf(!hasOpenssl)(`is not spoken on to a server of another authority, or of another name [needs openssl]`, async () => {
    const own = issue(authority);
    const foreign = await attempt(issue(new TestAuthority()), { ...own, serverName: "hop-node" });
    expect(foreign.closing.message).toContain("TLS handshake failed");
    const misnamed = await attempt(issue(authority, ["DNS:other"]), { ...own, serverName: "hop-node" });
    expect(misnamed.closing.message).toContain("hop-node");
    expect([...foreign.peers, ...misnamed.peers]).toEqual([]);
  });
});

describe("a gate", () => {
  const gate = { frameBytesMax: 64, timeoutMs: 300, strangersMax: 2 };

  test("loses who is not admitted in time, drops those above its count, and lets larger frames through once admitted", async () => {
    const seen: Recorder<unknown>[] = [];
    const peers: SocketPeer[] = [];
    const open = (_: unknown, peer: SocketPeer) => {
      peers.push(peer);
      seen.push(new Recorder<unknown>());
      return seen.at(-1) as Recorder<unknown>;
    };
    const server = serveSocket(loopback, suiteServerCodec, bounds, open, { gate });
    const clients = [0, 1, 2].map(() => new Recorder<unknown>());
    const connections = clients.map((client) => connectSocket(server.address, workerCodec, bounds, () => client));
    const dropped = await Promise.race(clients.map((client, i) => client.end().then(() => i)));
    expect(peers.length).toBe(2);
    expect(dropped).toBe(2);
    peers[0]?.admit();
    connections[0]?.send({ kind: "taskDone", value: { result: { data: new Uint8Array(1000) } } });
    const late = await (seen[1] as Recorder<unknown>).end();
    expect(late.message).toContain("did not say who it is within 300 ms");
    await seen[0]?.until(() => seen[0]?.items.length === 1);
    expect(seen[0]?.closing).toBeUndefined();
    server.close();
  });

  test("ends who sends a frame above its bound before it is admitted", async () => {
    const seen = new Recorder<unknown>();
    const server = serveSocket(loopback, suiteServerCodec, bounds, () => seen, { gate });
    const client = new Recorder<unknown>();
    connectSocket(server.address, workerCodec, bounds, () => client).send({
      kind: "taskDone",
      value: { result: { data: new Uint8Array(100) } },
    });
    expect(await seen.end()).toMatchObject({ kind: "malformed" });
    expect((await client.end()).kind).toBe("lost");
    server.close();
  });
});
