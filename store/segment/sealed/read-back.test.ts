/** A new segment is compared with what it was made of: each way in which they can differ is found. */
import { expect, test } from "bun:test";
import { asIndex, asTerm } from "#core/base";
import { digestOf } from "./partition-filter.ts";
import { readBack } from "./read-back.ts";
import { packRecords } from "./record-batch.ts";
import { busyShard, RecordMaker } from "./records-fixture.ts";
import { RowTable } from "./row-table.ts";
import { sealTable } from "./seal.ts";

type Write = (maker: RecordMaker) => void;

/** Two partitions, of which one begins in a log before. */
const usual: Write = (maker) => {
  maker.record({ partition: "run/a:b", payload: Uint8Array.of(1, 2) }, { partition: "run/a:c" });
  maker.record({ partition: "run/a:b" });
};

async function tableOf(write: Write): Promise<RowTable> {
  const maker = new RecordMaker();
  maker.record({ partition: "run/a:b" });
  maker.records.length = 0;
  write(maker);
  const table = new RowTable({ shard: maker.shard, firstIndex: asIndex(2) });
  for await (const batch of packRecords(maker.records)) table.add(batch);
  return table;
}

/** What reading `usual`'s segment back says where another table is what it should have been made of. */
async function comparedWith(write: Write): Promise<string> {
  const [table, other] = [await tableOf(usual), await tableOf(write)];
  const sealed = await sealTable(table, table.lastIndex);
  return readBack(sealed, { table: other, ...other.sorted(), digests: [] }).then(
    () => "the same",
    (error: Error) => error.message,
  );
}

test("a segment is the same as what it was made of", async () => {
  expect(await comparedWith(usual)).toBe("the same");
});

test("another payload, record, term, row or piece is found", async () => {
  const first = (maker: RecordMaker, payload: number) =>
    maker.record({ partition: "run/a:b", payload: Uint8Array.of(1, payload) }, { partition: "run/a:c" });
  const others: [string, Write][] = [
    [
      "another event in row 0",
      (maker) => {
        first(maker, 3);
        maker.record({ partition: "run/a:b" });
      },
    ],
    [
      "another event in row 1",
      (maker) => {
        first(maker, 2);
        maker.term = asTerm(2);
        maker.record({ partition: "run/a:b" });
      },
    ],
    [
      "another event in row 1",
      (maker) => {
        first(maker, 2);
        maker.record();
        maker.record({ partition: "run/a:b" });
      },
    ],
    [
      "got 3 rows",
      (maker) => {
        usual(maker);
        maker.record({ partition: "run/a:z" });
      },
    ],
  ];
  for (const [got, write] of others) expect(await comparedWith(write)).toContain(got);
});

test("a piece that leads elsewhere, and a partition that is not in the filter, are found", async () => {
  const table = await tableOf(usual);
  const sealed = await sealTable(table, table.lastIndex);
  const { order, pieces } = table.sorted();
  const from = { table, order, digests: [] };
  const wrong = pieces.map((piece, i) => (i > 0 ? piece : { ...piece, previous: { shard: table.shard, index: asIndex(7) } }));
  await expect(readBack(sealed, { ...from, pieces: wrong })).rejects.toThrow("piece 0 of run/a:b");
  await expect(readBack(sealed, { ...from, pieces: pieces.slice(0, 1) })).rejects.toThrow("piece 1 of run/a:c");
  await expect(readBack(sealed, { ...from, pieces: [...pieces, ...pieces] })).rejects.toThrow("2 pieces");
  await expect(readBack(sealed, { ...from, pieces, digests: [digestOf(Buffer.from("run/a:d"))] })).rejects.toThrow("in the filter");
});

test("a flipped bit anywhere in what was written is found", async () => {
  const records = [...busyShard(300)];
  const table = new RowTable({ shard: new RecordMaker().shard, firstIndex: asIndex(1) });
  for await (const batch of packRecords(records)) table.add(batch);
  const sealed = await sealTable(table, table.lastIndex);
  const from = { table, ...table.sorted(), digests: [] };
  // The footer of the Parquet file is covered by the hash of the whole object, which is compared when that was uploaded.
  const end = sealed.segment.length - 8 - new DataView(sealed.segment.buffer).getUint32(sealed.segment.length - 8, true);
  for (const [object, from0, bytes] of [
    ["segment", 4, end],
    ["index", 0, sealed.index.length],
  ] as const) {
    for (let at = from0; at < bytes; at += 997) {
      const damaged = sealed[object].slice();
      damaged[at] = (damaged[at] as number) ^ 1;
      await expect(readBack({ ...sealed, [object]: damaged }, from)).rejects.toThrow("Cannot read");
    }
  }
});
