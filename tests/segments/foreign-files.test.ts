/** Files that are no segment of ours are refused by their hash, before anything takes them for Parquet. */
import { expect, test } from "bun:test";
import { readFileSync } from "node:fs";
import { join } from "node:path";
import { asIndex, asShardId, type Partition } from "#core/base";
import { CorruptionError } from "../../store/corruption-error.ts";
import { busyShard } from "../../store/segment/sealed/records-fixture.ts";
import { sealSegment } from "../../store/segment/sealed/seal-work.ts";
import { SealedReader } from "../../store/segment/sealed/sealed-reader.ts";
import type { SealedObject } from "../../store/segment/sealed/verified-objects.ts";
import { checkSealed, inMemory } from "../../store/segment/sealed/verify.ts";
import { filesLike, root } from "../sources.ts";

const vectors = filesLike("tests/segments/vectors/*.parquet");
const records = [...busyShard(500)];
const sealed = await sealSegment(records, { shard: asShardId(1), firstIndex: asIndex(1), lastIndex: asIndex(records.length) });
const names = { segment: "1.parquet", index: "1.index" };

const refusalOf = (work: Promise<unknown>) =>
  work.then(
    () => "believed",
    (error: unknown) => (error instanceof CorruptionError ? `${error.reason} ${error.damage.file}` : String(error)),
  );

test("there are vectors", () => expect(vectors.length).toBe(7));

for (const file of vectors) {
  test(`${file.slice(file.lastIndexOf("/") + 1)} in the place of a segment, or of its index, is refused by hash`, async () => {
    const foreign = new Uint8Array(readFileSync(join(root, file)));
    for (const object of ["segment", "index"] as const) {
      const placed = { ...sealed, [object]: foreign };
      expect(await refusalOf(checkSealed(placed, names))).toBe(`HASH_MISMATCH ${names[object]}`);
      const reads: SealedObject[] = [];
      const memory = inMemory(placed, names);
      const reader = new SealedReader(sealed.summary, {
        ...memory,
        read: (from, at, bytes) => {
          reads.push(from);
          return memory.read(from, at, bytes);
        },
      });
      const { firstPartition } = sealed.summary.extent as { firstPartition: Partition };
      const events = reader.history(firstPartition).then(async (history) => Array.fromAsync(history?.events() ?? []));
      expect(await refusalOf(events)).toBe(`HASH_MISMATCH ${names[object]}`);
      // Directory, block, row group: the first read that touches it is the last.
      expect(reads).toEqual(object === "index" ? ["index"] : ["index", "index", "segment"]);
    }
  });
}
