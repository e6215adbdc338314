/** A blob that is much larger than what a node may take of memory for it goes from node to node. */
import { expect, test } from "bun:test";
import { asNodeId } from "#core/base";
import { Town } from "../../node/cluster/blob-town-fixture.ts";

const MiB = 1 << 20;
const sizeMiB = 256;

/** The same block over and over, each time with its number: no two MiB are alike. */
function* blocks(): Generator<Uint8Array> {
  const block = new Uint8Array(MiB).map((_, i) => (i * 131) & 0xff);
  const view = new DataView(block.buffer);
  for (let i = 0; i < sizeMiB; i++) {
    view.setUint32(0, i);
    yield block;
  }
}

test("A blob of 256 MiB goes to another node, through a link that breaks, without being in memory", async () => {
  const hasher = new Bun.CryptoHasher("sha256");
  for (const block of blocks()) hasher.update(block);
  const sha256 = new Uint8Array(hasher.digest().buffer);
  using town = new Town(2, 1);
  const source = town.node(1);
  const incoming = source.store.receive(sha256);
  for (const block of blocks()) await incoming.write(block);
  await incoming.finish();
  Bun.gc(true);
  const before = process.memoryUsage().rss;
  let most = before;
  let cuts = 0;
  source.onServe = (served) => {
    // What is no more in use counts as free.
    if (served % (16 * MiB) === 0) Bun.gc(true);
    most = Math.max(most, process.memoryUsage().rss);
    if (cuts > 0 || served < (sizeMiB / 2) * MiB) return;
    cuts++;
    town.node(2).peer.net.setPeers(new Map());
    town.node(2).peer.meet(source.peer);
  };
  await source.blobs.sendTo(asNodeId(2), sha256);
  expect([cuts, await town.node(2).store.size(sha256), await town.node(2).store.isIntact(sha256)]).toEqual([1, sizeMiB * MiB, true]);
  // Both nodes are this process.
  expect((most - before) / MiB).toBeLessThan(128);
  expect(source.servedBytes).toBeLessThan((sizeMiB + 8) * MiB);
}, 180_000);
