/** Snapshots over real links, of real stores: who stops reading, or ends, holds up nobody. */
import { describe, expect, test } from "bun:test";
import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { asIndex, asShardId, asTerm, type Hasher, type Partition, wholeRange } from "#core/base";
import { type Message, MessageKind, noConf } from "#core/raft";
import { bornHeader, encodeHeader } from "#core/shard";
import { encodeConfState, encodeSnapshotAsked, toBytes } from "#proto";
import { CheckpointStore, MemoryLogStore } from "#store";
import { bunHasher } from "../../tests/hashers.ts";
import { stays, until } from "../../tests/until.ts";
import { node, TestPeer } from "../peer/peer-fixture.ts";
import { realTiming } from "../timing.ts";
import { OpenSnapshot, OpenSnapshots } from "./open-snapshots.ts";
import type { SnapshotStores } from "./snapshot.ts";
import { type Fetching, fetchSnapshot, serveSnapshots } from "./snapshot-road.ts";

const shard = asShardId(7);
/** As many random bytes as are drawn at a time. */
const rowBytes = 65_536;
const rowCount = 100;

class Stores implements SnapshotStores, Disposable {
  readonly log = new MemoryLogStore();
  readonly hasher: Hasher = bunHasher;
  readonly checkpoint: CheckpointStore;
  private readonly folder = mkdtempSync(join(tmpdir(), "hop-snapshot-"));

  constructor() {
    this.checkpoint = CheckpointStore.open({
      path: join(this.folder, "checkpoint.db"),
      logId: "a",
      warn: () => {},
      durableIndex: () => asIndex(1e9),
      isRemoved: () => false,
    });
  }

  /** States that take many windows of a stream. */
  fill(): this {
    const rows = Array.from({ length: rowCount }, (_, i) => ({
      partition: `run/default:${i}` as Partition,
      key: i,
      state: crypto.getRandomValues(new Uint8Array(rowBytes)),
      dueMs: Number.POSITIVE_INFINITY,
      index: 1,
    }));
    const header = encodeHeader(bornHeader({ range: wholeRange, ancestors: [], clockMs: 0 }));
    this.log.setBase(shard, asIndex(1), asTerm(1));
    this.checkpoint.save(rows, { shard, appliedIndex: 1, clockMs: 0, conf: toBytes(encodeConfState, noConf), header, headerIndex: 1 });
    return this;
  }

  [Symbol.dispose](): void {
    this.checkpoint.close();
    rmSync(this.folder, { recursive: true });
  }
}

/** Node 1 serves, node 2 may read. */
class Town implements Disposable {
  readonly source = new Stores().fill();
  readonly server = new TestPeer(1);
  readonly reader = new TestPeer(2);
  /** What the server was told of each transfer. */
  readonly done: boolean[] = [];
  /** Keeps no transfer any more. */
  readonly letGo: () => void;

  constructor(silentMs: number) {
    const done = (_: unknown, __: unknown, isTaken: boolean) => void this.done.push(isTaken);
    this.letGo = serveSnapshots(this.server.net, this.source, done, { timing: realTiming, silentMs });
    this.server.meet(this.reader);
    this.reader.meet(this.server);
  }

  [Symbol.dispose](): void {
    this.letGo();
    this.reader[Symbol.dispose]();
    this.server[Symbol.dispose]();
    this.source[Symbol.dispose]();
  }
}

const offered = {
  kind: MessageKind.snapshot,
  shard,
  from: node(1),
  to: node(2),
  term: asTerm(1),
} as Message;

function fetching(): Fetching & { installs: number } {
  const replica = { shard, installs: 0, mayTake: () => true, installed: () => void replica.installs++, gone: new AbortController() };
  return replica;
}

test("a snapshot that is read is whole", async () => {
  using town = new Town(300);
  using own = new Stores();
  const replica = fetching();
  fetchSnapshot({ stores: own, net: town.reader.net, note: () => {} }, replica, offered);
  await until(() => replica.installs === 1, { what: "the snapshot" });
  await until(() => town.done.length > 0, { what: "its end" });
  expect(town.done).toEqual([true]);
  expect(own.checkpoint.meta(shard)?.appliedIndex).toBe(1);
});

test("a snapshot that nobody reads any more is given up, once, and its states are let go", async () => {
  using town = new Town(200);
  const body = toBytes(encodeSnapshotAsked, { shard });
  const stream = town.reader.net.stream(node(1), "replica.snapshot", body, { windowBytes: 1 })[Symbol.asyncIterator]();
  await stream.next();
  await until(() => town.done.length > 0, { what: "the transfer's end" });
  // Whoever reads on after all is told so.
  const readOn = async () => {
    for (;;) if ((await stream.next()).done === true) return;
  };
  await expect(readOn()).rejects.toThrow("was not read for 200 ms");
  expect(town.done).toEqual([false]);
});

test("a replica that has ended fetches no more, and says nothing of it; the next one begins anew", async () => {
  using town = new Town(60_000);
  using own = new Stores();
  const said: string[] = [];
  const parts = { stores: own, net: town.reader.net, note: (_: unknown, what: string) => void said.push(what) };
  const first = fetching();
  fetchSnapshot(parts, first, offered);
  first.gone.abort();
  await stays(() => first.installs === 0, { forMs: 200, what: "nothing is installed" });
  expect(town.done).not.toContain(true);
  const second = fetching();
  fetchSnapshot(parts, second, offered);
  await until(() => second.installs === 1, { what: "the second one's snapshot" });
  expect(said).toEqual(["snapshot taken"]);
});

describe("a transfer that breaks off", () => {
  /** Node 2 loses its link after three chunks with states. */
  async function broken(town: Town, own: Stores) {
    const seen = { rows: 0, chunks: 0, said: [] as string[] };
    const take = own.checkpoint.importRows.bind(own.checkpoint);
    own.checkpoint.importRows = (shardOf, rows) => {
      take(shardOf, rows);
      seen.rows += rows.length;
      if (++seen.chunks === 3) town.reader.net.setPeers(new Map());
    };
    const patience = { timing: realTiming, silentMs: 60_000 };
    const parts = { stores: own, net: town.reader.net, note: (_: unknown, what: string) => void seen.said.push(what), patience };
    const replica = fetching();
    const offer = () => fetchSnapshot(parts, replica, offered);
    offer();
    await until(() => seen.said.length > 0, { what: "the break" });
    expect(seen.said).toEqual(["snapshot not taken, and fetched again"]);
    await until(() => town.done.length > 0, { what: "the break is known to who gives it" });
    town.reader.meet(town.server);
    return { seen, replica, offer };
  }

  const isWhole = (town: Town, own: Stores) => {
    const rows = (stores: Stores) => [...stores.checkpoint.exportRange(shard, wholeRange).batches(1 << 20)].flat();
    expect(rows(own).map(({ partition, state }) => [partition, Bun.hash(state)])).toEqual(
      rows(town.source).map(({ partition, state }) => [partition, Bun.hash(state)]),
    );
  };

  test("goes on where it stopped", async () => {
    using town = new Town(60_000);
    using own = new Stores();
    const { seen, replica, offer } = await broken(town, own);
    offer();
    await until(() => replica.installs === 1, { what: "the rest" });
    expect(seen.rows).toBe(rowCount);
    isWhole(town, own);
    await until(() => town.done.length === 2, { what: "its end" });
    expect(town.done).toEqual([false, true]);
  });

  test("begins anew where it is not kept any more", async () => {
    using town = new Town(60_000);
    using own = new Stores();
    const { seen, replica, offer } = await broken(town, own);
    town.letGo();
    offer();
    await until(() => replica.installs === 1, { what: "the snapshot" });
    expect(seen.rows).toBeGreaterThan(rowCount);
    isWhole(town, own);
  });

  test("begins anew for a replica that came in place of the one before", async () => {
    using town = new Town(60_000);
    using own = new Stores();
    const { replica } = await broken(town, own);
    replica.gone.abort();
    const next = fetching();
    fetchSnapshot({ stores: own, net: town.reader.net, note: () => {} }, next, offered);
    await until(() => next.installs === 1, { what: "the snapshot" });
    isWhole(town, own);
  });
});

test("a transfer is kept for its own reader, for a while, and as far as its last chunks lead", () => {
  using source = new Stores().fill();
  const name = new Uint8Array(16).fill(1);
  const timers: (() => void)[] = [];
  const timing = {
    after: (_: number, run: () => void) => {
      timers.push(run);
      return () => {};
    },
  };
  const open = new OpenSnapshots(timing, 1000);
  const goOn = (from: number, transfer = name) => open.take(node(2), shard, { transfer, from });
  const kept = (chunks: number) => {
    const snapshot = new OpenSnapshot(source, shard, name);
    const taken = Array.from({ length: chunks }, () => snapshot.next());
    open.keep(node(2), shard, snapshot);
    return taken;
  };
  const chunks = kept(6);
  expect(goOn(4)?.next()).toEqual(chunks[4]);
  for (const [from, transfer] of [
    [0, name],
    [7, name],
    [4, new Uint8Array(16)],
    [4, new Uint8Array(0)],
  ] as const) {
    kept(6);
    expect(goOn(from, transfer)).toBeUndefined();
    // Whoever asks for something else wants this one no more.
    expect(goOn(4)).toBeUndefined();
  }
  kept(6);
  timers.at(-1)?.();
  expect(goOn(4)).toBeUndefined();
});
