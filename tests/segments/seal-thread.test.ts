/** Sealing beside the node: the same segments, with the event loop free, in the executable too. */
import { afterAll, expect, test } from "bun:test";
import fs from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { asIndex, asShardId } from "#core/base";
import { compileExecutable } from "../../scripts/build.ts";
import { CorruptionError } from "../../store/corruption-error.ts";
import type { RecordToSeal } from "../../store/segment/sealed/record-batch.ts";
import { packRecords } from "../../store/segment/sealed/record-batch.ts";
import { busyShard } from "../../store/segment/sealed/records-fixture.ts";
import { SealThread } from "../../store/segment/sealed/seal-thread.ts";
import { packObject, sealSegment } from "../../store/segment/sealed/seal-work.ts";
import { root } from "../sources.ts";

const place = fs.mkdtempSync(join(tmpdir(), "hop-seal-"));
const thread = new SealThread();
afterAll(() => {
  thread.close();
  fs.rmSync(place, { recursive: true });
});

const optionsOf = (records: readonly RecordToSeal[]) => ({
  shard: asShardId(1),
  firstIndex: asIndex(1),
  lastIndex: asIndex(records.length),
});
const records = [...busyShard(5000)];

test("a thread seals what the function seals, one segment after the other", async () => {
  const some = records.slice(0, 100);
  const [all, few, none] = await Promise.all([
    thread.segment(packRecords(records), optionsOf(records)),
    thread.segment(packRecords(some), optionsOf(some)),
    thread.segment(packRecords([]), { shard: asShardId(2), firstIndex: asIndex(8), lastIndex: asIndex(7) }),
  ]);
  expect(all).toEqual(await sealSegment(records, optionsOf(records)));
  expect(few).toEqual(await sealSegment(some, optionsOf(some)));
  expect(none.summary.rows).toBe(0);
});

test("a thread packs what is packed in place, and what it is given to do meanwhile comes behind", async () => {
  const plain = () => new TextEncoder().encode("packed ".repeat(10_000));
  const [packed, sealed] = await Promise.all([thread.pack(plain()), thread.segment(packRecords(records), optionsOf(records))]);
  const { bytes, sha256 } = packObject(plain());
  expect([Buffer.from(packed.bytes).equals(bytes), Buffer.from(packed.sha256).equals(sha256)]).toEqual([true, true]);
  expect(Bun.zstdDecompressSync(packed.bytes as Uint8Array<ArrayBuffer>).length).toBe(70_000);
  expect(sealed.summary.lastIndex).toBe(asIndex(records.length));
});

test("the event loop turns while a thread seals", async () => {
  let turns = 0;
  let isDone = false;
  const turn = () => {
    turns++;
    if (!isDone) setImmediate(turn);
  };
  const many = [...busyShard(20_000)];
  turn();
  await thread.segment(packRecords(many), optionsOf(many));
  const besides = turns;
  await sealSegment(many, optionsOf(many));
  isDone = true;
  expect(besides).toBeGreaterThan(50);
  expect(turns - besides).toBeLessThan(50);
});

test("what can't be sealed is said as the function says it, and the thread goes on", async () => {
  const gap = records.toSpliced(7, 1);
  const messageOf = (work: Promise<unknown>) => work.then(String, (error: Error) => `${error instanceof CorruptionError} ${error.message}`);
  const refused = await messageOf(thread.segment(packRecords(gap), optionsOf(records)));
  expect(refused).toStartWith("true Cannot seal");
  expect(refused).toBe(await messageOf(sealSegment(gap, optionsOf(records))));
  function* failing(): Generator<RecordToSeal> {
    yield records[0] as RecordToSeal;
    throw new Error("the log can't be read");
  }
  // `.rejects` would wait for it without letting the thread's answers in.
  expect(await messageOf(thread.segment(packRecords(failing()), optionsOf(records)))).toBe("false the log can't be read");
  expect((await thread.segment(packRecords(records), optionsOf(records))).summary.lastIndex).toBe(asIndex(records.length));
});

test("a thread that is closed gives up what is under way, and takes nothing more", async () => {
  const closed = new SealThread();
  const sealing = closed.segment(packRecords(records), optionsOf(records));
  const next = closed.segment(packRecords(records), optionsOf(records));
  const outcomes = Promise.allSettled([sealing, next]);
  setImmediate(() => closed.close());
  const want = { status: "rejected", reason: expect.objectContaining({ reason: "STORE_UNAVAILABLE" }) };
  expect(await outcomes).toEqual([want, want] as never);
  await expect(closed.segment(packRecords(records), optionsOf(records))).rejects.toMatchObject({ reason: "STORE_UNAVAILABLE" });
});

test("the executable carries the thread", async () => {
  const outfile = join(place, "seal");
  await compileExecutable({ entry: join(root, "tests/segments/seal-fixture.ts"), outfile, embedded: "" });
  const child = Bun.spawn([outfile], { cwd: place, stdout: "pipe", stderr: "pipe" });
  const [out, err, code] = await Promise.all([child.stdout.text(), child.stderr.text(), child.exited]);
  const { segmentSha256, indexSha256 } = (await sealSegment(records, optionsOf(records))).summary;
  const hex = (bytes: Uint8Array) => Buffer.from(bytes).toString("hex");
  expect([out.trim(), err, code]).toEqual([`${hex(segmentSha256)} ${hex(indexSha256)}`, "", 0]);
}, 60_000);
