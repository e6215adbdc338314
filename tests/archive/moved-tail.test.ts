/** A replica on its way to another node: what is sealed stays where it is. */
import { expect, test } from "bun:test";
import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { asIndex, asShardId, asTerm, type Index, type ShardId, wholeRange } from "#core/base";
import { type Message, MessageKind, noConf } from "#core/raft";
import { bornHeader, encodeHeader } from "#core/shard";
import { encodeConfState, toBytes } from "#proto";
import { CheckpointStore, MemoryLogStore, ReleasedError } from "#store";
import { node, TestPeer } from "../../node/peer/peer-fixture.ts";
import type { KnownSealed, SnapshotStores } from "../../node/replica/snapshot.ts";
import { type Fetching, fetchSnapshot, serveSnapshots } from "../../node/replica/snapshot-road.ts";
import { event, RecordWriter } from "../../store/event-fixture.ts";
import { bunHasher } from "../hashers.ts";
import { until } from "../until.ts";

const shard = asShardId(7);
const ancestor = asShardId(3);
/** Behind what is sealed. */
const tail = 10;

class Stores implements SnapshotStores, Disposable {
  readonly log = new MemoryLogStore();
  readonly hasher = bunHasher;
  readonly checkpoint: CheckpointStore;
  readonly sealed: KnownSealed;
  private readonly folder = mkdtempSync(join(tmpdir(), "hop-moved-"));

  constructor(known: ReadonlyMap<ShardId, number> = new Map()) {
    this.sealed = { sealedThrough: (each) => known.get(each) ?? 0 };
    this.checkpoint = CheckpointStore.open({
      path: join(this.folder, "checkpoint.db"),
      logId: "a",
      warn: () => {},
      durableIndex: () => asIndex(1e9),
      isRemoved: () => false,
    });
  }

  [Symbol.dispose](): void {
    this.checkpoint.close();
    rmSync(this.folder, { recursive: true });
  }
}

/** Both logs have so many records, of which the last ten are not sealed. */
async function source(records: number): Promise<Stores> {
  const stores = new Stores(new Map([[ancestor, records - tail]]));
  const { log, checkpoint } = stores;
  const writers = [ancestor, shard].map((each) => new RecordWriter(log, each));
  for (let i = 0; i < records; i++) for (const [at, writer] of writers.entries()) writer.record(event.signal(`run/a:${at}`, 200));
  await writers[1]?.settle();
  const born = bornHeader({ range: wholeRange, ancestors: [ancestor], clockMs: 0 });
  const header = encodeHeader({ ...born, sealedThrough: records - tail, manifest: 1, manifestSha256: new Uint8Array(32) });
  const conf = toBytes(encodeConfState, noConf);
  checkpoint.save([], { shard, appliedIndex: asIndex(records), clockMs: 0, conf, header, headerIndex: records });
  return stores;
}

/** The new member, once its log begins behind what it was sent, and the bytes that this took. */
async function moved(from: Stores, to: Stores, through: Index): Promise<number> {
  using server = new TestPeer(1);
  using reader = new TestPeer(2);
  serveSnapshots(server.net, from, () => {});
  server.meet(reader);
  reader.meet(server);
  let bytes = 0;
  const replica: Fetching = {
    shard,
    mayTake: () => true,
    installed: () => to.log.setBase(shard, through, asTerm(1)),
    gone: new AbortController(),
  };
  const note = (_: unknown, what: string, fields?: Record<string, string | number>) => {
    if (what === "snapshot taken") bytes = Number(fields?.bytes);
  };
  const offered = { kind: MessageKind.snapshot, shard, from: node(1), to: node(2), term: asTerm(1) } as Message;
  fetchSnapshot({ stores: to, net: reader.net, note }, replica, offered);
  await until(() => bytes > 0, { what: "the snapshot" });
  return bytes;
}

async function indexes(log: MemoryLogStore, of: ShardId): Promise<number[]> {
  const found: number[] = [];
  for await (const { index } of log.scan(of, asIndex(1), asIndex(100_000))) found.push(index);
  return found;
}

test("the bytes of a move do not grow with the age of the history", async () => {
  const sizes: number[] = [];
  for (const records of [100, 2000]) {
    using from = await source(records);
    using to = new Stores();
    sizes.push(await moved(from, to, asIndex(records)));
  }
  const [young, old] = sizes as [number, number];
  expect(old).toBeLessThan(young * 1.05);
});

test("what did not come is marked as released at the new member, and what is not sealed came", async () => {
  using from = await source(50);
  using to = new Stores();
  // A replica that was here long ago, with records that were never committed.
  for (const each of [ancestor, shard]) {
    const writer = new RecordWriter(to.log, each);
    for (let i = 0; i < 20; i++) writer.record(event.signal("run/a:wrong"));
    await writer.settle();
    to.log.remove(each);
  }
  await moved(from, to, asIndex(50));
  to.log.kick(true);
  await until(() => to.log.durablePosition() === to.log.position(), { what: "the log to be durable" });
  expect([to.log.released(ancestor), to.log.released(shard)]).toEqual([asIndex(40), asIndex(40)]);
  for (const each of [ancestor, shard]) {
    expect(await indexes(to.log, each)).toEqual([41, 42, 43, 44, 45, 46, 47, 48, 49, 50]);
    await expect(to.log.read(each, asIndex(15))).rejects.toBeInstanceOf(ReleasedError);
  }
});
