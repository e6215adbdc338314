/** `shard compact` over the real road: client, cluster service, the leader's compactor, object storage. */
import { expect, test } from "bun:test";
import { existsSync, mkdtempSync, readdirSync, readFileSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { TestNode } from "../../node/node-fixture.ts";
import { until } from "../until.ts";

/** The newest manifest of shard 1. */
function newest(objects: string): { number: number; segments: unknown[] } {
  const cluster = readdirSync(objects).find((name) => name.startsWith("hop_")) ?? "none";
  const folder = join(objects, cluster, "manifest");
  const name = (existsSync(folder) ? readdirSync(folder) : [])
    .filter((each) => each.startsWith("s0000000001-"))
    .sort()
    .at(-1);
  return name === undefined ? { number: 0, segments: [] } : JSON.parse(readFileSync(join(folder, name), "utf8"));
}

async function historyOf(hop: TestNode, run: string): Promise<string> {
  const events: Uint8Array[] = [];
  for await (const chunk of hop.client().handle(run).history()) events.push(...chunk.event);
  return Buffer.concat(events).toString("hex");
}

async function compacted(hop: TestNode): Promise<string[]> {
  const texts: string[] = [];
  for await (const { text } of hop.client().cluster.compact(1)) texts.push(text);
  return texts;
}

test("segments are merged by the leader, and histories are what they were", async () => {
  const objects = mkdtempSync(join(tmpdir(), "hop-objects-"));
  try {
    const sealing = { bytesMax: 20_000, ageMsMax: 20, keptBytes: 0, lookMs: 10 };
    await using hop = await TestNode.start({ objectStore: `file://${objects}`, sealing });
    await hop.deploy();
    const run = await hop.client().start("hold", 1, { instance: "long" });
    for (let round = 1; round <= 4; round++) {
      const before = newest(objects).number;
      await run.signal("go", round, { id: `s${round}` });
      await until(() => newest(objects).number > before, { what: "that to be sealed", withinMs: 15_000 });
    }
    const before = await historyOf(hop, run.id);
    expect(newest(objects).segments.length).toBeGreaterThan(2);
    const texts = await compacted(hop);
    expect(texts.length).toBeGreaterThan(1);
    expect(texts.at(-1)).toMatch(/^\d+ segments of shard 1 became \d+$/);
    expect(newest(objects).segments.length).toBeLessThan(3);
    expect(await historyOf(hop, run.id)).toBe(before);
    expect((await compacted(hop)).at(-1)).toBe("Nothing of shard 1 is worth merging");
  } finally {
    rmSync(objects, { recursive: true, force: true });
  }
}, 60_000);

test("a node without object storage says that there is nothing to compact", async () => {
  await using hop = await TestNode.start();
  // Its shard is led by now.
  await hop.deploy();
  await hop.client().start("hold");
  await expect(compacted(hop)).rejects.toThrow("was started without --object-store, so nothing is sealed");
});
