/** Sealed segments as others read them: DuckDB and Arrow see the rows that were sealed, column by column. */
import { afterAll, expect, test } from "bun:test";
import fs from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { type DuckDBBlobValue, DuckDBInstance } from "@duckdb/node-api";
import { asIndex, asShardId, Prng, toHex } from "#core/base";
import { decodeEvent, fromBytes } from "#proto";
import type { RecordToSeal } from "../../store/segment/sealed/record-batch.ts";
import { busyShard, RecordMaker } from "../../store/segment/sealed/records-fixture.ts";
import { sealSegment } from "../../store/segment/sealed/seal-work.ts";
import { SealedReader } from "../../store/segment/sealed/sealed-reader.ts";
import type { SealedSegment } from "../../store/segment/sealed/summary.ts";
import { inMemory } from "../../store/segment/sealed/verify.ts";
import { pythonWithArrow } from "./pyarrow.ts";

const root = fs.mkdtempSync(join(tmpdir(), "hop-parquet-"));
afterAll(() => fs.rmSync(root, { recursive: true }));
const python = await pythonWithArrow();
const missing = typeof python === "string" ? ` (skipped here: ${python.split("\n")[0]})` : "";

const seal = (records: readonly RecordToSeal[]) =>
  sealSegment(records, { shard: asShardId(1), firstIndex: asIndex(1), lastIndex: asIndex(records.length) });

/** Names that are hard to sort, payloads from none to 64 KiB, unknown kinds and fields, identities of all sorts. */
function oddShard(): RecordToSeal[] {
  const maker = new RecordMaker();
  const prng = new Prng(7);
  const partitions = [
    "run/a:b",
    "run/a:ü",
    "run/a:🐇",
    "run/a:\uffff",
    "run/a:b'\"\\",
    "channel/a:b/c",
    ...Array.from({ length: 900 }, (_, i) => `run/a:${i}`),
  ];
  const identities = [
    undefined,
    { issuer: "core", causeSeq: 2 ** 40 },
    { issuer: "https://ä.example", subject: "bö", verified: true },
    { issuer: "local", subject: "" },
  ];
  for (let i = 0; i < 4000; i++) {
    const size = prng.chance(0.003) ? 64 << 10 : prng.below(120);
    maker.record({
      partition: partitions[prng.below(prng.chance(0.5) ? 6 : partitions.length)] as string,
      kind: prng.chance(0.1) ? 2 ** 32 - 1 - prng.below(5) : 1 + prng.below(60),
      payload: Uint8Array.from({ length: size }, () => prng.below(256)),
      identity: identities[prng.below(identities.length)],
      unknown: prng.chance(0.1) ? Uint8Array.of(98, 3, 1, 2, 3) : undefined,
    });
  }
  return maker.records;
}

const shards: Record<string, SealedSegment> = {
  odd: await seal(oddShard()),
  busy: await seal([...busyShard(10_000)]),
  empty: await seal([{ index: asIndex(1), term: 3 as never, kind: "data", body: new Uint8Array(0) }]),
};
for (const [name, { segment }] of Object.entries(shards)) fs.writeFileSync(join(root, `${name}.parquet`), segment);

const columns = [
  "partition",
  "seq",
  "time_ms",
  "logical",
  "kind",
  "schema_id",
  "identity_issuer",
  "identity_subject",
  "identity_verified",
  "identity_cause_seq",
  "payload",
  "log_index",
  "term",
  "hash",
  "event",
];

/** SHA-256 of the rows as lines of JSON, bytes in hex: out of the events themselves, decoded as everybody else does it. */
async function digestOf(sealed: SealedSegment): Promise<string> {
  const lines = new Bun.CryptoHasher("sha256");
  for await (const rows of new SealedReader(sealed.summary, inMemory(sealed, { segment: "s", index: "i" })).rows()) {
    for (const row of rows) {
      const { partition, seq, timeMs, logical, kind, schemaId, identity, payload } = fromBytes(decodeEvent, row.event);
      const { issuer = "", subject = "", verified = false, causeSeq = 0 } = identity ?? {};
      const copies = [partition, seq, timeMs, logical, kind, schemaId, issuer, subject, verified, causeSeq, toHex(payload)];
      lines.update(`${JSON.stringify([...copies, row.index, row.term, toHex(row.hash), toHex(row.event.subarray(0, -34))])}\n`);
    }
  }
  return lines.digest("hex");
}

const metadataOf = ({ summary }: SealedSegment) => ({
  "hopskip.format": "1",
  "hopskip.shard": "1",
  "hopskip.first_index": `${summary.firstIndex}`,
  "hopskip.last_index": `${summary.lastIndex}`,
  "hopskip.rows": `${summary.rows}`,
  "hopskip.digest": toHex(summary.digest),
});

for (const [name, sealed] of Object.entries(shards)) {
  test(`DuckDB reads the ${name} segment: the same rows, in order`, async () => {
    const db = await DuckDBInstance.create(":memory:");
    const connection = await db.connect();
    const path = join(root, `${name}.parquet`);
    const rowsOf = async (sql: string) => (await connection.run(sql)).getRows();
    const found = await connection.run(`select * from '${path}'`);
    expect(found.columnNames()).toEqual(columns);
    const lines = new Bun.CryptoHasher("sha256");
    for (const row of await found.getRows()) {
      const values = row.map((value) =>
        typeof value === "bigint" ? Number(value) : typeof value === "object" ? toHex((value as DuckDBBlobValue).bytes) : value,
      );
      lines.update(`${JSON.stringify(values)}\n`);
    }
    expect(lines.digest("hex")).toBe(await digestOf(sealed));
    const metadata = await rowsOf(`select decode(key), decode(value) from parquet_kv_metadata('${path}')`);
    expect(Object.fromEntries(metadata)).toEqual(metadataOf(sealed));
    connection.closeSync();
    db.closeSync();
  });

  test.skipIf(missing !== "")(`Arrow reads the ${name} segment: the same rows, in order${missing} [needs pyarrow]`, async () => {
    if (typeof python === "string") throw new Error(python);
    const said = JSON.parse(await python(join(import.meta.dir, "read-rows.py"), join(root, `${name}.parquet`)));
    expect(said).toEqual({
      rows: sealed.summary.rows,
      rowGroups: expect.any(Number),
      columns,
      digest: await digestOf(sealed),
      hashes: toHex(sealed.summary.digest),
      metadata: metadataOf(sealed),
      sorted: true,
    });
  });
}

test("DuckDB skips row groups by what the footer says of partitions, numbers and times", async () => {
  const db = await DuckDBInstance.create(":memory:");
  const connection = await db.connect();
  const path = join(root, "odd.parquet");
  const { summary } = shards.odd as SealedSegment;
  const reader = new SealedReader(summary, inMemory(shards.odd as SealedSegment, { segment: "s", index: "i" }));
  for await (const { partition, firstSeq, endSeq } of reader.partitions()) {
    const found = await connection.run(`select count(*), min(seq), max(seq) from '${path}' where partition = $1`, [partition]);
    expect([partition, (await found.getRows())[0]]).toEqual([partition, [BigInt(endSeq - firstSeq), BigInt(firstSeq), BigInt(endSeq - 1)]]);
  }
  const ranges = await connection.run(
    `select path_in_schema, min(stats_min_value), max(stats_max_value) from parquet_metadata('${path}') where stats_min_value is not null group by all order by all`,
  );
  const known = (await ranges.getRows()).map(([name]) => name);
  expect(known).toEqual([
    "identity_cause_seq",
    "identity_issuer",
    "identity_subject",
    "kind",
    "log_index",
    "logical",
    "partition",
    "schema_id",
    "seq",
    "term",
    "time_ms",
  ]);
  const count = await connection.run(`select count(*) from '${path}' where time_ms between $1 and $2`, [
    BigInt(summary.extent?.firstTimeMs ?? 0),
    BigInt(summary.extent?.lastTimeMs ?? 0),
  ]);
  expect((await count.getRows())[0]).toEqual([BigInt(summary.rows)]);
  connection.closeSync();
  db.closeSync();
});
