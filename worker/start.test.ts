import { afterAll, describe, expect, test } from "bun:test";
import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { limits } from "#core/base";
import type { ServerItemInit, WorkerItem } from "#proto";
import { type Connection, connectSocket, dispatchCodec, localPair, type Receiver, serveSocket, workerCodec } from "#proto/connection";
import type { Connect } from "./session.ts";
import { startWorker } from "./start.ts";

const folder = mkdtempSync(join(tmpdir(), "hop-worker-"));
afterAll(() => rmSync(folder, { recursive: true, force: true }));

/** Welcomes each worker, gives it one task, and closes the first stream when its result came. */
function scripted() {
  const results: string[] = [];
  let streams = 0;
  let onDone!: () => void;
  const done = new Promise<void>((resolve) => {
    onDone = resolve;
  });
  const open = (connection: Connection<ServerItemInit>): Receiver<WorkerItem> => {
    const own = ++streams;
    return {
      item(item) {
        if (item.kind === "hello") {
          const token = { run: "default:r1", generation: 1, op: own, attempt: 1, delivery: 1 };
          connection.send({ kind: "welcome", value: { clusterId: "c1" } });
          connection.send({ kind: "task", value: { token, name: "double", number: 1, input: { data: Buffer.from(String(own)) } } });
        }
        if (item.kind !== "taskDone" || item.value.token?.op !== own) return;
        results.push(Buffer.from(item.value.result?.data ?? []).toString());
        if (own === 1) connection.close("again");
        else onDone();
      },
      ended: () => connection.end(),
      closed() {},
    };
  };
  return { open, results, done };
}

async function runs(connect: Connect, server: ReturnType<typeof scripted>): Promise<void> {
  const worker = await startWorker({
    connect,
    blobs: async () => new Uint8Array(0),
    activities: { double: (n: number) => n * 2 },
    graceMs: 0,
  });
  await worker.ready;
  await server.done;
  await worker.close();
  expect(server.results).toEqual(["2", "4"]);
}

describe("a worker", () => {
  test("runs in the server's own process", async () => {
    const server = scripted();
    await runs((open) => localPair({ codec: dispatchCodec, open: server.open }, { codec: workerCodec, open }, limits).client, server);
  });

  test("runs over a socket", async () => {
    const server = scripted();
    const served = serveSocket({ unix: join(folder, "s") }, dispatchCodec, limits, server.open);
    await runs((open) => connectSocket(served.address, workerCodec, limits, open), server);
    served.close();
  });

  test("tries again where the road itself can't be opened", async () => {
    const server = scripted();
    let failures = 2;
    const connect: Connect = (open) => {
      if (failures-- > 0) throw new Error("The server is stopping");
      return localPair({ codec: dispatchCodec, open: server.open }, { codec: workerCodec, open }, limits).client;
    };
    await runs(connect, server);
  });

  test("has a name of its own", async () => {
    const [a, b] = await Promise.all([1, 2].map(() => startWorker({ address: "127.0.0.1:1", graceMs: 0 })));
    expect(a?.workerId).not.toBe(b?.workerId);
    await Promise.all([a?.close(), b?.close()]);
  });

  test("is refused without a road to a server", async () => {
    await expect(startWorker({})).rejects.toThrow("Cannot start a worker: it needs the address of a server, or `connect`");
    await expect(startWorker({ address: [] })).rejects.toThrow("it needs the address");
    await expect(startWorker({ connect: () => ({}) as never })).rejects.toThrow("with `connect`, `blobs` must say");
  });
});
