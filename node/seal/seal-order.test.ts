import { expect, test } from "bun:test";
import { asIndex, asShardId, type KeyRange, keyMax, type ShardId } from "#core/base";
import { type CheckpointEntry, type Manifest, MemoryObjectStore } from "#store";
import { bunHasher } from "../../tests/hashers.ts";
import { mayNarrow, requireWhole } from "./seal-order.ts";
import { openColdStore } from "./sealing.ts";

const cluster = "hop_00000000000000aa";
const range = (first: number, last: number): KeyRange => ({ first, last });
const states = (keys: KeyRange): CheckpointEntry => ({ appliedIndex: asIndex(0), range: keys, parts: [] });

function manifest(shard: number, keys: KeyRange, ancestors: readonly number[], checkpoint: CheckpointEntry | undefined): Manifest {
  return {
    cluster,
    restoreEpoch: 1,
    shard: asShardId(shard),
    number: 1,
    previous: undefined,
    writer: { node: 1, epoch: 1 },
    range: keys,
    ancestors: ancestors.map(asShardId),
    through: asIndex(0),
    clockMs: 1,
    segments: [],
    checkpoint,
    records: [],
  };
}

/** What was uploaded of shards, and whether shard 1 may upload states of [0, 49] in place of all keys. */
async function mayLetGo(...uploaded: readonly Manifest[]): Promise<boolean> {
  const cold = openColdStore(new MemoryObjectStore(), cluster, bunHasher);
  for (const each of uploaded) await cold.manifests.publish(each);
  return mayNarrow(cold, states(range(0, keyMax)), { shard: asShardId(1) as ShardId, range: range(0, 49) });
}

test("keys that a split gave away stay in the parent's uploaded states until the child's are there", async () => {
  expect(await mayLetGo()).toBe(false);
  expect(await mayLetGo(manifest(2, range(50, keyMax), [1], undefined))).toBe(false);
  expect(await mayLetGo(manifest(2, range(50, keyMax), [1], states(range(50, keyMax))))).toBe(true);
});

test("of several children each has to be there, and who is none does not count", async () => {
  const two = manifest(2, range(50, 79), [1], states(range(50, 79)));
  const three = manifest(3, range(80, keyMax), [2, 1], states(range(80, keyMax)));
  expect(await mayLetGo(two)).toBe(false);
  expect(await mayLetGo(three)).toBe(false);
  expect(await mayLetGo(three, two)).toBe(true);
  expect(await mayLetGo(two, manifest(4, range(80, keyMax), [], states(range(80, keyMax))))).toBe(false);
});

test("states of no fewer keys than before may always be uploaded, but not of fewer than the shard has", async () => {
  const cold = openColdStore(new MemoryObjectStore(), cluster, bunHasher);
  expect(await mayNarrow(cold, states(range(0, 49)), { shard: asShardId(1), range: range(0, 49) })).toBe(true);
  expect(await mayNarrow(cold, states(range(0, 49)), { shard: asShardId(1), range: range(0, keyMax) })).toBe(true);
  requireWhole(asShardId(1), range(0, keyMax), range(0, 49));
  expect(() => requireWhole(asShardId(1), range(0, 49), range(0, keyMax))).toThrow("Cannot seal shard 1: its saved states are of keys");
});
