/** The pump rebuilds what the log can't bring any more, and refuses lists until then. */
import { expect, test } from "bun:test";
import { asIndex, asShardId, type KeyRange, keyMax, type Partition, type ShardId, wholeRange } from "#core/base";
import type { ListRequest } from "#proto";
import { MemoryLogStore, Projector } from "#store";
import { keyOf } from "../../node/cluster/shard-map.ts";
import { VisibilityPump } from "../../node/visibility-pump.ts";
import { event, fixtureShard, RecordWriter, writeLife } from "../../store/event-fixture.ts";
import { allRuns } from "../../store/visibility/list-fixture.ts";
import { until } from "../until.ts";
import { SealedShard } from "./sealed-shard.ts";

const all: ListRequest = { ...allRuns, limit: 500 };
const middle = 2 ** 47;
const child = asShardId(2);

interface Held {
  index: number;
  readonly range: KeyRange;
  readonly ancestors: readonly ShardId[];
}

/** A node's index of runs, over a log that it shares with others. */
class Reader implements AsyncDisposable {
  readonly warnings: string[] = [];
  readonly projector = Projector.open({
    path: ":memory:",
    logId: "log-a",
    durableIndex: () => asIndex(1e9),
    isRemoved: () => false,
    warn: () => {},
  });
  readonly pump: VisibilityPump;

  constructor(log: MemoryLogStore, held: ReadonlyMap<ShardId, Held>, sealed?: SealedShard) {
    this.pump = new VisibilityPump({
      logs: () =>
        [...held].map(([shard, { index, range, ancestors }]) => ({
          shard,
          commitIndex: asIndex(index),
          keys: () => ({ range, ancestors, changedIndex: 0 }),
        })),
      log,
      projector: this.projector,
      sealed: sealed?.cold.tier,
      onRecord: () => {},
      onFault: (error) => void this.warnings.push(`fault: ${String(error)}`),
      warn: (message) => void this.warnings.push(message),
    });
  }

  /** Rows, once a list is answered. */
  async rows(): Promise<unknown[]> {
    await until(
      () =>
        this.pump.list(all).then(
          () => true,
          () => false,
        ),
      { what: "a list" },
    );
    return [...this.projector.rowsIn(wholeRange)].flat();
  }

  async refusal(ranges?: readonly KeyRange[]): Promise<string> {
    return this.pump.list(all, ranges).then(
      (reply) => `it lists ${reply.run.length}`,
      (error: Error) => error.message,
    );
  }

  [Symbol.asyncDispose](): Promise<void> {
    return this.pump.close();
  }
}

/** Two shards of which the second one was split off the first; the logs are as they were written. */
async function twoShards() {
  const log = new MemoryLogStore();
  const parent = new RecordWriter(log);
  for (let seed = 1; seed <= 3; seed++) writeLife(parent, seed, 80);
  const names = Array.from({ length: 30 }, (_, i) => `run/b:${i}`);
  for (const name of names) parent.record(event.started(name, 1), event.signal(name, 300));
  parent.change({ kind: "split", value: { at: middle, child } });
  await parent.settle();
  log.setBase(child, asIndex(1), 1 as never);
  const right = new RecordWriter(log, child, parent.written);
  right.index = asIndex(1);
  parent.hand(right, (name) => keyOf(name as Partition) >= middle);
  for (const name of names) (keyOf(name as Partition) >= middle ? right : parent).record(event.completed(name));
  // One flush has all of it.
  await parent.settle();
  const held = new Map<ShardId, Held>([
    [fixtureShard, { index: parent.index, range: { first: 0, last: middle - 1 }, ancestors: [] }],
    [child, { index: right.index, range: { first: middle, last: keyMax }, ancestors: [fixtureShard] }],
  ]);
  return { log, parent, right, held };
}

test("rows that the log can't bring any more come from sealed segments, and are those that it would have brought", async () => {
  const { log, parent, right, held } = await twoShards();
  await using live = new Reader(log, held);
  const rows = await live.rows();
  const sealed = new SealedShard();
  await sealed.seal(log, fixtureShard, asIndex(parent.index - 5));
  await sealed.seal(log, child, asIndex(right.index - 3));
  log.compact(fixtureShard, asIndex(parent.index - 5));
  log.release(fixtureShard, asIndex(parent.index - 5));
  await using again = new Reader(log, held, sealed);
  expect(await again.rows()).toEqual(rows);
  // A node that has only the child: nothing tells it of the split.
  const alone = new Map([[child, held.get(child) as Held]]);
  await using other = new Reader(log, alone, sealed);
  expect(await other.rows()).toEqual(rows.filter((row) => (row as { key: number }).key >= middle));
  expect(rows.length).toBeGreaterThan(40);
});

test("while object storage is away, lists of the keys that it is needed for are refused and say why, others are not", async () => {
  const { log, parent, held } = await twoShards();
  await using live = new Reader(log, held);
  const rows = await live.rows();
  const sealed = new SealedShard();
  await sealed.seal(log, fixtureShard, asIndex(parent.index - 5));
  // The child came as a whole, with its rows.
  const only = new Map(held);
  sealed.faults = () => ({ kind: "refused" });
  await using reader = new Reader(log, only, sealed);
  reader.projector.takeRows(rows.filter((row) => (row as { key: number }).key >= middle) as never);
  reader.projector.begin(child, asIndex(held.get(child)?.index ?? 0));
  log.compact(fixtureShard, asIndex(parent.index - 5));
  log.release(fixtureShard, asIndex(parent.index - 5));
  expect(await reader.refusal()).toStartWith("Cannot list runs: ");
  await until(() => reader.warnings.some((text) => text.includes("can't be rebuilt")), { what: "a warning" });
  expect(await reader.refusal([{ first: 0, last: 5 }])).toStartWith("Cannot list runs: ");
  expect(await reader.refusal([{ first: middle, last: keyMax }])).toStartWith("it lists ");
  sealed.faults = () => undefined;
  expect(await reader.rows()).toEqual(rows);
});

test("where nothing has the records that are missing, no shorter table is shown", async () => {
  const { log, parent, held } = await twoShards();
  log.compact(fixtureShard, asIndex(parent.index - 5));
  log.release(fixtureShard, asIndex(parent.index - 5));
  await using reader = new Reader(log, held);
  expect(await reader.refusal()).toStartWith("Cannot list runs: ");
  await until(async () => (await reader.refusal()).includes("not in this node's log, and there is no object storage"), {
    what: "the reason",
  });
});
