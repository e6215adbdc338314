import { expect, test } from "bun:test";
import { asIndex, asShardId, type KeyRange, keyMax, type Partition, type ShardId } from "#core/base";
import { MemoryLogStore, Projector } from "#store";
import { event, fixtureShard, RecordWriter } from "../store/event-fixture.ts";
import { allRuns } from "../store/visibility/list-fixture.ts";
import { keyOf } from "./cluster/shard-map.ts";
import { VisibilityPump } from "./visibility-pump.ts";

class Town {
  readonly log = new MemoryLogStore();
  readonly projector = Projector.open({
    path: ":memory:",
    logId: "log-a",
    durableIndex: () => asIndex(1e9),
    isRemoved: () => false,
    warn: () => {},
  });
  readonly warnings: string[] = [];
  readonly faults: unknown[] = [];
  readonly seen: string[] = [];
  readonly commits = new Map<ShardId, number>();
  readonly pump: VisibilityPump;

  constructor() {
    this.pump = new VisibilityPump({
      logs: () => [...this.commits].map(([shard, index]) => ({ shard, commitIndex: asIndex(index) })),
      log: this.log,
      projector: this.projector,
      onRecord: ({ shard, index }) => void this.seen.push(`${shard}:${index}`),
      onFault: (error) => void this.faults.push(error),
      warn: (message) => void this.warnings.push(message),
    });
  }

  commit(shard: ShardId, index: number): void {
    this.commits.set(shard, index);
    this.pump.onCommitted();
  }

  async names(ranges?: readonly KeyRange[]): Promise<string[]> {
    return (await this.pump.list({ ...allRuns, limit: 500 }, ranges)).run.map(({ run }) => run).sort();
  }
}

test("on a full disk a list shows what is indexed, says once that it is stale, and is whole again with space", async () => {
  const town = new Town();
  const writer = new RecordWriter(town.log);
  writer.record(event.started("run/a:early", 1));
  await writer.settle();
  town.commit(fixtureShard, writer.index);
  expect(await town.names()).toEqual(["a:early"]);
  const { page_count: pages } = town.projector.database.query("PRAGMA page_count").get() as { page_count: number };
  town.projector.database.run(`PRAGMA max_page_count = ${pages}`);
  const late = Array.from({ length: 200 }, (_, i) => `late-${i}`);
  for (const name of late) writer.record(event.started(`run/a:${name}`, 1));
  await writer.settle();
  town.commit(fixtureShard, writer.index);
  expect([await town.names(), await town.names()]).toEqual([["a:early"], ["a:early"]]);
  expect(town.warnings).toEqual([expect.stringContaining("stale")]);
  town.projector.database.run("PRAGMA max_page_count = 100000");
  expect(await town.names()).toHaveLength(201);
  expect(town.warnings).toHaveLength(1);
  await town.pump.close();
});

test("only what is committed is taken in, however much is durable", async () => {
  const town = new Town();
  const writer = new RecordWriter(town.log);
  for (const name of ["one", "two", "three"]) writer.record(event.started(`run/a:${name}`, 1));
  await writer.settle();
  town.commit(fixtureShard, 2);
  expect(await town.names()).toEqual(["a:one", "a:two"]);
  town.commit(fixtureShard, 3);
  expect(await town.names()).toEqual(["a:one", "a:three", "a:two"]);
  expect(town.seen).toEqual(["1:1", "1:2", "1:3"]);
  await town.pump.close();
});

test("a list waits for what is committed and not on this disk yet", async () => {
  const town = new Town();
  const writer = new RecordWriter(town.log);
  writer.record(event.started("run/a:one", 1));
  await writer.settle();
  town.commit(fixtureShard, 2);
  const listed = town.names();
  writer.record(event.started("run/a:two", 1));
  await writer.settle();
  expect(await listed).toEqual(["a:one", "a:two"]);
  await town.pump.close();
});

test("a child's records come behind its parent's split, an absorbed shard's before those of the one that takes it in", async () => {
  const town = new Town();
  const parent = new RecordWriter(town.log);
  const child = new RecordWriter(town.log, asShardId(2), parent.written);
  child.index = asIndex(1);
  const middle = 2 ** 47;
  const names = Array.from({ length: 20 }, (_, i) => `run/a:${i}`);
  for (const name of names) parent.record(event.started(name, 1));
  parent.change({ kind: "split", value: { at: middle, child: 2 } });
  await parent.settle();
  town.log.setBase(asShardId(2), asIndex(1), 1 as never);
  const moves = (name: string) => keyOf(name as Partition) >= middle;
  parent.hand(child, moves);
  const moved = names.filter(moves);
  expect(moved.length).toBeGreaterThan(0);
  for (const name of moved) child.record(event.completed(name));
  await child.settle();
  // The child is known first, as when its replica is opened before the parent's is read.
  town.commits.set(asShardId(2), child.index);
  town.commit(fixtureShard, parent.index);
  const done = async () => (await town.pump.list({ ...allRuns, limit: 500, status: 2 })).run.map(({ run }) => `run/${run}`).sort();
  expect(await done()).toEqual([...moved].sort());
  child.change({ kind: "frozen", value: { into: 1 } });
  child.hand(parent, () => true);
  parent.change({ kind: "absorbed", value: { shard: 2, through: child.index, last: keyMax } });
  for (const name of moved) parent.record(event.started(name, 2));
  // One flush has all of it.
  await parent.settle();
  // Its replica is retired already: only its log is left.
  town.commits.delete(asShardId(2));
  town.commit(fixtureShard, parent.index);
  expect((await town.pump.list({ ...allRuns, limit: 500, status: 1 })).run).toHaveLength(20);
  expect(await done()).toEqual([...moved].sort());
  expect(town.faults).toEqual([]);
  await town.pump.close();
});

test("a list of some keys has the runs of those keys", async () => {
  const town = new Town();
  const writer = new RecordWriter(town.log);
  const names = Array.from({ length: 50 }, (_, i) => `a:${i}`);
  for (const name of names) writer.record(event.started(`run/${name}`, 1));
  await writer.settle();
  town.commit(fixtureShard, writer.index);
  const [first, second] = [
    { first: 0, last: 2 ** 46 },
    { first: 2 ** 47, last: keyMax },
  ];
  const inside = (range: KeyRange) =>
    names.filter((name) => {
      const key = keyOf(`run/${name}` as Partition);
      return key >= range.first && key <= range.last;
    });
  expect(await town.names([first])).toEqual(inside(first).sort());
  expect(await town.names([first, second])).toEqual([...inside(first), ...inside(second)].sort());
  expect(await town.names([])).toEqual([]);
  await town.pump.close();
});
