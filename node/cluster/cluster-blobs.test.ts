/** Blobs of several nodes, each with a store of its own on disk, over real links. */
import { describe, expect, test } from "bun:test";
import fs from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { asNodeId, type HopError, toHex } from "#core/base";
import { BlobStore } from "#store";
import { until } from "../../tests/until.ts";
import { TestPeer } from "../peer/peer-fixture.ts";
import { realTiming } from "../timing.ts";
import { BlobKeeper } from "./blob-keeper.ts";
import { type BlobNodes, ClusterBlobs, homesOf } from "./cluster-blobs.ts";

const bytesOf = (seed: number, size = 1000) => new Uint8Array(size).map((_, i) => (i * 31 + seed) & 0xff);

class BlobNode {
  readonly peer: TestPeer;
  readonly store: BlobStore;
  readonly blobs: ClusterBlobs;
  readonly nodes: BlobNodes;
  readonly dir: string;

  constructor(id: number, town: Town) {
    this.peer = new TestPeer(id);
    this.dir = fs.mkdtempSync(join(tmpdir(), "hop-blobs-"));
    this.store = BlobStore.open(this.dir);
    this.nodes = { self: asNodeId(id), members: () => town.members.map(asNodeId), replicas: () => town.replicas, isHeard: () => true };
    this.blobs = new ClusterBlobs({ local: this.store, net: this.peer.net, nodes: this.nodes });
  }
}

class Town implements Disposable {
  replicas: number;
  members: number[];
  readonly nodes: BlobNode[];

  constructor(count: number, replicas: number) {
    this.replicas = replicas;
    this.members = Array.from({ length: count }, (_, i) => i + 1);
    this.nodes = this.members.map((id) => new BlobNode(id, this));
    for (const { peer } of this.nodes) peer.meet(...this.nodes.map((each) => each.peer).filter((each) => each !== peer));
  }

  node(id: number): BlobNode {
    return this.nodes[id - 1] as BlobNode;
  }

  async copies(sha256: Uint8Array): Promise<number[]> {
    const has = await Promise.all(this.nodes.map(({ store }) => store.has(sha256)));
    return this.members.filter((_, i) => has[i]);
  }

  [Symbol.dispose](): void {
    for (const { peer, dir } of this.nodes) {
      peer.net.close();
      fs.rmSync(dir, { recursive: true, force: true });
    }
  }
}

async function reasonOf(promise: Promise<unknown>): Promise<string> {
  return promise.then(
    () => "fine",
    (error: unknown) => (error as HopError).reason,
  );
}

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
    const name = toHex(sha256);
    const path = join(town.node(2).dir, name.slice(0, 2), name.slice(2, 4), name);
    fs.writeFileSync(path, "rot");
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
    for (const each of got) expect(each).toBe(got[0] as Uint8Array);
    expect(got[0]).toEqual(data);
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
    const name = toHex(sha256);
    fs.writeFileSync(join(town.node(1).dir, name.slice(0, 2), name.slice(2, 4), name), "rot");
    expect(await town.node(1).blobs.get(sha256)).toEqual(data);
    expect(await town.node(1).store.find(sha256)).toEqual(data);
    town.node(2).peer.net.close();
    fs.writeFileSync(join(town.node(1).dir, name.slice(0, 2), name.slice(2, 4), name), "rot");
    expect(await reasonOf(town.node(1).blobs.get(sha256))).toBe("HASH_MISMATCH");
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
