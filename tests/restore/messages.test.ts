/** Runs of two shards that signal each other and wait for each other, restored to different moments. */
import { afterAll, beforeAll, expect, test } from "bun:test";
import { cpSync, mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { keyMax, type Partition } from "#core/base";
import { keyOf } from "../../node/cluster/shard-map.ts";
import { dropManifests, manifestsIn, SealingNodes } from "./restore-fixture.ts";

let folder: string;
let objects: string;
/** Newest manifests of both shards before the runs told each other something, and behind it. */
let before: Record<number, number>;

/** A name for a run that a split in the middle leaves to shard 1, or gives to shard 2. */
function nameIn(shard: 1 | 2, beginning: string): string {
  for (let i = 0; ; i++) {
    const isLeft = keyOf(`run/default:${beginning}${i}` as Partition) < (keyMax + 1) / 2;
    if (isLeft === (shard === 1)) return `${beginning}${i}`;
  }
}

const teller = nameIn(1, "teller");
const asker = nameIn(1, "asker");
const box = nameIn(2, "box");
const mother = nameIn(1, "mother");
const child = nameIn(2, "child");
const caller = nameIn(1, "caller");
const called = nameIn(2, "called");

beforeAll(async () => {
  folder = mkdtempSync(join(tmpdir(), "hop-restore-"));
  objects = join(folder, "objects");
  const old = new SealingNodes(1, objects);
  try {
    await old.nodes.form(1);
    await old.deploy();
    await old.worker();
    await old.nodes.ok(["shard", "split", "1"]);
    const shards = await old.nodes.shards();
    expect(shards).toHaveLength(2);
    await old.begin("collects", box, 5);
    await old.begin("tells", teller, `default:${box}`);
    await old.begin("bears", mother, child);
    await old.begin("answers", called, null);
    await old.begin("calls", caller, `default:${called}`);
    await old.sealedUp([box, teller, mother, called, caller]);
    before = Object.fromEntries([...manifestsIn(objects)].map(([shard, { number }]) => [shard, number]));
    await old.begin("asks", asker, `default:${box}`);
    await old.signal(teller, "go");
    expect(await old.result(teller)).toBe("told");
    await old.signal(mother, "go");
    expect(await old.result(mother)).toBe("Hello, CHILD!");
    await old.signal(called, "42");
    expect(await old.result(caller)).toBe("answer 42");
    await old.sealedUp([box, teller, asker, mother, child, called, caller]);
    await old.kill();
  } finally {
    await old.nodes[Symbol.asyncDispose]();
  }
}, 120_000);

afterAll(() => rmSync(folder, { recursive: true, force: true }));

/** Rebuilt from a copy in which one shard is as it was before. */
async function rebuilt(earlier: 1 | 2, look: (nodes: SealingNodes, told: string) => Promise<void>): Promise<void> {
  const place = join(folder, `earlier-${earlier}`);
  cpSync(objects, place, { recursive: true });
  dropManifests(place, { [earlier]: before[earlier] as number });
  const machine = new SealingNodes(1, place);
  try {
    await machine.nodes.start();
    const { code, stderr } = await machine.nodes.run(["cluster", "restore"]);
    expect([code, stderr]).toEqual([0, expect.stringContaining("Shard 2: ")]);
    await machine.worker();
    await look(machine, stderr);
  } finally {
    await machine.nodes[Symbol.asyncDispose]();
  }
}

test("a receiver of before it had the messages takes them again, and answers who waits for it", async () => {
  await rebuilt(2, async (nodes, told) => {
    expect(told).toContain("Messages between runs: 3 messages were taken again");
    expect(told).toContain("Messages between runs: 1 waits for results were asked again");
    expect(told).not.toContain("lost:");
    for (const item of ["c", "d", "e"]) await nodes.signal(box, item);
    expect(await nodes.result(box)).toEqual(["a", "b", "c", "d", "e"]);
    expect(await nodes.result(asker)).toEqual(["a", "b", "c", "d", "e"]);
    // Its mother has ended with what it returned; it runs again, on the code that is newest.
    expect(await nodes.result(child)).toBe("Hello, CHILD!");
  });
}, 90_000);

test("what a sender of before it sent sends again is new to whoever has it from before", async () => {
  await rebuilt(1, async (nodes, told) => {
    expect(told).toContain("Messages between runs: 4 were taken of runs that were uploaded before they sent them");
    await nodes.signal(teller, "go");
    expect(await nodes.result(teller)).toBe("told");
    await nodes.signal(box, "e");
    expect(await nodes.result(box)).toEqual(["a", "b", "a", "b", "e"]);
    // A call is not made twice.
    expect(await nodes.result(caller)).toContain(`The answer of method "ask" of default:${called} was lost by a restore`);
  });
}, 90_000);
