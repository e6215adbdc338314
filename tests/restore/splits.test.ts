/**
 * Shards are uploaded one after the other: what is there may be of before a split in one and of behind it
 * in another. Whatever it is, every key has one owner, and every history that is there is whole.
 */
import { afterAll, beforeAll, expect, test } from "bun:test";
import { cpSync, mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { keyMax } from "#core/base";
import { dropManifests, manifestsIn, SealingNodes } from "./restore-fixture.ts";

const named = (letter: string) => Array.from({ length: 10 }, (_, i) => `${letter}${i}`);
const [first, second, third] = [named("r"), named("s"), named("t")];

let folder: string;
let objects: string;
let old: SealingNodes;
let roots: Map<string, string>;
let all: string[];
/** Shard 1's newest manifest behind the first and behind the second runs. */
const numbers: number[] = [];

beforeAll(async () => {
  folder = mkdtempSync(join(tmpdir(), "hop-restore-"));
  objects = join(folder, "objects");
  old = new SealingNodes(1, objects);
  await old.nodes.form(1);
  await old.deploy();
  await old.worker();
  for (const part of [first, second, third]) {
    if (part === third) await old.nodes.ok(["shard", "split", "1"]);
    await Promise.all(part.map((name) => old.greet(name)));
    await old.sealedUp(part);
    numbers.push(manifestsIn(objects).get(1)?.number ?? 0);
  }
  // A parent's states have all keys until its child's are uploaded: what is sealed behind that narrows them.
  while (manifestsIn(objects).get(1)?.checkpoint?.range[1] === keyMax) {
    third.push(`t${third.length}`);
    await old.greet(third.at(-1) as string);
    await old.sealedUp(third.slice(-1));
  }
  all = [...first, ...second, ...third];
  roots = await old.roots(all);
  await old.kill();
}, 180_000);

afterAll(async () => {
  await old?.nodes[Symbol.asyncDispose]();
  rmSync(folder, { recursive: true, force: true });
});

interface Rebuilt {
  readonly told: string;
  /** Roots of the runs that are there. */
  readonly roots: Map<string, string>;
  readonly shards: number;
}

/** Rebuilds it from a copy without the shards' manifests above these numbers, and looks at what is there. */
async function rebuilt(name: string, kept: Readonly<Record<number, number>>): Promise<Rebuilt> {
  const place = join(folder, name);
  cpSync(objects, place, { recursive: true });
  dropManifests(place, kept);
  const machine = new SealingNodes(1, place);
  try {
    await machine.nodes.start();
    const { code, stderr } = await machine.nodes.run(["cluster", "restore"]);
    expect([code, stderr]).toEqual([0, expect.stringContaining("Shard 1: ")]);
    const runs = await machine.nodes.json<{ run: string }[]>(["workflow", "list", "--limit", "100"]);
    const there = runs.map(({ run }) => run.replace("default:", "")).sort();
    await machine.worker();
    for (const each of ["new1", "new2", "new3", "new4"]) expect(await machine.greet(each)).toContain(`Hello, ${each.toUpperCase()}!`);
    const shards = await machine.nodes.shards();
    return { told: stderr, roots: await machine.roots(there), shards: shards.length };
  } finally {
    await machine.nodes[Symbol.asyncDispose]();
  }
}

const rootsOf = (names: readonly string[]) => new Map([...names].sort().map((name) => [name, roots.get(name) as string]));

test("all of it: both shards go on", async () => {
  const got = await rebuilt("whole", {});
  expect([got.shards, got.roots]).toEqual([2, rootsOf(all)]);
}, 90_000);

test("a parent of right before the split: the child has the newer part, and the parent what is left", async () => {
  const got = await rebuilt("parent-before", { 1: numbers[1] as number });
  const newer = third.filter((name) => got.roots.has(name));
  expect(newer.length).toBeGreaterThan(0);
  expect(newer.length).toBeLessThan(third.length);
  expect([got.shards, got.roots]).toEqual([2, rootsOf([...first, ...second, ...newer])]);
}, 90_000);

test("a child whose histories go on from what its parent had not uploaded is left out, and the split undone", async () => {
  const got = await rebuilt("parent-long-before", { 1: numbers[0] as number });
  expect(got.told).toMatch(/Shard 2: histories go on from record \d+ of shard 1, which is uploaded through \d+: .* is left out/);
  expect([got.shards, got.roots]).toEqual([1, rootsOf(first)]);
}, 90_000);

test("a parent of before the split alone has all keys", async () => {
  const got = await rebuilt("no-child", { 1: numbers[1] as number, 2: 0 });
  expect([got.shards, got.roots]).toEqual([1, rootsOf([...first, ...second])]);
}, 90_000);

test("keys of which nothing is there belong to an empty shard, and that is said", async () => {
  const got = await rebuilt("child-gone", { 2: 0 });
  expect(got.told).toMatch(/Shard 3: keys .*, of which nothing was ever uploaded: it begins empty/);
  expect(got.roots.size).toBeLessThan(all.length);
  expect([got.shards, got.roots]).toEqual([2, rootsOf([...got.roots.keys()])]);
}, 90_000);
