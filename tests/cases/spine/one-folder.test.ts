/** temporal#5532, restate#4790: two processes on one data folder. temporalio/cli#632: a dev server that was stopped never got healthy again. */
import { expect, test } from "bun:test";
import { mkdirSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { Cluster, type HopProcess } from "#tests/cluster";

const readyMsMax = 2000;
const code = `
import { durable, signal } from "@hopskip/runtime";
export const adds = durable(async () => (await signal<number>("n")) + (await signal<number>("n")) + (await signal<number>("n")) + (await signal<number>("n")));
`;

interface Dev {
  readonly process: HopProcess;
  readonly address: string;
  readonly ms: number;
}

async function startDev(hop: Cluster, listen: string): Promise<Dev> {
  const begun = performance.now();
  const process = hop.launch(["dev", "adds.ts", "--listen", listen, "--http", "127.0.0.1:0"], { cwd: "project" });
  await process.line(/Ready\./);
  const ms = performance.now() - begun;
  const [, address = ""] = await process.line(/server\s+(\S+:\d+)/);
  return { process, address, ms };
}

test("hop dev, stopped, killed, moved to another port and address on the same folder, is ready each time and goes on", async () => {
  await using hop = new Cluster();
  mkdirSync(join(hop.folder, "project"));
  writeFileSync(join(hop.folder, "project", "adds.ts"), code);
  let dev = await startDev(hop, "127.0.0.1:0");
  const at = () => ({ env: { HOP_SERVER: dev.address } });
  await hop.expectOk(["run", "adds", "--instance", "waiting"], at());
  const times: number[] = [];
  for (const [i, next] of ["same", "kill", "port", "address"].entries()) {
    if (next === "kill") await dev.process.kill();
    else expect(await dev.process.stop()).toBe(0);
    dev = await startDev(hop, next === "address" ? "127.0.0.2:0" : next === "port" ? "127.0.0.1:0" : dev.address);
    times.push(dev.ms);
    await hop.expectOk(["workflow", "signal", "waiting", "n", "--input", String(i)], at());
  }
  expect(Math.max(...times)).toBeLessThan(readyMsMax);
  expect(await hop.expectOk(["workflow", "result", "waiting"], at())).toBe("6\n");
}, 60_000);

test("a second process on the folder is refused by name and process id, whatever it is; who is cut off while opening leaves no lock", async () => {
  await using hop = new Cluster();
  const server = await hop.server();
  const others = [
    ["server", "start", "--data", server.data, "--listen", "127.0.0.1:0", "--http", "127.0.0.1:0"],
    ["dev", "--data", server.data, "--listen", "127.0.0.1:0", "--http", "127.0.0.1:0"],
    ["audit", "--data", server.data],
  ];
  for (const args of others) {
    const { code, stderr } = await hop.run(args);
    expect([args[0], code === 0]).toEqual([args[0], false]);
    expect(stderr).toContain(server.data);
    expect(stderr).toContain(String(server.process.pid));
  }
  await hop.expectOk(["workflow", "list"], { server });
  await server.kill();
  for (let i = 0; i < 5; i++) await server.launch().kill();
  const cancelled = server.launch();
  cancelled.signal("SIGINT");
  await cancelled.exited;
  await server.restart();
  await hop.expectOk(["workflow", "list"], { server });
}, 60_000);
