import { expect, test } from "bun:test";
import { existsSync } from "node:fs";
import { join } from "node:path";
import { Cluster, type Server, until } from "#tests/cluster";

/** Where the server's workers came from, in order. */
const arrivals = (server: Server) => [...server.process.stderr.matchAll(/"worker connected".*?"from":"([^"]+)"/g)].map(([, from]) => from);

test("a worker beside its server speaks over the data folder's socket, also after a kill -9 of the server", async () => {
  await using cluster = new Cluster();
  const server = await cluster.server({ args: ["--log-format", "json"] });
  expect(existsSync(join(server.data, "worker.sock"))).toBe(true);
  await cluster.worker(server, []);
  expect(arrivals(server)).toEqual(["local socket"]);
  await server.kill();
  await server.restart();
  await until(() => arrivals(server).length > 0, { what: "the worker to come back" });
  expect(arrivals(server)).toEqual(["local socket"]);
});
