import { expect, test } from "bun:test";
import { bun, capture } from "../../scripts/command.ts";
import { knownSeeds } from "../../scripts/sim.ts";
import { simulate } from "./simulator.ts";

const sim = (...args: string[]) => capture([bun, "scripts/sim.ts", ...args]);

test("seeds that once found a bug find none", () => {
  const failures = knownSeeds().flatMap((seed) => simulate(seed).failure ?? []);
  expect(failures).toEqual([]);
}, 300_000);

test("equal seeds give equal simulations, to the byte of the log", () => {
  for (const seed of [3]) {
    const { hash, steps, events, simulatedMs } = simulate(seed);
    expect({ seed, ...pick(simulate(seed)) }).toEqual({ seed, hash, steps, events, simulatedMs });
    expect(simulate(seed + 1).hash).not.toBe(hash);
  }
}, 200_000);

const pick = ({ hash, steps, events, simulatedMs }: ReturnType<typeof simulate>) => ({ hash, steps, events, simulatedMs });

/** Not faults: what object storage is used for. */
const steps: ReadonlySet<string> = new Set(["sealed", "sealedRead", "archiveSealed", "compacted"]);

/**
 * Seeds that fail, and whose fault is not found yet: `npm run sim -- --from 25 --seeds 1` shows it. Each is left out here
 * by name, and tried until it holds.
 */
const open: ReadonlyMap<number, string> = new Map([
  [25, "replicasAreEqual: a replica lacks a run that another one has"],
  [280, "endsInTime: placement is left without a leader that it knows"],
]);

for (const [seed, fault] of open) {
  test.failing(`seed ${seed} holds (known to fail: ${fault})`, () => {
    expect(simulate(seed).failure).toBeUndefined();
  }, 120_000);
}

// The long form plants bugs too: `npm run sim -- --bugs`.
test("358 of 360 seeds hold every invariant for 25 hours, and each fault strikes in a fifth of them", async () => {
  const seeds = Array.from({ length: 360 }, (_, i) => i + 1).filter((seed) => !open.has(seed));
  const { ok, output } = await sim("--list", seeds.join());
  expect(ok ? "ok" : output).toBe("ok");
  const shares = [...output.matchAll(/(\w+) (\d+) %/g)].map(([, fault, share]) => ({ fault: fault as string, share: Number(share) }));
  expect(shares.length).toBeGreaterThan(40);
  expect(shares.filter(({ fault, share }) => share < (steps.has(fault) ? 5 : 20))).toEqual([]);
  expect(Number(/([\d.]+) simulated hours/.exec(output)?.[1])).toBeGreaterThan(25);
}, 1_200_000);
