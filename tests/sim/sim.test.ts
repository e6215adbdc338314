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

// The long forms take every seed from 1 on, and plant the bugs: `npm run sim -- --seeds 360`, `npm run sim -- --bugs`.
test("ten seeds hold every invariant, and most faults strike in them", async () => {
  const { ok, output } = await sim("--seeds", "10");
  expect(ok ? "ok" : output).toBe("ok");
  const struck = [...output.matchAll(/(\w+) (\d+) %/g)].filter(([, , share]) => Number(share) > 0);
  expect(struck.length).toBeGreaterThan(25);
}, 300_000);
