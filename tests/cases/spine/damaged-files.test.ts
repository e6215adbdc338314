/**
 * restate#3154: a torn tail was treated as corruption and start-up stopped. immudb#2063: the auditor said "consistent" after
 * bytes were edited. Every byte of the log and of blobs is cut and flipped in store/log/wal-log-store.test.ts, store/cas/cas.test.ts
 * and cmd/audit/offline.test.ts; here the compiled server and auditor meet a sample of each, and the files beside them.
 */
import { afterAll, beforeAll, describe, expect, test } from "bun:test";
import { closeSync, openSync, readdirSync, readFileSync, rmSync, statSync, truncateSync, writeSync } from "node:fs";
import { join } from "node:path";
import { Prng } from "#core/base";
import { HopClient } from "#sdk/client";
import { CaseServer } from "./case-fixture.ts";

let at: CaseServer;
let master = "";
let recordsEnd = 0;
const runs = Array.from({ length: 8 }, (_, i) => `run-${i}`);

beforeAll(async () => {
  at = await CaseServer.up();
  for (const instance of runs) {
    const handle = await at.client.start("collect", undefined, { instance });
    for (let i = 0; i < 5; i++) await handle.signal("item", i);
  }
  await (await at.client.start("collect", undefined, { instance: "large" })).signal("item", "x".repeat(200_000));
  await at.server.kill();
  master = join(at.hop.folder, "master");
  Bun.spawnSync(["cp", "-a", "--sparse=always", at.server.data, master]);
  const bytes = readFileSync(join(master, "log", "wal-0000000001.log"));
  recordsEnd = bytes.length;
  while (bytes[recordsEnd - 1] === 0) recordsEnd--;
}, 60_000);
afterAll(() => at[Symbol.asyncDispose]());

/** A fresh copy of the folder; sparse, as most of the log is zeros. */
function copy(name: string): string {
  const folder = join(at.hop.folder, name);
  rmSync(folder, { recursive: true, force: true });
  Bun.spawnSync(["cp", "-a", "--sparse=always", master, folder]);
  return folder;
}

function flip(path: string, offset: number): void {
  const byte = readFileSync(path)[offset] as number;
  const fd = openSync(path, "r+");
  writeSync(fd, Uint8Array.of(byte ^ 0x10), 0, 1, offset);
  closeSync(fd);
}

const seenBy = async (client: HopClient, instance: string) => client.handle<unknown>({ instance }).query<unknown[]>("seen");

test("the log cut anywhere behind its last acknowledged byte: the server starts, with everything", async () => {
  for (const more of [0, 1, 7, 8, 39, 40, 41, 4096]) {
    const folder = copy("cut");
    truncateSync(join(folder, "log", "wal-0000000001.log"), recordsEnd + more);
    const server = await at.hop.server({ data: "cut", args: ["--worker"] });
    const client = HopClient.connect({ address: server.grpc });
    expect([more, await seenBy(client, "run-7")]).toEqual([more, [0, 1, 2, 3, 4]]);
    await client.handle({ instance: "run-7" }).signal("item", "on");
    client.close();
    await server.kill();
  }
}, 60_000);

test("the log cut in its last write: the longest whole prefix is kept, and says so; a record of the middle is never dropped", async () => {
  const prng = new Prng(3);
  for (let i = 0; i < 12; i++) {
    const end = i < 6 ? recordsEnd - 1 - prng.below(60) : 64 + prng.below(recordsEnd - 64);
    const folder = copy("torn");
    truncateSync(join(folder, "log", "wal-0000000001.log"), end);
    const { code, stderr, stdout } = await at.hop.run(["audit", "--data", folder, "-o", "json"]);
    expect([end, code]).toEqual([end, 0]);
    const sizes = JSON.parse(stdout) as { partition: string; size: number }[];
    const server = await at.hop.server({ data: "torn" });
    const client = HopClient.connect({ address: server.grpc });
    for (const { partition, size } of sizes.filter((each) => each.partition.startsWith("run/"))) {
      let events = 0;
      for await (const chunk of client.history(partition.slice(4))) events += chunk.event.length;
      expect([partition, events]).toEqual([partition, size]);
    }
    client.close();
    await server.kill();
    expect(stderr.includes("no whole record") || sizes.length > 0).toBe(true);
  }
}, 90_000);

describe("a flipped bit", () => {
  test("in any record of the log is found by the audit, and the start is refused, with the place", async () => {
    const prng = new Prng(11);
    for (let i = 0; i < 12; i++) {
      const offset = 64 + prng.below(recordsEnd - 64 - 200);
      const folder = copy("flipped");
      flip(join(folder, "log", "wal-0000000001.log"), offset);
      const audited = await at.hop.run(["audit", "--data", folder]);
      expect([offset, audited.code]).toEqual([offset, 1]);
      expect(audited.stderr).toMatch(/wal-0000000001\.log is damaged at byte \d+/);
      const started = await at.hop.run(["server", "start", "--data", folder, "--listen", "127.0.0.1:0", "--http", "127.0.0.1:0"]);
      expect([offset, started.code === 0]).toEqual([offset, false]);
      expect(started.stderr).toContain("wal-0000000001.log");
    }
  }, 60_000);

  test("in a blob is found by the audit, by name", async () => {
    const folder = copy("blob");
    const blobs = readdirSync(join(folder, "blobs"), { recursive: true, withFileTypes: true }).filter((entry) => entry.isFile());
    expect(blobs.length).toBeGreaterThan(1);
    for (const { parentPath, name } of blobs) {
      const path = join(parentPath, name);
      flip(path, Math.floor(statSync(path).size / 2));
      const { code, stderr } = await at.hop.run(["audit", "--data", folder]);
      expect([code, stderr.includes(name)]).toEqual([1, true]);
      flip(path, Math.floor(statSync(path).size / 2));
    }
  }, 60_000);

  test("in what is derived from the log changes no answer: it is set aside and built again", async () => {
    const prng = new Prng(5);
    for (const file of ["checkpoint.db", "visibility.db", "checkpoint.db-wal", "visibility.db-wal"]) {
      const folder = copy("derived");
      const path = join(folder, file);
      for (let i = 0; i < 40; i++) flip(path, prng.below(statSync(path).size));
      const server = await at.hop.server({ data: "derived", args: ["--worker"] });
      const client = HopClient.connect({ address: server.grpc });
      for (const instance of runs) expect([file, await seenBy(client, instance)]).toEqual([file, [0, 1, 2, 3, 4]]);
      const rows = (await client.list({ limit: 100 })).run.map(({ run }) => run).sort();
      expect([file, rows]).toEqual([file, [...runs.map((name) => `default:${name}`), "default:large"].sort()]);
      client.close();
      await server.kill();
    }
  }, 60_000);
});
