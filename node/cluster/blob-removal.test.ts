/** A node's part in collecting blobs, asked over a link to itself. */
import { expect, test } from "bun:test";
import { asIndex, asNodeId, asShardId, asTerm, toHex } from "#core/base";
import { decodeBlobHashes, decodeOldBlobs, encodeBlobHashes, encodeBlobRequest, encodePayload, fromBytes, toBytes } from "#proto";
import { MemoryLogStore } from "#store";
import { until } from "../../tests/until.ts";
import { namedBy } from "./blob-names.ts";
import { BlobRemoval, removalCalls } from "./blob-removal.ts";
import { bytesOf, Town } from "./blob-town-fixture.ts";

const hourMs = 3_600_000;

class Clocked implements Disposable {
  readonly town = new Town(1, 1);
  readonly log = new MemoryLogStore();
  /** What passed, and what the wall clock was set by besides. */
  passedMs = 0;
  setMs = 0;

  constructor() {
    const { peer, store } = this.town.node(1);
    const timing = { monotonicMs: () => this.passedMs, wallMs: () => Date.now() + this.passedMs + this.setMs };
    new BlobRemoval({ net: peer.net, store, log: this.log, timing, graceMs: hourMs });
  }

  async old(): Promise<number> {
    return fromBytes(decodeOldBlobs, await this.call(removalCalls.old, toBytes(encodeBlobRequest, { sha256: new Uint8Array(2) }))).sha256
      .length;
  }

  async forget(sha256: Uint8Array): Promise<number> {
    return fromBytes(decodeBlobHashes, await this.call(removalCalls.forget, toBytes(encodeBlobHashes, { sha256: [sha256] }))).sha256.length;
  }

  private call(call: string, body: Uint8Array): Promise<Uint8Array> {
    return this.town.node(1).peer.net.call(asNodeId(1), call, body);
  }

  [Symbol.dispose](): void {
    this.town[Symbol.dispose]();
  }
}

test("a blob is old when the grace period is over, and is not removed before", async () => {
  using node = new Clocked();
  const { sha256 } = await node.town.node(1).store.put(bytesOf(1));
  node.passedMs = hourMs - 60_000;
  expect([await node.old(), await node.forget(sha256)]).toEqual([0, 0]);
  node.passedMs = hourMs + 60_000;
  expect([await node.old(), await node.forget(sha256), await node.old()]).toEqual([1, 1, 0]);
});

test("a node that has just begun has no old blobs, and neither has one whose clock was set", async () => {
  using node = new Clocked();
  await node.town.node(1).store.put(bytesOf(2));
  await node.town.node(1).age(hourMs);
  expect(await node.old()).toBe(0);
  node.passedMs = 601_000;
  expect(await node.old()).toBe(1);
  node.setMs = 25 * hourMs;
  expect(await node.old()).toBe(0);
  node.passedMs += 601_000;
  expect(await node.old()).toBe(1);
});

test("namedBy() finds a hash at any place of any record, and no other", async () => {
  const log = new MemoryLogStore();
  const hashes = Array.from({ length: 50 }, (_, i) => Bun.SHA256.hash(String(i)) as Uint8Array);
  const named = hashes.filter((_, i) => i % 7 === 0);
  for (const [i, sha256] of named.entries()) {
    // Any message that has it in a field, behind any number of spaces, which look like the length of a hash.
    const data = new Uint8Array([...new TextEncoder().encode(" ".repeat(i * 5)), ...toBytes(encodePayload, { ref: { sha256, size: 1 } })]);
    const shard = asShardId(i % 3);
    log.append(shard, [{ index: asIndex(log.lastIndex(shard) + 1), term: asTerm(1), kind: "data", data }]);
  }
  log.kick(true);
  await until(() => log.shards().every((shard) => log.durableIndex(shard) === log.lastIndex(shard)));
  expect([...(await namedBy(log, new Set(hashes.map(toHex))))].sort()).toEqual(named.map(toHex).sort());
});
