/** Runs seeds from the command line: `bun tests/raft/run-seeds.ts FIRST COUNT`; stops at the first failure. */
import { simulateRaft } from "./simulation.ts";

const [first = 1, count = 300] = process.argv.slice(2).map(Number);
let steps = 0;
let committed = 0;
let leaders = 0;
const counts = new Map<string, number>();
for (let seed = first; seed < first + count; seed++) {
  const outcome = simulateRaft(seed);
  if (outcome.failure !== undefined) {
    console.log(`seed ${seed}: ${outcome.failure}`);
    process.exit(1);
  }
  steps += outcome.steps;
  committed += outcome.committed;
  leaders += outcome.leaders;
  for (const [name, each] of outcome.counts) counts.set(name, (counts.get(name) ?? 0) + each);
}
console.log(`${count} seeds hold: ${steps} steps, ${committed} entries, ${leaders} leaders`, Object.fromEntries(counts));
