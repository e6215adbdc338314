import { afterAll, beforeAll, expect, test } from "bun:test";
import { cpSync, mkdtempSync, readdirSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { asIndex, asShardId, asTerm, type RunId } from "#core/base";
import { encodeRecord } from "#proto";
import { BlobStore, WalLogStore } from "#store";
import { exitCodeOf } from "../failure.ts";
import { auditHistory } from "./history-audit.ts";
import { makeHistory } from "./history-fixture.ts";
import { OfflineData } from "./offline.ts";

const root = mkdtempSync(join(tmpdir(), "hop-offline-"));
const whole = join(root, "whole");
const shard = asShardId(1);
const histories = [makeHistory("run/default:order-1"), makeHistory("run/default:order-2")];

/** Two interleaved histories and their blobs, as a server leaves them. */
beforeAll(async () => {
  const log = await WalLogStore.open({ dir: join(whole, "log"), segmentBytes: 8192 });
  const blobs = BlobStore.open(join(whole, "blobs"));
  const last = new Map<string, number>();
  let index = 0;
  for (const seq of [0, 1, 2, 3]) {
    for (const history of histories) {
      index += 1;
      const record = { event: [history.events[seq] as Uint8Array], previous: [last.get(history.partition) ?? 0] };
      encodeRecord(log.begin(shard, asIndex(index), asTerm(1)), record);
      log.end();
      last.set(history.partition, index);
    }
    const durable = Promise.withResolvers<void>();
    log.onDurable = () => log.durableIndex(shard) >= index && durable.resolve();
    log.kick(true);
    await durable.promise;
  }
  for (const history of histories) for (const bytes of history.blobs.values()) await blobs.put(bytes);
  await log.close();
});
afterAll(() => rmSync(root, { recursive: true, force: true }));

async function audited(folder: string): Promise<{ problem: string | undefined; torn: boolean; code: number }> {
  const data = OfflineData.open(folder);
  try {
    const verdict = await data.audit(() => {});
    return { problem: undefined, torn: verdict.torn !== undefined, code: 0 };
  } catch (error) {
    return { problem: (error as Error).message, torn: false, code: exitCodeOf(error) };
  } finally {
    data.close();
  }
}

function filesOf(folder: string): string[] {
  return readdirSync(folder, { recursive: true, withFileTypes: true })
    .filter((entry) => entry.isFile())
    .map((entry) => join(entry.parentPath, entry.name))
    .sort();
}

/** Runs the audit once for each byte of `file` below `end`, with that byte changed. */
async function eachByteChanged(
  file: string,
  end: number,
  check: (at: number, found: Awaited<ReturnType<typeof audited>>) => void,
): Promise<void> {
  const folder = join(root, "changed");
  rmSync(folder, { recursive: true, force: true });
  cpSync(whole, folder, { recursive: true });
  const path = file.replace(whole, folder);
  const bytes = readFileSync(path);
  for (let at = 0; at < end; at++) {
    const copy = Buffer.from(bytes);
    copy[at] = (copy[at] as number) ^ 0x41;
    writeFileSync(path, copy);
    check(at, await audited(folder));
  }
}

test("an untouched folder holds: every record, history and blob", async () => {
  const data = OfflineData.open(whole);
  const verdict = await data.audit(() => {});
  data.close();
  expect(verdict).toMatchObject({ records: 8, events: 8, blobs: 2, torn: undefined });
  expect(verdict.partitions.map(({ partition, size }) => ({ partition, size }))).toEqual(
    histories.map(({ partition }) => ({ partition, size: 4 })),
  );
});

test("every changed byte of the log is found, and its file and place are named", async () => {
  const [file = ""] = filesOf(join(whole, "log")).filter((path) => path.endsWith(".log"));
  const bytes = readFileSync(file);
  let end = bytes.length;
  while (end > 0 && bytes[end - 1] === 0) end--;
  const missed: string[] = [];
  await eachByteChanged(file, end, (at, { problem, code }) => {
    // A changed format number reads as a newer format: refused too, but not as damage.
    const isNamed = problem?.includes(`.log is damaged at byte`) === true || (at === 8 && problem?.includes(".log has format") === true);
    if (code === 0 || !isNamed) missed.push(`byte ${at}: ${problem}`);
  });
  expect(end).toBeGreaterThan(1000);
  expect(missed).toEqual([]);
}, 60_000);

test("damage to another run's record is told, and only the run that it belongs to fails", async () => {
  // Records 5 and 8 hold the third and the last event of the histories 1 and 2.
  for (const [number, hit, spared] of [
    [5, 0, 1],
    [8, 1, 0],
  ] as const) {
    const folder = join(root, `damaged-${number}`);
    cpSync(whole, folder, { recursive: true });
    const [file = ""] = filesOf(join(folder, "log")).filter((path) => path.endsWith(".log"));
    const bytes = readFileSync(file);
    const event = histories[hit]?.events[Math.ceil(number / 2) - 1] as Uint8Array;
    const at = bytes.indexOf(event) + event.length - 40;
    bytes[at] = (bytes[at] as number) ^ 0x41;
    writeFileSync(file, bytes);
    const said: string[] = [];
    const data = OfflineData.open(folder, (message) => said.push(message));
    const auditOf = (i: number) => auditHistory(data.source(histories[i]?.partition.slice(4) as RunId), () => {});
    const named = `.log is damaged at byte`;
    expect((await auditOf(spared)).head.size).toBe(4);
    expect(said).toEqual([expect.stringContaining(named)]);
    expect(said[0]).toContain(`(record ${number} of shard 1)`);
    const failure = await auditOf(hit).catch((error: unknown) => error);
    expect((failure as Error).message).toContain(`(record ${number} of shard 1)`);
    expect(exitCodeOf(failure)).toBe(1);
    data.close();
    const all = await audited(folder);
    expect([all.code, all.problem]).toEqual([1, expect.stringMatching(/damaged at byte \d+ \(record \d .*7 records can be read/)]);
  }
});

test("every changed byte of a blob is found, and the blob is named", async () => {
  for (const file of filesOf(join(whole, "blobs"))) {
    const missed: string[] = [];
    const name = file.slice(file.lastIndexOf("/") + 1);
    await eachByteChanged(file, readFileSync(file).length, (at, { problem, code }) => {
      if (code !== 1 || !problem?.includes(name)) missed.push(`byte ${at}: ${problem}`);
    });
    expect(missed).toEqual([]);
  }
});

test("what a crash tore at the end is told, and is no damage", async () => {
  const folder = join(root, "torn");
  cpSync(whole, folder, { recursive: true });
  const [file = ""] = filesOf(join(folder, "log")).filter((path) => path.endsWith(".log"));
  const bytes = readFileSync(file);
  let end = bytes.length;
  while (end > 0 && bytes[end - 1] === 0) end--;
  bytes.fill(7, end + 64, end + 100);
  writeFileSync(file, bytes);
  const before = readFileSync(file);
  expect(await audited(folder)).toEqual({ problem: undefined, torn: true, code: 0 });
  expect(readFileSync(file).equals(before)).toBe(true);
});

test("a folder in use, and one without data, are refused", async () => {
  const first = OfflineData.open(whole);
  expect(() => OfflineData.open(whole)).toThrow("uses it; stop that one");
  first.close();
  let error: unknown;
  try {
    OfflineData.open(join(root, "nothing"));
  } catch (caught) {
    error = caught;
  }
  expect(exitCodeOf(error)).toBe(4);
});
