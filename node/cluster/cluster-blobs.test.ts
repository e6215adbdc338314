/** Blobs of several nodes, each with a store of its own on disk, over real links. */
import { describe, expect, test } from "bun:test";
import fs from "node:fs";
import { asNodeId, HopError } from "#core/base";
import { blobKey, MemoryBucket, MemoryObjectStore } from "#store";
import { until } from "../../tests/until.ts";
import { realTiming } from "../timing.ts";
import { BlobKeeper } from "./blob-keeper.ts";
import { BlobObjects } from "./blob-objects.ts";
import { type BlobNode, bytesOf, graceMs, reasonOf, Town } from "./blob-town-fixture.ts";
import { homesOf } from "./cluster-blobs.ts";

describe("put()", () => {
  test("resolves with a majority of copies, large blobs and empty ones too", async () => {
    using town = new Town(5, 5);
    for (const size of [0, 1, 1000, 1 << 20, (1 << 20) + 1, 5_000_000]) {
      const { sha256 } = await town.node(2).blobs.put(bytesOf(size, size));
      const copies = await town.copies(sha256);
      expect(copies.length).toBeGreaterThanOrEqual(3);
      expect(copies).toContain(2);
      expect(await town.node(4).blobs.get(sha256)).toEqual(bytesOf(size, size));
    }
  });

  test("stays on this node where there is one replica", async () => {
    using town = new Town(2, 1);
    const { sha256 } = await town.node(1).blobs.put(bytesOf(1));
    expect(await town.copies(sha256)).toEqual([1]);
  });

  test("goes past a node that is down, and is refused where too few are left", async () => {
    using town = new Town(3, 3);
    town.node(2).peer.net.close();
    const { sha256 } = await town.node(1).blobs.put(bytesOf(2));
    expect(await town.copies(sha256)).toEqual([1, 3]);
    town.node(3).peer.net.close();
    expect(await reasonOf(town.node(1).blobs.put(bytesOf(3)))).toBe("STORE_UNAVAILABLE");
  });

  test("a copy that is damaged where it lies is put anew", async () => {
    using town = new Town(2, 3);
    const data = bytesOf(4);
    const { sha256 } = await town.node(2).store.put(data);
    fs.writeFileSync(town.node(2).pathOf(sha256), "rot");
    await town.node(1).blobs.put(data);
    expect(await town.node(2).store.find(sha256)).toEqual(data);
  });
});

describe("get()", () => {
  test("fetches what another node has, once for many readers, and keeps it", async () => {
    using town = new Town(3, 3);
    const data = bytesOf(5, 300_000);
    const { sha256 } = await town.node(3).store.put(data);
    const got = await Promise.all(Array.from({ length: 20 }, () => town.node(1).blobs.get(sha256)));
    for (const each of got) expect(Buffer.compare(each, data)).toBe(0);
    expect(town.node(3).servedBytes).toBe(data.length);
    expect(await town.node(2).blobs.size(sha256)).toBe(data.length);
    expect(await town.copies(sha256)).toEqual([1, 3]);
    town.node(3).peer.net.close();
    expect(await town.node(1).blobs.get(sha256)).toEqual(data);
  });

  test("a blob is missing only when every node said so", async () => {
    using town = new Town(3, 3);
    const unknown = new Uint8Array(32).fill(9);
    const { blobs } = town.node(1);
    expect(await reasonOf(blobs.get(unknown))).toBe("BLOB_NOT_FOUND");
    expect(await blobs.size(unknown)).toBeUndefined();
    town.node(3).peer.net.close();
    expect(await reasonOf(blobs.get(unknown))).toBe("STORE_UNAVAILABLE");
    expect(await reasonOf(blobs.size(unknown))).toBe("STORE_UNAVAILABLE");
    const { sha256 } = await town.node(2).store.put(bytesOf(6));
    expect(await blobs.get(sha256)).toEqual(bytesOf(6));
  });

  test("damage on this node is read around and repaired from another", async () => {
    using town = new Town(2, 3);
    const data = bytesOf(7);
    const { sha256 } = await town.node(1).blobs.put(data);
    fs.writeFileSync(town.node(1).pathOf(sha256), "rot");
    expect(await town.node(1).blobs.get(sha256)).toEqual(data);
    expect(await town.node(1).store.find(sha256)).toEqual(data);
    town.node(2).peer.net.close();
    fs.writeFileSync(town.node(1).pathOf(sha256), "rot");
    expect(await reasonOf(town.node(1).blobs.get(sha256))).toBe("HASH_MISMATCH");
  });
});

describe("a transfer", () => {
  const MiB = 1 << 20;

  test("goes on from where the link broke, and does not begin anew", async () => {
    using town = new Town(2, 1);
    const data = bytesOf(8, 9 * MiB + 5);
    const { sha256 } = await town.node(2).store.put(data);
    let cuts = 0;
    town.node(2).onServe = (served) => {
      if (cuts === 0 && served >= 5 * MiB) {
        cuts++;
        // Node 1 is told to dial again: what is under way is lost with the link.
        town.node(1).peer.net.setPeers(new Map());
        town.node(1).peer.meet(town.node(2).peer);
      }
    };
    expect(Buffer.compare(await town.node(1).blobs.get(sha256), data)).toBe(0);
    expect(cuts).toBe(1);
    // What a window holds may have been lost with the link, and not all that came before.
    expect(town.node(2).servedBytes).toBeGreaterThanOrEqual(data.length);
    expect(town.node(2).servedBytes).toBeLessThan(data.length + 4 * MiB);
  });

  test("goes on from another node where the first one dies", async () => {
    using town = new Town(3, 1);
    const data = bytesOf(9, 8 * MiB);
    const { sha256 } = await town.node(2).store.put(data);
    await town.node(3).store.put(data);
    const [first, second] = homesOf(sha256, [2, 3].map(asNodeId)).map((id) => town.node(id)) as [BlobNode, BlobNode];
    first.onServe = (served) => {
      if (served >= 4 * MiB) first.peer.net.close();
    };
    expect(Buffer.compare(await town.node(1).blobs.get(sha256), data)).toBe(0);
    expect(second.servedBytes).toBeGreaterThan(0);
    expect(second.servedBytes).toBeLessThan(data.length);
    expect(await town.node(1).store.isIntact(sha256)).toBe(true);
  });

  test("of a blob that is damaged where it is read is made from another node", async () => {
    using town = new Town(3, 1);
    const data = bytesOf(10, 3 * MiB);
    const { sha256 } = await town.node(2).store.put(data);
    await town.node(3).store.put(data);
    const [first] = homesOf(sha256, [2, 3].map(asNodeId)).map((id) => town.node(id)) as [BlobNode];
    fs.writeFileSync(first.pathOf(sha256), data.with(7, 99));
    expect(Buffer.compare(await town.node(1).blobs.get(sha256), data)).toBe(0);
  });
});

describe("object storage", () => {
  const cluster = "hop_0000000000000001";
  const stocked = async (...blobs: Uint8Array[]) => {
    const objects = new MemoryObjectStore(new MemoryBucket());
    for (const data of blobs) await objects.put(blobKey(cluster, Bun.SHA256.hash(data) as Uint8Array), data);
    return objects;
  };

  test("gives what no node has any more, which is kept from then on", async () => {
    const data = bytesOf(11, 300_000);
    const sha256 = Bun.SHA256.hash(data) as Uint8Array;
    const objects = await stocked(data);
    using town = new Town(3, 3, new BlobObjects(objects, cluster));
    expect(await town.node(1).blobs.size(sha256)).toBe(data.length);
    expect(await town.node(1).blobs.get(sha256)).toEqual(data);
    expect(await town.copies(sha256)).toEqual([1]);
    await objects.delete([blobKey(cluster, sha256)]);
    expect(await town.node(2).blobs.get(sha256)).toEqual(data);
  });

  test("is asked before nodes that are silent, and nothing waits for them", async () => {
    const data = bytesOf(12);
    using town = new Town(3, 3, new BlobObjects(await stocked(data), cluster));
    for (const id of [2, 3]) {
      town.node(1).unheard.add(id);
      town.node(id).peer.net.close();
    }
    expect(await town.node(1).blobs.get(Bun.SHA256.hash(data) as Uint8Array)).toEqual(data);
  });

  test("makes a blob missing only when it says so itself, and every node too", async () => {
    const objects = await stocked();
    let isOut = true;
    const objectsOf = new BlobObjects(objects, cluster);
    const outage = () => new HopError("STORE_UNAVAILABLE", "The server does not answer");
    const stored = {
      size: (sha256: Uint8Array) => (isOut ? Promise.reject(outage()) : objectsOf.size(sha256)),
      download: (sha256: Uint8Array, take: (bytes: Uint8Array) => void) =>
        isOut ? Promise.reject(outage()) : objectsOf.download(sha256, take),
    };
    using town = new Town(3, 3, stored);
    const unknown = new Uint8Array(32).fill(9);
    const { blobs } = town.node(1);
    expect([await reasonOf(blobs.get(unknown)), await reasonOf(blobs.size(unknown)), await reasonOf(blobs.claim(unknown))]).toEqual([
      "STORE_UNAVAILABLE",
      "STORE_UNAVAILABLE",
      "STORE_UNAVAILABLE",
    ]);
    isOut = false;
    expect([await reasonOf(blobs.get(unknown)), await blobs.size(unknown), await blobs.claim(unknown)]).toEqual([
      "BLOB_NOT_FOUND",
      undefined,
      undefined,
    ]);
    town.node(3).peer.net.close();
    expect([await reasonOf(blobs.get(unknown)), await reasonOf(blobs.claim(unknown))]).toEqual(["STORE_UNAVAILABLE", "STORE_UNAVAILABLE"]);
  });

  test("with other bytes under a blob's name gives nothing, and nothing is kept of them", async () => {
    const objects = await stocked();
    const sha256 = Bun.SHA256.hash(bytesOf(13)) as Uint8Array;
    await objects.put(blobKey(cluster, sha256), bytesOf(14));
    using town = new Town(1, 1, new BlobObjects(objects, cluster));
    expect(await reasonOf(town.node(1).blobs.get(sha256))).toBe("STORE_UNAVAILABLE");
    expect(await town.copies(sha256)).toEqual([]);
  });

  test("repairs damage on a node that is alone", async () => {
    const data = bytesOf(15);
    using town = new Town(1, 1, new BlobObjects(await stocked(data), cluster));
    const { sha256 } = await town.node(1).blobs.put(data);
    fs.writeFileSync(town.node(1).pathOf(sha256), "rot");
    expect(await town.node(1).blobs.get(sha256)).toEqual(data);
  });
});

describe("claim()", () => {
  const isNew = async (node: BlobNode, sha256: Uint8Array) => Date.now() - fs.statSync(node.pathOf(sha256)).mtimeMs < graceMs / 2;

  test("makes an old blob new on a majority, and is free until half of the grace period is over", async () => {
    using town = new Town(3, 3);
    const { sha256, size } = await town.node(2).store.put(bytesOf(16));
    await town.node(2).age(graceMs);
    expect(await town.node(1).blobs.claim(sha256)).toBe(size);
    const copies = await town.copies(sha256);
    expect(copies.length).toBeGreaterThanOrEqual(2);
    const isNewAt = await Promise.all(copies.map((id) => isNew(town.node(id), sha256)));
    expect(isNewAt.filter(Boolean).length).toBeGreaterThanOrEqual(2);
    for (const id of copies) await town.node(id).age(graceMs);
    expect(await town.node(1).blobs.claim(sha256)).toBe(size);
    expect(await isNew(town.node(1), sha256)).toBe(false);
    town.passedMs += graceMs / 2;
    expect(await town.node(1).blobs.claim(sha256)).toBe(size);
    expect(await isNew(town.node(1), sha256)).toBe(true);
  });

  test("is refused where too few nodes can keep the blob", async () => {
    using town = new Town(3, 3);
    const { sha256 } = await town.node(1).store.put(bytesOf(17));
    for (const id of [2, 3]) town.node(id).peer.net.close();
    expect(await reasonOf(town.node(1).blobs.claim(sha256))).toBe("STORE_UNAVAILABLE");
  });
});

describe("homes", () => {
  test("a node that goes moves nothing between the others", () => {
    const all = [1, 2, 3, 4, 5].map(asNodeId);
    const counts = new Map<number, number>();
    for (let i = 0; i < 500; i++) {
      const sha256 = Bun.SHA256.hash(String(i)) as Uint8Array;
      const homes = homesOf(sha256, all);
      expect([...homes].sort((a, b) => a - b)).toEqual(all);
      expect(homesOf(sha256, all.slice(1))).toEqual(homes.filter((node) => node !== 1));
      for (const home of homes.slice(0, 3)) counts.set(home, (counts.get(home) ?? 0) + 1);
    }
    for (const node of all) expect(counts.get(node)).toBeGreaterThan(200);
  });

  test("a cluster that grows has its old blobs on every home", async () => {
    using town = new Town(3, 1);
    town.members = [1];
    const keeperOf = ({ blobs, nodes, store }: BlobNode) =>
      new BlobKeeper({ blobs, nodes, timing: realTiming, stored: () => store.hashes(), note: () => {} });
    const stored = await Promise.all(Array.from({ length: 20 }, (_, i) => town.node(1).blobs.put(bytesOf(i))));
    const keeper = keeperOf(town.node(1));
    town.members = [1, 2, 3];
    town.replicas = 3;
    keeper.onMembers();
    await until(async () => (await Promise.all(stored.map(({ sha256 }) => town.copies(sha256)))).every(({ length }) => length === 3));
    keeper.close();
  });
});
