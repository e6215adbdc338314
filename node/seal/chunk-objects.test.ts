import { expect, test } from "bun:test";
import { Prng } from "#core/base";
import { packObject } from "#store";
import { plainObjects, unpackChunks } from "./chunk-objects.ts";

const prng = new Prng(3);
const random = (bytes: number) => Uint8Array.from({ length: bytes }, () => prng.below(256));

async function packed(chunks: readonly Uint8Array[]): Promise<Uint8Array[]> {
  const objects: Uint8Array[] = [];
  for await (const plain of plainObjects(chunks)) objects.push(packObject(plain).bytes);
  return objects;
}

test("chunks of any size come back as they were, over several objects", async () => {
  const chunks = [random(0), random(1), random(100_000), new Uint8Array(20 << 20), random(7), new Uint8Array(17 << 20), random(3)];
  const objects = await packed(chunks);
  expect(objects.length).toBe(3);
  const back = objects.flatMap((object, i) => [...unpackChunks(object, `part ${i}`)].map((chunk) => chunk.slice()));
  expect(back.map((chunk) => Bun.hash(chunk))).toEqual(chunks.map((chunk) => Bun.hash(chunk)));
  expect(await packed([])).toEqual([]);
});

test("an object that is damaged, cut or none of ours is refused by name", async () => {
  const [object] = (await packed([random(1000)])) as [Uint8Array];
  for (const wrong of [object.subarray(0, object.length - 3), random(100), new Uint8Array(0)])
    expect(() => [...unpackChunks(wrong, "the part")]).toThrow("Cannot read the part");
  const short = Bun.zstdCompressSync(Buffer.from([9, 0, 0, 0, 1, 2]));
  expect(() => [...unpackChunks(short, "the part")]).toThrow("a chunk at byte 0 goes beyond its end at 6");
});
