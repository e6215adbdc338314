import { expect, test } from "bun:test";
import { asIndex, asSeq, asShardId, type Partition, toHex } from "#core/base";
import { CorruptionError } from "../../corruption-error.ts";
import { RecordMaker } from "./records-fixture.ts";
import { sealSegment } from "./seal-work.ts";
import { SealedReader } from "./sealed-reader.ts";
import { decodeDirectory, type RowGroupPlace } from "./segment-directory.ts";
import { type SealedSegment, type SegmentSummary, sealedFormat } from "./summary.ts";
import type { SealedObject } from "./verified-objects.ts";
import { auditSealed, checkSealed, inMemory } from "./verify.ts";

const names = { segment: "shard-1/1.parquet", index: "shard-1/1.index" };
const maker = new RecordMaker();
for (let i = 0; i < 5; i++) {
  maker.record({ partition: "run/a:b", identity: { issuer: "core" } }, { partition: "run/ä:c" });
  maker.record({ partition: `run/a:${i}`, payload: new Uint8Array(i * 7).fill(i) });
}
const range = { shard: asShardId(1), firstIndex: asIndex(3), lastIndex: asIndex(10) };
const sealed = await sealSegment(maker.records.slice(2), range);
const directory = decodeDirectory(sealed.index.subarray(sealed.summary.directoryAt));

const { at: historyAt, bytes: historyBytes } = (directory.rowGroups[0] as RowGroupPlace).history;
const historyEnd = historyAt + historyBytes;

type Objects = Pick<SealedSegment, SealedObject>;
const changed = (object: SealedObject, change: (bytes: Uint8Array) => Uint8Array): Objects => ({
  segment: sealed.segment,
  index: sealed.index,
  [object]: change(sealed[object].slice()),
});
const flipped = (object: SealedObject, at: number, bit: number) =>
  changed(object, (bytes) => {
    bytes[at] = (bytes[at] as number) ^ (1 << bit);
    return bytes;
  });

/** Everything that a reader can be asked, as JSON. */
async function everything(objects: Objects, summary: SegmentSummary = sealed.summary): Promise<string> {
  const reader = new SealedReader(summary, inMemory(objects, names));
  const said: unknown[] = [];
  for await (const piece of reader.partitions()) {
    said.push(piece, await reader.mayHold(piece.partition));
    // The others are in the same block and row group.
    if (piece.endSeq - piece.firstSeq === 1) continue;
    const history = await reader.history(piece.partition);
    said.push(history, ...(await Array.fromAsync(history?.events() ?? [], (events) => events.map(toHex))));
  }
  for await (const rows of reader.rows()) said.push(rows.map(({ event, ...row }) => [toHex(event), row]));
  return JSON.stringify(said);
}

/** The damage that `work` finds, or undefined where it finds none. Another error is a fault of the test. */
async function damageOf(work: Promise<unknown>): Promise<CorruptionError | undefined> {
  try {
    await work;
    return undefined;
  } catch (error) {
    if (error instanceof CorruptionError) return error;
    throw error;
  }
}

test("each flipped byte of either object is found by a check, which names the object and the part it is in", async () => {
  const starts = {
    segment: [0, ...directory.rowGroups.flatMap(({ copy, history }) => [copy.at, history.at, history.at + history.bytes])],
    index: [...directory.blocks.map(({ extent }) => extent.at), directory.filter.at, sealed.summary.directoryAt],
  };
  const got: string[] = [];
  const want: string[] = [];
  for (const object of ["segment", "index"] as const) {
    for (let at = 0; at < sealed[object].length; at++) {
      const found = await damageOf(checkSealed({ ...flipped(object, at, at % 8), summary: sealed.summary }, names));
      got.push(`${at} ${found?.reason} ${found?.damage.file} ${found?.damage.offset}`);
      want.push(`${at} HASH_MISMATCH ${names[object]} ${starts[object].findLast((start) => start <= at)}`);
    }
  }
  expect(got).toEqual(want);
}, 60_000);

test("a reader finds each flipped byte that it uses; what it does not use are copies and what only readers of Parquet need", async () => {
  const whole = await everything(sealed);
  const used = (object: SealedObject, at: number) => object === "index" || (at >= historyAt && at < historyEnd);
  const got: string[] = [];
  const want: string[] = [];
  for (const object of ["segment", "index"] as const) {
    for (let at = 0; at < sealed[object].length; at++) {
      let said: string | undefined;
      const reading = everything(flipped(object, at, (at + 3) % 8)).then((text) => {
        said = text;
      });
      const found = await damageOf(reading);
      got.push(`${at} ${found?.damage.file} ${said === whole}`);
      want.push(used(object, at) ? `${at} ${names[object]} false` : `${at} undefined true`);
    }
  }
  expect(got).toEqual(want);
}, 60_000);

test("objects that are shorter or longer are found", async () => {
  for (const object of ["segment", "index"] as const) {
    const { length } = sealed[object];
    for (const bytes of [0, 1, length >> 1, length - 1]) {
      const cut = changed(object, (all) => all.subarray(0, bytes));
      expect((await damageOf(checkSealed({ ...cut, summary: sealed.summary }, names)))?.damage.file).toBe(names[object]);
      const isUsed = object === "index" || bytes < historyEnd;
      expect([object, bytes, (await damageOf(everything(cut)))?.damage.file]).toEqual([object, bytes, isUsed ? names[object] : undefined]);
    }
    const longer = changed(object, (all) => new Uint8Array([...all, 0]));
    const damage = await damageOf(checkSealed({ ...longer, summary: sealed.summary }, names));
    expect(damage?.message).toContain(`got ${length + 1} bytes, want ${length}`);
    // Nothing is read behind the end.
    expect(await everything(longer)).toBe(await everything(sealed));
  }
});

test("objects of two segments that were exchanged are found", async () => {
  const other = await sealSegment(maker.records.slice(0, 2), { shard: asShardId(1), firstIndex: asIndex(1), lastIndex: asIndex(2) });
  const mixed: [string, SealedObject, SealedSegment][] = [
    ["its index", "index", { ...sealed, index: other.index }],
    ["its segment", "segment", { ...sealed, segment: other.segment }],
    ["its summary", "index", { ...sealed, summary: other.summary }],
  ];
  for (const [what, object, mix] of mixed) {
    expect([what, (await damageOf(checkSealed(mix, names)))?.damage.file]).toEqual([what, names[object]]);
    expect([what, (await damageOf(everything(mix, mix.summary)))?.damage.file]).toEqual([what, names[object]]);
  }
  // A manifest that was put together wrongly: hashes of one segment, facts of another.
  const { directoryAt, directorySha256, indexBytes, indexSha256 } = other.summary;
  const wrong = { ...sealed.summary, directoryAt, directorySha256, indexBytes, indexSha256 };
  const damage = await damageOf(everything({ segment: sealed.segment, index: other.index }, wrong));
  expect(damage?.message).toMatch(/got records 1–2 of shard 1 as 3 rows .*want records 3–10 of shard 1 as 12 rows/);
});

test("a summary of a later format is refused before anything is read", async () => {
  const reads: number[] = [];
  const summary = { ...sealed.summary, format: sealedFormat + 1 };
  const reader = new SealedReader(summary, { ...names, read: (_, at) => Promise.resolve(new Uint8Array(reads.push(at))) });
  expect((await damageOf(reader.history("run/a:b" as Partition)))?.message).toContain(`got format ${sealedFormat + 1}`);
  expect(reads).toEqual([]);
});

test("an audit finds a summary that is not of its rows", async () => {
  await auditSealed(sealed, names);
  const { summary } = sealed;
  const wrongs: Partial<SegmentSummary>[] = [{ digest: new Uint8Array(32) }, { terms: [] }];
  for (const wrong of wrongs)
    expect(await damageOf(auditSealed({ ...sealed, summary: { ...summary, ...wrong } }, names))).toBeInstanceOf(CorruptionError);
});

test("a failed read is passed on, and the next one tries again", async () => {
  let fails = true;
  const memory = inMemory(sealed, names);
  const reader = new SealedReader(sealed.summary, {
    ...memory,
    read: (object, at, bytes) => (fails ? Promise.reject(new Error("connection reset")) : memory.read(object, at, bytes)),
  });
  await expect(reader.history("run/a:b" as Partition)).rejects.toThrow("connection reset");
  fails = false;
  expect((await reader.history("run/a:b" as Partition))?.endSeq).toBe(asSeq(5));
});
