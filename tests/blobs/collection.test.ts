/** What is collected, what never is, and who has to agree: stories, and a random one against a model. */
import { describe, expect, test } from "bun:test";
import { asIndex, Prng, toHex } from "#core/base";
import { bytesOf, graceMs, reasonOf } from "../../node/cluster/blob-town-fixture.ts";
import { CollectedTown, shard } from "./collected-town.ts";

describe("a pass", () => {
  test("removes what nobody named for the grace period from every node, and nothing sooner", async () => {
    using town = new CollectedTown(3);
    const { sha256 } = await town.node(1).blobs.put(bytesOf(1));
    expect(await town.collector.pass()).toBe(0);
    expect(await town.copies(sha256)).toBeGreaterThanOrEqual(2);
    await town.pass(graceMs);
    expect(await town.collector.pass()).toBe(1);
    expect(await town.copies(sha256)).toBe(0);
  });

  test("keeps what an event names, wherever its record is, and what is deployed", async () => {
    using town = new CollectedTown(3);
    const [logged, sealed, deployed, lost] = await Promise.all([2, 3, 4, 5].map((seed) => town.node(1).blobs.put(bytesOf(seed))));
    await town.append(sealed?.sha256 as Uint8Array, [2]);
    await town.seal(2);
    await town.append(logged?.sha256 as Uint8Array, [3]);
    town.deployed.push(deployed?.sha256 as Uint8Array);
    await town.pass(graceMs);
    expect(await town.collector.pass()).toBe(1);
    const copies = await Promise.all([logged, sealed, deployed, lost].map((ref) => town.copies(ref?.sha256 as Uint8Array)));
    expect(copies.map((count) => count > 0)).toEqual([true, true, true, false]);
  });

  test("removes nothing where a node does not answer, or its log can't be read", async () => {
    using town = new CollectedTown(3);
    const { sha256 } = await town.node(1).blobs.put(bytesOf(6));
    await town.pass(graceMs);
    town.node(3).peer.net.close();
    expect(await reasonOf(town.collector.pass())).toBe("STORE_UNAVAILABLE");
    expect(await town.copies(sha256)).toBeGreaterThanOrEqual(2);
    // Who was removed from the cluster has no say.
    town.standings[2] = "removed";
    expect(await town.collector.pass()).toBe(1);
  });

  test("removes nothing where object storage does not answer", async () => {
    using town = new CollectedTown(1);
    const { sha256 } = await town.node(1).blobs.put(bytesOf(7));
    await town.pass(graceMs);
    const head = town.objects.head.bind(town.objects);
    town.objects.head = () => Promise.reject(new Error("an outage"));
    expect(await town.collector.pass().catch((error: Error) => error.message)).toContain("an outage");
    expect(await town.copies(sha256)).toBe(1);
    town.objects.head = head;
    expect(await town.collector.pass()).toBe(1);
  });

  test("removes nothing where replicas moved meanwhile", async () => {
    using town = new CollectedTown(2);
    await town.node(1).blobs.put(bytesOf(8));
    await town.pass(graceMs);
    const log = town.log(2);
    const shards = log.shards.bind(log);
    log.shards = () => {
      town.mapEpoch++;
      return shards();
    };
    expect(await town.collector.pass().catch((error: Error) => error.message)).toContain("replicas moved");
  });

  test("removes nothing without object storage where a log was released", async () => {
    using town = new CollectedTown(1, { isStored: false });
    const { sha256 } = await town.node(1).blobs.put(bytesOf(9));
    await town.append(sha256, [1]);
    town.log(1).compact(shard, asIndex(1));
    town.log(1).release(shard, asIndex(1));
    await town.pass(graceMs);
    expect(await town.collector.pass().catch((error: Error) => error.message)).toContain("sealed history");
    expect(await town.copies(sha256)).toBe(1);
  });

  test("an old blob that is claimed while a pass is under way stays where it was claimed", async () => {
    using town = new CollectedTown(3);
    const { sha256 } = await town.node(1).blobs.put(bytesOf(10));
    await town.pass(graceMs);
    // Behind the question which blobs are named, and before the removal.
    const head = town.objects.head.bind(town.objects);
    town.objects.head = async (key, options) => {
      await town.node(2).blobs.claim(sha256);
      return head(key, options);
    };
    await town.collector.pass();
    expect(await town.copies(sha256)).toBeGreaterThanOrEqual(2);
    await town.append(sha256, [2, 3]);
    await town.pass(graceMs);
    town.objects.head = head;
    expect(await town.collector.pass()).toBe(0);
    expect(await town.node(3).blobs.get(sha256)).toEqual(bytesOf(10));
  });
});

/** Contents that clients choose from, so that abandoned ones come back. */
const contents = Array.from({ length: 12 }, (_, i) => bytesOf(100 + i, 400 + i));

/** Clients store or claim a blob, hesitate, and let an event name it or give up; nodes seal; passes run all the while. */
async function randomStory(seed: number): Promise<{ named: number; removed: number; refused: number }> {
  const prng = new Prng(seed);
  const draw = (below: number) => prng.below(below);
  using town = new CollectedTown(3);
  const named = new Map<string, Uint8Array>();
  let [removed, refused] = [0, 0];
  const hesitate = async () => {
    for (let i = draw(6); i > 0; i--) await new Promise((resolve) => setImmediate(resolve));
  };
  const client = async (): Promise<void> => {
    const { blobs } = town.node(1 + draw(3));
    const data = contents[draw(contents.length)] as Uint8Array;
    const sha256 = Bun.SHA256.hash(data) as Uint8Array;
    const isAbandoned = draw(3) === 0;
    await hesitate();
    if (draw(2) === 0) await blobs.put(data);
    else if ((await blobs.claim(sha256)) === undefined) {
      refused++;
      return;
    }
    await hesitate();
    if (isAbandoned) return;
    const first = draw(3);
    await town.append(sha256, [1 + first, 1 + ((first + 1) % 3)]);
    named.set(toHex(sha256), data);
  };
  for (let round = 0; round < 6; round++) {
    await town.pass(draw(2) === 0 ? graceMs : graceMs / 3);
    const collecting = (async () => {
      await hesitate();
      removed += await town.collector.pass();
    })();
    const sealing = draw(3) === 0 ? town.seal(1 + draw(3)) : undefined;
    await Promise.all([collecting, sealing, ...Array.from({ length: 4 }, client)]);
    for (const [name, data] of named) {
      const sha256 = Bun.SHA256.hash(data) as Uint8Array;
      const copies = await town.copies(sha256);
      if (copies < 2 && !town.isStored(sha256)) throw new Error(`Seed ${seed}, round ${round}: ${copies} copies are left of ${name}`);
      expect(Buffer.compare(await town.node(1 + draw(3)).blobs.get(sha256), data)).toBe(0);
    }
  }
  // What is not named goes in the end, and nothing else.
  await town.pass(graceMs);
  removed += await town.collector.pass();
  for (const data of contents) {
    const sha256 = Bun.SHA256.hash(data) as Uint8Array;
    expect((await town.copies(sha256)) > 0 || town.isStored(sha256)).toBe(named.has(toHex(sha256)));
  }
  return { named: named.size, removed, refused };
}

test("collection never takes a blob that an event names, whatever happens at the same time", async () => {
  let [named, removed, refused] = [0, 0, 0];
  for (let seed = 1; seed <= 12; seed++) {
    const story = await randomStory(seed);
    named += story.named;
    removed += story.removed;
    refused += story.refused;
  }
  expect(Math.min(named, removed, refused)).toBeGreaterThan(10);
}, 120_000);
