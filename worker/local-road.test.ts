import { afterEach, expect, test } from "bun:test";
import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { limits } from "#core/base";
import type { Hello } from "#proto";
import { dispatchCodec, type SocketServer, serveSocket } from "#proto/connection";
import { TestServer } from "./server-fixture.ts";
import { startWorker, type Worker } from "./start.ts";

const folder = mkdtempSync(join(tmpdir(), "hop-local-"));
const socket = join(folder, "worker.sock");
const server = new TestServer();
let local: SocketServer | undefined;
let worker: Worker | undefined;

afterEach(async () => {
  await worker?.close();
  local?.close();
  local = undefined;
  server.stop();
  server.streams.length = 0;
  rmSync(socket, { force: true });
});

/** Sends away whoever would rather come over the socket. */
async function start(): Promise<void> {
  server.greet = (stream) => {
    const localSocket = stream.hello.wantsLocal ? socket : "";
    stream.send({ kind: "welcome", value: { clusterId: "c1", session: 1, localSocket } });
    if (localSocket !== "") stream.end();
  };
  await server.start();
  worker = await startWorker({ address: server.address, activities: {}, workerId: "w1", graceMs: 0 });
  await worker.ready;
}

test("a worker on the server's machine says hello again on the socket that it is sent to", async () => {
  const hellos: Hello[] = [];
  local = serveSocket({ unix: socket }, dispatchCodec, limits, (connection) => ({
    item(item) {
      if (item.kind !== "hello") return;
      hellos.push(item.value);
      connection.send({ kind: "welcome", value: { clusterId: "c1", session: 2 } });
    },
    ended: () => connection.end(),
    closed() {},
  }));
  await start();
  expect(server.streams.map(({ hello }) => hello.wantsLocal)).toEqual([true]);
  expect(hellos.map(({ workerId, wantsLocal }) => [workerId, wantsLocal])).toEqual([["w1", false]]);
  expect(worker?.isConnected).toBe(true);
});

test("a worker that can't reach the socket stays with gRPC", async () => {
  await start();
  expect(server.streams.map(({ hello }) => hello.wantsLocal)).toEqual([true, false]);
  expect(worker?.isConnected).toBe(true);
});
