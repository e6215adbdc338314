import { afterAll, expect, test } from "bun:test";
import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import * as grpc from "@grpc/grpc-js";
import { dispatchPath, workerCodec } from "./codecs.ts";
import { connectionSuite, type Form, Recorder, suiteServerCodec } from "./connection.suite.ts";
import type { FrameBounds } from "./connection.ts";
import { channelOptions, connectGrpc, grpcClient, serveConnections } from "./grpc-connection.ts";
import { localPair } from "./local-connection.ts";
import { connectSocket, type SocketAddress, serveSocket } from "./socket-connection.ts";

const folder = mkdtempSync(join(tmpdir(), "hop-connection-"));
afterAll(() => rmSync(folder, { recursive: true, force: true }));

const bounds: FrameBounds = { frameBytesSoft: 1 << 20, frameBytesMax: 1 << 26, bufferedBytesMax: 1 << 28 };

async function listen(server: grpc.Server): Promise<string> {
  const port = await new Promise<number>((done, fail) => {
    server.bindAsync("127.0.0.1:0", grpc.ServerCredentials.createInsecure(), (error, bound) =>
      error === null ? done(bound) : fail(error),
    );
  });
  return `127.0.0.1:${port}`;
}

const grpcForm: Form = {
  async serve(own, open) {
    const server = new grpc.Server(channelOptions(own));
    serveConnections(server, dispatchPath, suiteServerCodec, own, open);
    const address = await listen(server);
    const clients: grpc.Client[] = [];
    return {
      connect(codec, openClient) {
        const client = grpcClient(address, own);
        clients.push(client);
        return connectGrpc(client, dispatchPath, codec, own, openClient);
      },
      stop() {
        server.forceShutdown();
        for (const client of clients) client.close();
      },
    };
  },
};

function socketForm(address: () => SocketAddress): Form {
  return {
    async serve(own, open) {
      const server = serveSocket(address(), suiteServerCodec, own, open);
      return {
        connect: (codec, openClient) => connectSocket(server.address, codec, own, openClient),
        stop: () => server.close(),
      };
    },
  };
}

const localForm: Form = {
  async serve(own, open) {
    const servers: { close(reason: string): void }[] = [];
    return {
      connect(codec, openClient) {
        const pair = localPair({ codec: suiteServerCodec, open }, { codec, open: openClient }, own);
        servers.push(pair.server);
        return pair.client;
      },
      stop() {
        for (const server of servers) server.close("stopped");
      },
    };
  },
};

let sockets = 0;
connectionSuite("grpc", grpcForm);
connectionSuite(
  "unix socket",
  socketForm(() => ({ unix: join(folder, `s${sockets++}`) })),
);
connectionSuite(
  "tcp socket",
  socketForm(() => ({ hostname: "127.0.0.1", port: 0 })),
);
connectionSuite("in-process", localForm);

test("a peer that is not there is a lost stream, with the address in its message", async () => {
  const seen = new Recorder<unknown>();
  connectSocket({ unix: join(folder, "nobody") }, workerCodec, bounds, () => seen);
  const closing = await seen.end();
  expect(closing.kind).toBe("lost");
  expect(closing.message).toContain("nobody");

  const server = new grpc.Server();
  const address = await listen(server);
  server.forceShutdown();
  const client = grpcClient(address, bounds);
  const overGrpc = new Recorder<unknown>();
  connectGrpc(client, dispatchPath, workerCodec, bounds, () => overGrpc);
  expect((await overGrpc.end()).message).toContain("UNAVAILABLE");
  client.close();
});

test("a method that the server lacks is a lost stream that says so", async () => {
  const server = new grpc.Server();
  const client = grpcClient(await listen(server), bounds);
  const seen = new Recorder<unknown>();
  connectGrpc(client, dispatchPath, workerCodec, bounds, () => seen);
  expect((await seen.end()).message).toContain("UNIMPLEMENTED");
  client.close();
  server.forceShutdown();
});

test("a frame announced above the bound ends the socket's stream before its bytes are kept", async () => {
  const seen = new Recorder<unknown>();
  const server = serveSocket({ hostname: "127.0.0.1", port: 0 }, suiteServerCodec, bounds, () => seen);
  const address = server.address as { hostname: string; port: number };
  const socket = await Bun.connect({ ...address, socket: { data() {} } });
  socket.write(Uint8Array.of(255, 255, 255, 255, 1, 2, 3));
  const closing = await seen.end();
  expect(closing).toEqual({
    kind: "malformed",
    message: `Cannot read a frame: it has 4294967295 bytes, at most ${bounds.frameBytesMax} are allowed`,
  });
  server.close();
});

test("frames cut at any byte by the socket arrive whole", async () => {
  const seen = new Recorder<{ kind: string }>();
  const server = serveSocket({ hostname: "127.0.0.1", port: 0 }, suiteServerCodec, bounds, () => seen);
  const socket = await Bun.connect({ ...(server.address as { hostname: string; port: number }), socket: { data() {} } });
  socket.setNoDelay(true);
  const frame = [8, 0, 0, 0, 10, 2, 66, 0, 10, 2, 66, 0];
  const bytes = [...frame, ...frame, ...frame];
  for (const byte of bytes) {
    socket.write(Uint8Array.of(byte));
    await new Promise((done) => setImmediate(done));
  }
  await seen.until(() => seen.items.length === 6);
  expect(seen.items.map((item) => item.kind)).toEqual(Array(6).fill("draining"));
  socket.end();
  expect((await seen.end()).kind).toBe("lost");
  server.close();
});

test("a client that does not read hears that the server gave it up, though bytes wait for it", async () => {
  const small: FrameBounds = { ...bounds, bufferedBytesMax: 4 << 20 };
  const atServer = new Recorder<unknown>();
  const server = new grpc.Server(channelOptions(small));
  serveConnections(server, dispatchPath, suiteServerCodec, small, (connection) => {
    const push = () => {
      connection.send({ kind: "activate", value: { events: [new Uint8Array(1 << 16)] } });
      if (!connection.isOver) setImmediate(push);
    };
    atServer.onItem = push;
    return atServer;
  });
  const client = grpcClient(await listen(server), small);
  const seen = new Recorder<unknown>();
  const connection = connectGrpc(client, dispatchPath, workerCodec, small, () => seen);
  connection.pause();
  connection.send({ kind: "ack", value: { number: 1 } });
  expect((await atServer.end()).message).toContain("takes too little");
  expect((await seen.end()).kind).toBe("lost");
  client.close();
  server.forceShutdown();
});
