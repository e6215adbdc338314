import { afterAll, beforeEach, expect, test } from "bun:test";
import fs from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { sha256 } from "@noble/hashes/sha2.js";
import { type HopError, toHex } from "#core/base";
import { CorruptionError } from "../corruption-error.ts";
import { BlobStore } from "./cas.ts";

const root = fs.mkdtempSync(join(tmpdir(), "hop-cas-"));
let counter = 0;
let dir = "";
beforeEach(() => {
  dir = join(root, String(++counter));
});
afterAll(() => fs.rmSync(root, { recursive: true }));

const bytesOf = (text: string) => new TextEncoder().encode(text);
const files = () =>
  fs
    .readdirSync(dir, { recursive: true, withFileTypes: true })
    .filter((one) => one.isFile())
    .map((one) => join(one.parentPath, one.name));

test("a blob is found under its SHA-256, whatever its size", async () => {
  const store = BlobStore.open(dir);
  for (const bytes of [new Uint8Array(0), bytesOf("small"), new Uint8Array(1 << 20).fill(7)]) {
    const ref = await store.put(bytes);
    expect(ref).toEqual({ sha256: sha256(bytes), size: bytes.length });
    expect(Buffer.compare(await store.get(ref.sha256), bytes)).toBe(0);
    expect([await store.size(ref.sha256), await store.has(ref.sha256)]).toEqual([bytes.length, true]);
  }
});

test("storing the same bytes many times at once makes one file", async () => {
  const store = BlobStore.open(dir);
  const refs = await Promise.all(Array.from({ length: 50 }, () => store.put(bytesOf("same"))));
  expect(new Set(refs.map((ref) => toHex(ref.sha256))).size).toBe(1);
  expect(files()).toHaveLength(1);
});

test("many blobs at once are all stored", async () => {
  const store = BlobStore.open(dir);
  const refs = await Promise.all(Array.from({ length: 200 }, (_, i) => store.put(bytesOf(`blob ${i}`))));
  const back = await Promise.all(refs.map(async (ref) => new TextDecoder().decode(await store.get(ref.sha256))));
  expect(back).toEqual(Array.from({ length: 200 }, (_, i) => `blob ${i}`));
});

test("a missing blob is undefined, and BLOB_NOT_FOUND where it must be there", async () => {
  const store = BlobStore.open(dir);
  const hash = sha256(bytesOf("never stored"));
  expect([await store.find(hash), await store.has(hash), await store.size(hash)]).toEqual([undefined, false, undefined]);
  expect(await store.get(hash).catch((e: unknown) => (e as HopError).reason as string)).toBe("BLOB_NOT_FOUND" as never);
});

test("a blob that can't be read now is not called missing", async () => {
  const store = BlobStore.open(dir);
  const ref = await store.put(bytesOf("there"));
  const path = files()[0] as string;
  fs.rmSync(path);
  fs.mkdirSync(path);
  expect(await store.find(ref.sha256).catch((e: unknown) => (e as HopError).reason as string)).toBe("STORE_UNAVAILABLE" as never);
});

test("every byte of a blob, flipped, added or cut: the read fails and names the file; storing it again repairs it", async () => {
  const store = BlobStore.open(dir);
  const bytes = bytesOf("bytes that matter");
  const { sha256: hash } = await store.put(bytes);
  const path = files()[0] as string;
  const damages = [...bytes.keys()].map((at) => bytes.map((byte, i) => (i === at ? byte ^ 1 : byte)));
  for (const damage of [...damages, bytes.subarray(1), new Uint8Array([...bytes, 0]), new Uint8Array(0)]) {
    fs.writeFileSync(path, damage);
    const error = await store.get(hash).catch((e: unknown) => e);
    expect(error).toBeInstanceOf(CorruptionError);
    expect((error as Error).message).toContain(path);
  }
  await store.put(bytes);
  expect(Buffer.compare(await store.get(hash), bytes)).toBe(0);
});

test("a blob that comes in pieces is stored when all of it came, and begins anew where it was another one", async () => {
  const store = BlobStore.open(dir);
  const bytes = new Uint8Array(3_000_000).map((_, i) => i % 251);
  const blob = store.receive(sha256(bytes));
  await blob.write(bytes.subarray(0, 1_000_000));
  await blob.write(bytesOf("wrong"));
  expect(await blob.finish().catch((e: HopError) => e.reason)).toBe("HASH_MISMATCH");
  expect(await store.has(sha256(bytes))).toBe(false);
  await blob.reset();
  for (let at = 0; at < bytes.length; at += 700_000) await blob.write(bytes.subarray(at, at + 700_000));
  expect([blob.bytes, await store.has(sha256(bytes))]).toEqual([bytes.length, false]);
  expect(await blob.finish()).toEqual({ sha256: sha256(bytes), size: bytes.length });
  expect([Buffer.compare(await store.get(sha256(bytes)), bytes), await store.isIntact(sha256(bytes)), files().length]).toEqual([
    0,
    true,
    1,
  ]);
  await blob.abandon();
  const abandoned = store.receive(sha256(bytesOf("given up")));
  await abandoned.write(bytesOf("given"));
  await abandoned.abandon();
  const empty = store.receive(sha256(new Uint8Array(0)));
  expect(await empty.finish()).toEqual({ sha256: sha256(new Uint8Array(0)), size: 0 });
  expect(files()).toHaveLength(2);
});

test("a blob is read in pieces from any place on", async () => {
  const store = BlobStore.open(dir);
  const bytes = new Uint8Array(2_500_000).map((_, i) => i % 253);
  const ref = await store.put(bytes);
  for (const from of [0, 1, 1 << 20, bytes.length - 1, bytes.length]) {
    const blob = await store.open(ref.sha256, from);
    const pieces: Uint8Array[] = [];
    for await (const piece of blob?.pieces ?? []) pieces.push(piece);
    await blob?.close();
    expect([blob?.size, Buffer.compare(Buffer.concat(pieces), bytes.subarray(from))]).toEqual([bytes.length, 0]);
  }
  expect(await store.open(sha256(bytesOf("never stored")))).toBeUndefined();
});

test("hashes are told from any place on, and all of them, each once", async () => {
  const store = BlobStore.open(dir);
  const stored = await Promise.all(Array.from({ length: 60 }, (_, i) => store.put(bytesOf(`blob ${i}`))));
  const names = stored.map((ref) => toHex(ref.sha256)).sort();
  for (const first of [0, 1, 100, 255]) {
    const told = (await Array.fromAsync(store.hashes(new Uint8Array([first, 7])))).map(toHex);
    expect(told.toSorted()).toEqual(names);
    const expected = names.find((name) => Number.parseInt(name.slice(0, 2), 16) >= first) ?? names[0];
    expect(told[0]?.slice(0, 2)).toBe(expected?.slice(0, 2) as string);
  }
});

test("only what was neither put nor touched since then is removed, whatever happens at once", async () => {
  const store = BlobStore.open(dir);
  const { sha256: hash } = await store.put(bytesOf("old"));
  const longAgo = new Date(Date.now() - 60_000);
  const age = () => fs.utimesSync(files()[0] as string, longAgo, longAgo);
  const before = Date.now() - 30_000;
  // Whoever is first: a blob that was put is there, and one that a touch found stays.
  for (const renew of [() => store.put(bytesOf("old")), () => store.touch(hash)]) {
    for (const isFirst of [true, false]) {
      age();
      const works = [() => renew(), () => store.remove(hash, before)];
      const outcomes = await Promise.all((isFirst ? works : works.reverse()).map((work) => work()));
      expect(await store.has(hash)).toBe(!outcomes.includes(false as never));
      await store.put(bytesOf("old"));
    }
  }
  age();
  expect([await store.remove(hash, before), await store.has(hash), await store.remove(hash, before)]).toEqual([3, false, undefined]);
  expect([await store.touch(hash), (await Array.fromAsync(store.kept())).length]).toEqual([false, 0]);
});

test("leftovers of interrupted writes are cleared: disk use stays flat over a crash loop", async () => {
  await BlobStore.open(dir).put(bytesOf("kept"));
  for (let i = 0; i < 50; i++) {
    fs.writeFileSync(join(dir, "incoming", `${i}`), new Uint8Array(1000));
    BlobStore.open(dir);
    expect(files()).toHaveLength(1);
  }
});

test("no space is NO_SPACE, and nothing is left of the attempt", async () => {
  fs.mkdirSync(dir);
  const mounted = Bun.spawnSync(["mount", "-t", "tmpfs", "-o", "size=64k", "tmpfs", dir]);
  if (mounted.exitCode !== 0) return console.log(`skipped: no small disk to fill: ${mounted.stderr.toString().trim()}`);
  try {
    const store = BlobStore.open(dir);
    const error = await store.put(new Uint8Array(1 << 20)).catch((e: unknown) => e);
    expect([(error as HopError).reason, files()]).toEqual(["NO_SPACE", []]);
    await store.put(bytesOf("fits"));
    expect(files()).toHaveLength(1);
  } finally {
    Bun.spawnSync(["umount", dir]);
  }
});
