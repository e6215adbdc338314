/** Seeds of a whole group under faults, and bugs that they must find. */
import { expect, test } from "bun:test";
import { bun, capture } from "../../scripts/command.ts";
import { plantedBugs } from "./bugs/planted.ts";
import { simulateRaft } from "./simulation.ts";

const seedCount = 300;

test("300 seeds hold every invariant, serve no stale read and live after healing", () => {
  const counts = new Map<string, number>();
  let leaders = 0;
  for (let seed = 1; seed <= seedCount; seed++) {
    const outcome = simulateRaft(seed);
    expect({ seed, failure: outcome.failure }).toEqual({ seed, failure: undefined });
    leaders += outcome.leaders;
    for (const [what, count] of outcome.counts) counts.set(what, (counts.get(what) ?? 0) + count);
  }
  expect(leaders).toBeGreaterThan(2 * seedCount);
  // What a seed may do is done often enough to mean something.
  const rare = ["leaseRead", "crash", "partition", "eclipse", "pause", "compact", "snapshot", "transfer", "change", "jointChange"].filter(
    (what) => (counts.get(what) ?? 0) < seedCount / 5,
  );
  expect(rare).toEqual([]);
}, 60_000);

test("equal seeds give equal runs", () => {
  for (const seed of [1, 2, 77]) expect(simulateRaft(seed)).toEqual(simulateRaft(seed));
});

for (const { name, story, breaks } of plantedBugs) {
  test(`planted: ${story}`, async () => {
    const run = [bun, "--preload", "./tests/raft/bugs/plant.ts", "tests/raft/run-seeds.ts", "1", String(seedCount)];
    const { ok, output } = await capture(["env", `RAFT_BUG=${name}`, ...run]);
    const found = /^seed \d+: (\w+)/m.exec(output)?.[1] ?? output;
    expect([name, ok, breaks.includes(found) ? "found" : found]).toEqual([name, false, "found"]);
  }, 60_000);
}
