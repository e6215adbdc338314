/** The harness on a real server: ready, killed, started again on the same ports, and gone at the end. */
import { expect, test } from "bun:test";
import { existsSync } from "node:fs";
import { Cluster } from "./harness.ts";

test("a server is ready, survives a kill on the same ports and data, and ends in good order", async () => {
  await using hop = new Cluster();
  const server = await hop.server();
  const { grpc, http, process: first } = server;
  expect((await fetch(`http://${http}/healthz`)).status).toBe(200);
  await server.kill();
  expect(first.code).toBe(137);
  await server.restart();
  expect({ grpc: server.grpc, http: server.http }).toEqual({ grpc, http });
  expect(await hop.expectOk(["workflow", "list", "-o", "json"], { server })).toContain("[");
  expect(await server.stop()).toBe(0);
});

test("the end of a test takes its processes and its folder with it", async () => {
  let folder = "";
  let pid = 0;
  {
    await using hop = new Cluster();
    folder = hop.folder;
    pid = (await hop.server()).process.pid;
  }
  expect(existsSync(folder)).toBe(false);
  expect(() => process.kill(pid, 0)).toThrow();
});

test("a process that ends too early is reported with what it said", async () => {
  await using hop = new Cluster();
  const ended = hop.launch(["server", "start", "--listen", "nonsense"]);
  await expect(ended.line(/^ready/m)).rejects.toThrow(/ended with code 2 before [\s\S]*--- stderr\n.*nonsense/);
});
