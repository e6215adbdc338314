/** restate#4838: a crash loop filled the disk, and only a wipe by hand helped. What a full disk does is in tests/chaos/disk.test.ts. */
import { expect, test } from "bun:test";
import { closeSync, openSync, readdirSync, statSync, writeSync } from "node:fs";
import { join } from "node:path";
import { CaseServer } from "./case-fixture.ts";

/** Bytes on disk and names below a folder, without the socket that a killed server leaves and the next start takes away. */
function use(folder: string): { bytes: number; names: string[] } {
  const names = (readdirSync(folder, { recursive: true }) as string[]).filter((name) => name !== "worker.sock").sort();
  return { bytes: names.reduce((sum, name) => sum + statSync(join(folder, name)).blocks * 512, 0), names };
}

test("fifty starts that fail leave the folder as it was, and say each time why", async () => {
  await using at = await CaseServer.up();
  for (let i = 0; i < 20; i++) await (await at.client.start("collect", undefined, { instance: `r${i}` })).signal("item", i);
  await at.server.kill();
  const path = join(at.server.data, "log", "wal-0000000001.log");
  const fd = openSync(path, "r+");
  writeSync(fd, Uint8Array.of(1, 2, 3, 4), 0, 4, 200);
  const before = use(at.server.data);
  for (let i = 0; i < 50; i++) {
    const { code, stderr } = await at.hop.run([
      "server",
      "start",
      "--data",
      at.server.data,
      "--listen",
      "127.0.0.1:0",
      "--http",
      "127.0.0.1:0",
    ]);
    expect(code).toBe(1);
    expect(stderr).toContain("wal-0000000001.log is damaged at byte");
    if (i === 0) continue;
    expect(use(at.server.data)).toEqual(before);
  }
  closeSync(fd);
}, 90_000);

test("a server that is killed fifty times as it starts leaves nothing behind", async () => {
  await using at = await CaseServer.up();
  await (await at.client.start("collect", undefined, { instance: "stays" })).signal("item", 1);
  await at.server.kill();
  await at.again();
  await at.server.kill();
  const before = use(at.server.data);
  for (let i = 0; i < 50; i++) {
    const starting = at.server.launch();
    if (i % 5 === 0) await starting.line(/^ready grpc=/m);
    await starting.kill();
  }
  const after = use(at.server.data);
  expect(after.names).toEqual(before.names);
  // Databases keep journals of bounded size.
  expect(after.bytes).toBeLessThan(before.bytes + (80 << 20));
  await at.again();
  expect(await at.client.handle({ instance: "stays" }).query<unknown[]>("seen")).toEqual([1]);
}, 90_000);
