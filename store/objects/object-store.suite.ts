/** What every object store does, wherever its bytes are. */
import { afterEach, beforeEach, describe, expect, test } from "bun:test";
import { HopError, Prng } from "#core/base";
import type { BackedObjectStore } from "./backed-object-store.ts";
import { checkObjectStore } from "./object-check.ts";
import type { ListOptions } from "./object-store.ts";
import { sha256Of } from "./sha256.ts";

export interface ObjectHarness {
  /** One more user of the place; the first one finds it empty. */
  open(): Promise<BackedObjectStore>;
  /** Bodies above this are sent in parts of this size, where the store has parts. */
  readonly partBytes: number;
  dispose(): Promise<void>;
}

export const bytesOf = (text: string) => new TextEncoder().encode(text);
export const textOf = (bytes: Uint8Array | undefined) => bytes && new TextDecoder().decode(bytes);

export function randomBytes(count: number, seed = count): Uint8Array {
  const words = new Uint32Array(Math.ceil(count / 4));
  const prng = new Prng(seed);
  for (let i = 0; i < words.length; i++) words[i] = prng.next();
  return new Uint8Array(words.buffer, 0, count);
}

export const key = (name: string | number) => `shard-1/segments/${name}`;

/** Reason of what a promise rejects with; fails where it resolves. */
export async function reasonOf(promise: Promise<unknown>): Promise<string> {
  try {
    await promise;
  } catch (error) {
    if (error instanceof HopError) return error.reason;
    throw error;
  }
  throw new Error("It resolved, and should have been refused");
}

export async function keysOf(store: BackedObjectStore, prefix: string, options: ListOptions = {}): Promise<string[]> {
  const found: string[] = [];
  for await (const object of store.list(prefix, options)) found.push(object.key);
  return found;
}

export function objectStoreSuite(name: string, make: () => Promise<ObjectHarness>): void {
  describe(name, () => {
    let harness: ObjectHarness;
    let store: BackedObjectStore;

    beforeEach(async () => {
      harness = await make();
      store = await harness.open();
    });
    afterEach(async () => {
      await store.close();
      await harness.dispose();
    });

    test("what was put is read back, whatever its size", async () => {
      for (const size of [0, 1, 1000, 70_000, 300_000]) {
        const bytes = randomBytes(size);
        expect(await store.put(key(size), bytes, { sha256: await sha256Of(bytes) })).toBe("stored");
        expect(await store.get(key(size), { sha256: await sha256Of(bytes) })).toEqual(bytes);
        expect((await store.head(key(size)))?.bytes).toBe(size);
      }
    });

    test("what is not there is undefined for every kind of read", async () => {
      await store.put(key("there"), bytesOf("x"));
      const missing = key("missing");
      const take = () => {
        throw new Error("There is nothing to take");
      };
      expect([
        await store.get(missing),
        await store.get(missing, { range: { begin: 0, end: 9 } }),
        await store.head(missing),
        await store.download(missing, take),
        await store.get("other/folder/missing"),
      ]).toEqual([undefined, undefined, undefined, undefined, undefined]);
      expect(await keysOf(store, "other/")).toEqual([]);
    });

    test("a put without condition replaces the object", async () => {
      await store.put(key("a"), bytesOf("first"));
      expect(await store.put(key("a"), bytesOf("the second one"))).toBe("stored");
      expect(textOf(await store.get(key("a")))).toBe("the second one");
    });

    test("put with ifAbsent keeps the first writer's bytes and tells every later one", async () => {
      const other = await harness.open();
      expect(await store.put(key("a"), bytesOf("mine"), { ifAbsent: true })).toBe("stored");
      expect(await other.put(key("a"), bytesOf("ours"), { ifAbsent: true })).toBe("conflict");
      expect(await other.put(key("a"), bytesOf("theirs, longer"), { ifAbsent: true })).toBe("conflict");
      // Whoever was not told that it won asks again.
      expect(await store.put(key("a"), bytesOf("mine"), { ifAbsent: true })).toBe("stored");
      expect(textOf(await other.get(key("a")))).toBe("mine");
      await other.close();
    });

    test("of 32 racing writers one wins, in each of 10 rounds", async () => {
      const stores = [store, await harness.open()];
      for (let round = 0; round < 10; round++) {
        const put = async (writer: number) => {
          const target = stores[writer % 2] as BackedObjectStore;
          const outcome = await target.put(key(`race-${round}`), bytesOf(`writer ${writer}`), { ifAbsent: true });
          return outcome === "stored" ? [`writer ${writer}`] : [];
        };
        const winners = (await Promise.all(Array.from({ length: 32 }, (_, writer) => put(writer)))).flat();
        expect(winners).toEqual([textOf(await store.get(key(`race-${round}`))) ?? "nobody"]);
      }
      await stores[1]?.close();
    });

    test("a range gives the bytes that are in it", async () => {
      const bytes = randomBytes(1000);
      await store.put(key("a"), bytes);
      const range = (begin: number, end: number) => store.get(key("a"), { range: { begin, end } });
      expect(await range(0, 1)).toEqual(bytes.subarray(0, 1));
      expect(await range(100, 200)).toEqual(bytes.subarray(100, 200));
      expect(await range(0, 1000)).toEqual(bytes);
      expect(await range(990, 2000)).toEqual(bytes.subarray(990));
      expect(await range(1000, 1001)).toEqual(new Uint8Array(0));
      expect(await range(5000, 6000)).toEqual(new Uint8Array(0));
      const sha256 = await sha256Of(bytes.subarray(5, 9));
      expect(await store.get(key("a"), { range: { begin: 5, end: 9 }, sha256 })).toEqual(bytes.subarray(5, 9));
    });

    test("bytes that do not have the hash that is asked for are HASH_MISMATCH", async () => {
      const wrong = await sha256Of(bytesOf("something else"));
      await store.put(key("a"), bytesOf("a"));
      expect(await reasonOf(store.get(key("a"), { sha256: wrong }))).toBe("HASH_MISMATCH");
      expect(await reasonOf(store.download(key("a"), () => {}, { sha256: wrong }))).toBe("HASH_MISMATCH");
      expect(await reasonOf(store.put(key("b"), bytesOf("b"), { sha256: wrong }))).toBe("HASH_MISMATCH");
      expect(await store.head(key("b"))).toBeUndefined();
    });

    test("keys that a folder or a server could not take are refused", async () => {
      const long = "x".repeat(201);
      const bad = ["a/b", "a/b/c/d", "/a/b", "a//b", "a/../b", "a/./b", "a/.b/c", "A/b/c", "a/b/c ", "a/b/ü", `a/b/${long}`, "", "a/b/"];
      for (const each of bad) {
        expect(await reasonOf(store.put(each, bytesOf("x")))).toBe("BAD_REQUEST");
        expect(await reasonOf(store.get(each))).toBe("BAD_REQUEST");
      }
      expect(await reasonOf(keysOf(store, "a/b/c/d"))).toBe("BAD_REQUEST");
      expect(await reasonOf(keysOf(store, "../"))).toBe("BAD_REQUEST");
      const good = [`${"x".repeat(200)}/${"y".repeat(200)}/${"z".repeat(200)}`, "0/-/_", "a..b/c.d-e_f/xl.meta", "x/x/x"];
      for (const each of good) expect(await store.put(each, bytesOf(each))).toBe("stored");
      expect(await keysOf(store, "")).toEqual([...good].sort());
      for (const each of good) expect(textOf(await store.get(each))).toBe(each);
    });

    test("a listing is in key order, from its prefix and behind a key", async () => {
      const all = ["a-b/x/1", "a.b/x/1", "a/x-y/1", "a/x.y/1", "a/x/1", "a/x/10", "a/x/2", "a/xx/1", "a0/x/1", "b/x/1"];
      for (const each of [...all].reverse()) await store.put(each, bytesOf(each));
      expect(await keysOf(store, "")).toEqual(all);
      expect(await keysOf(store, "a/")).toEqual(all.slice(2, 8));
      expect(await keysOf(store, "a/x")).toEqual(all.slice(2, 8));
      expect(await keysOf(store, "a/x/")).toEqual(["a/x/1", "a/x/10", "a/x/2"]);
      expect(await keysOf(store, "a/x/1")).toEqual(["a/x/1", "a/x/10"]);
      expect(await keysOf(store, "", { after: "a/x/1" })).toEqual(all.slice(5));
      expect(await keysOf(store, "a/x/", { after: "a/x/10" })).toEqual(["a/x/2"]);
      expect(await keysOf(store, "a/x/", { after: "a/x/15" })).toEqual(["a/x/2"]);
      expect(await keysOf(store, "c")).toEqual([]);
      const sizes: number[] = [];
      for await (const { bytes } of store.list("a/x/")) sizes.push(bytes);
      expect(sizes).toEqual([5, 6, 5]);
    });

    // A thousand files that are flushed one by one take their time on a busy disk.
    test("a listing of many pages has every object once", { timeout: 120_000 }, async () => {
      const names = Array.from({ length: 1100 }, (_, i) => key(String(i).padStart(6, "0")));
      for (let at = 0; at < names.length; at += 20) {
        await Promise.all(names.slice(at, at + 20).map((each) => store.put(each, bytesOf("x"))));
      }
      expect(await keysOf(store, "shard-1/")).toEqual(names);
      expect(await keysOf(store, "shard-1/", { after: names[1049] as string })).toEqual(names.slice(1050));
      await store.delete(names);
      expect(await keysOf(store, "")).toEqual([]);
    });

    test("delete removes what is there, and nothing is no error", async () => {
      for (const each of ["a", "b", "c"]) await store.put(key(each), bytesOf(each));
      await store.delete([key("a"), key("never"), key("c")]);
      await store.delete([key("a")]);
      await store.delete([]);
      expect([await store.head(key("a")), textOf(await store.get(key("b")))]).toEqual([undefined, "b"]);
      expect(await store.put(key("a"), bytesOf("again"), { ifAbsent: true })).toBe("stored");
    });

    test("a large body is whole, and as conditional as a small one", async () => {
      const bytes = randomBytes(harness.partBytes * 2 + 12_345);
      const other = randomBytes(bytes.length, 2);
      const sha256 = await sha256Of(bytes);
      expect(await store.put(key("big"), bytes, { ifAbsent: true, sha256 })).toBe("stored");
      expect(await store.put(key("big"), other, { ifAbsent: true })).toBe("conflict");
      expect(await store.put(key("big"), bytes, { ifAbsent: true })).toBe("stored");
      const head = await store.head(key("big"));
      expect([head?.bytes, head?.sha256 ?? sha256]).toEqual([bytes.length, sha256]);
      expect(Buffer.compare((await store.get(key("big"), { sha256 })) as Uint8Array, bytes)).toBe(0);
      expect(await store.put(key("big"), other)).toBe("stored");
      expect(Buffer.compare((await store.get(key("big"))) as Uint8Array, other)).toBe(0);
    });

    test("a download gives the pieces in order, goes on where it is told to, and checks the whole", async () => {
      const bytes = randomBytes(harness.partBytes + 1000);
      await store.put(key("a"), bytes);
      const download = async (from: number, chunkBytes: number, sha256?: Uint8Array) => {
        const pieces: Uint8Array[] = [];
        const take = (piece: Uint8Array, at: number) => {
          expect(at).toBe(from + pieces.reduce((sum, each) => sum + each.length, 0));
          pieces.push(piece);
        };
        const size = await store.download(key("a"), take, { from, chunkBytes, ...(sha256 && { sha256 }) });
        return { size, isRight: Buffer.concat(pieces).equals(bytes.subarray(from)), count: pieces.length };
      };
      const chunk = Math.ceil(bytes.length / 4);
      expect(await download(0, chunk, await sha256Of(bytes))).toEqual({ size: bytes.length, isRight: true, count: 4 });
      expect(await download(bytes.length - 10, chunk)).toEqual({ size: bytes.length, isRight: true, count: 1 });
      expect(await download(bytes.length, chunk)).toEqual({ size: bytes.length, isRight: true, count: 0 });
      await store.put(key("empty"), new Uint8Array(0));
      expect(await store.download(key("empty"), () => {}, { sha256: await sha256Of(new Uint8Array(0)) })).toBe(0);
    });

    test("a download ends where another object takes the place of the one it reads", async () => {
      await store.put(key("a"), randomBytes(3000));
      const take = async (_piece: Uint8Array, at: number) => {
        if (at === 0) await store.put(key("a"), randomBytes(3000, 7));
      };
      expect(await reasonOf(store.download(key("a"), take, { chunkBytes: 1000 }))).toBe("STORE_UNAVAILABLE");
      const remove = () => store.delete([key("a")]);
      expect(await reasonOf(store.download(key("a"), remove, { chunkBytes: 1000 }))).toBe("STORE_UNAVAILABLE");
    });

    test("a signal that has aborted rejects with its reason", async () => {
      const signal = AbortSignal.abort(new Error("no time left"));
      for (const call of [
        () => store.put(key("a"), bytesOf("a"), { signal }),
        () => store.get(key("a"), { signal }),
        () => store.head(key("a"), { signal }),
        () => store.delete([key("a")], { signal }),
        () => keysOf(store, "", { signal }),
      ]) {
        await expect(call()).rejects.toThrow("no time left");
      }
      expect(await store.head(key("a"))).toBeUndefined();
    });

    test("300 random calls have the results that a map gives", async () => {
      const prng = new Prng(17);
      const model = new Map<string, string>();
      for (let i = 0; i < 300; i++) {
        const target = key(prng.below(12));
        const text = `value ${i} ${"x".repeat(prng.below(50))}`;
        switch (prng.below(6)) {
          case 0:
            await store.put(target, bytesOf(text));
            model.set(target, text);
            break;
          case 1:
            expect(await store.put(target, bytesOf(text), { ifAbsent: true })).toBe(model.has(target) ? "conflict" : "stored");
            if (!model.has(target)) model.set(target, text);
            break;
          case 2:
            await store.delete([target]);
            model.delete(target);
            break;
          case 3:
            expect(await keysOf(store, "shard-1/")).toEqual([...model.keys()].sort());
            break;
          default:
            expect(textOf(await store.get(target))).toBe(model.get(target));
        }
      }
    });

    test("the preflight passes and leaves nothing behind", async () => {
      await checkObjectStore(store);
      expect(await keysOf(store, "")).toEqual([]);
    });
  });
}
