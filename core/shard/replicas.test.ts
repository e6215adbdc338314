import { expect, test } from "bun:test";
import { runPartition } from "#core/base";
import { verifyHistory } from "#core/merkle";
import { bunHasher } from "../../tests/hashers.ts";
import { Shards } from "./shards-fixture.ts";

const seeds = Array.from({ length: 25 }, (_, i) => i + 1);

let crossings = 0;

/** Both nodes hold the same bytes for every partition, and every history is whole. */
function compare(shards: Shards): void {
  for (let round = 0; round < 3; round++) for (const shard of [...shards.follower.machines.keys()]) shards.catchUp(shard);
  expect(shards.statesOf(shards.follower)).toEqual(shards.statesOf(shards.leader));
  for (const run of shards.names) {
    const { events } = shards.history(run);
    if (events.length === 0) continue;
    const partition = runPartition(run);
    const verdict = verifyHistory(bunHasher, events, { partition });
    if (!verdict.ok) throw new Error(`${run}: ${JSON.stringify(verdict.fault)}`);
    expect(`${verdict.head.size} ${verdict.head.root.toHex()}`).toBe(shards.heads().get(run) as string);
  }
}

test.each(seeds)("a follower, a restarted leader and the leader hold the same bytes (seed %d)", (seed) => {
  const shards = new Shards(seed);
  for (let round = 0; round < 4; round++) {
    for (let i = 0; i < 150; i++) shards.act();
    compare(shards);
    const before = shards.heads();
    if (shards.prng.chance(0.5)) shards.restart(shards.leader);
    expect(shards.heads()).toEqual(before);
    compare(shards);
  }
});

test.each(seeds)("splits and merges under load lose nothing, and every history is whole across them (seed %d)", (seed) => {
  const shards = new Shards(seed + 1000);
  for (let round = 0; round < 8; round++) {
    for (let i = 0; i < 60; i++) shards.act();
    const before = shards.heads();
    const open = [...shards.leader.machines].sort((a, b) => a[1].header().first - b[1].header().first);
    const at = shards.prng.below(open.length);
    const [shard] = open[at] as (typeof open)[number];
    const right = open[at + 1];
    if (right !== undefined && shards.prng.chance(0.5)) shards.absorb(shard, right[0]);
    else {
      shards.setBackMs = shards.prng.chance(0.3) ? 5000 : 0;
      shards.split(shard, undefined, shards.prng.chance(0.3));
      expect(shards.heads()).toEqual(before);
      shards.setBackMs = 0;
    }
    if (shards.prng.chance(0.3)) compare(shards);
    if (shards.prng.chance(0.2)) shards.restart(shards.leader);
  }
  for (let i = 0; i < 100; i++) shards.act();
  compare(shards);
  shards.restart(shards.leader);
  compare(shards);
  shards.restart(shards.follower);
  compare(shards);
  for (const run of shards.names) if (shards.history(run).shards.size > 1) crossings++;
});

test("histories did lead from shard to shard", () => {
  expect(crossings).toBeGreaterThan(100);
});
