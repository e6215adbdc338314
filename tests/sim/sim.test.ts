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

// The long form plants bugs too: `npm run sim -- --bugs`.
test("360 seeds hold every invariant for 25 hours, and each fault strikes in a fifth of them", async () => {
  const seeds = Array.from({ length: 360 }, (_, i) => i + 1);
  const { ok, output } = await sim("--list", seeds.join());
  expect(ok ? "ok" : output).toBe("ok");
  const shares = [...output.matchAll(/(\w+) (\d+) %/g)].map(([, fault, share]) => ({ fault: fault as string, share: Number(share) }));
  expect(shares.length).toBeGreaterThan(40);
  expect(shares.filter(({ fault, share }) => share < (steps.has(fault) ? 5 : 20))).toEqual([]);
  expect(Number(/([\d.]+) simulated hours/.exec(output)?.[1])).toBeGreaterThan(25);
}, 1_200_000);
