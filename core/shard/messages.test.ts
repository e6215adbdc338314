import { expect, test } from "bun:test";
import { World } from "./messages-fixture.ts";

const calm = { lost: 0, twice: 0, ghost: 0, crash: 0, longWait: 0 };

test("messages between shards that nothing happens to arrive once and in order", () => {
  const world = new World(1, calm, [4, 4]);
  for (let i = 0; i < 6000; i++) world.once();
  world.heal();
  world.check();
  expect(world.counts.signals).toBeGreaterThan(100);
  expect(world.counts.refused).toBeGreaterThan(5);
  expect(world.counts.results).toBeGreaterThan(5);
}, 60_000);

test("whatever is lost, repeated or late, and whoever crashes: each message is taken once, in its sender's order", () => {
  const total = { signals: 0, refused: 0, results: 0, stale: 0, forgotten: 0, crashes: 0 };
  for (let seed = 1; seed <= 12; seed++) {
    const world = new World(seed, { lost: 200, twice: 150, ghost: 60, crash: 6, longWait: 0 }, [5, 5]);
    for (let i = 0; i < 4000; i++) world.once();
    world.heal();
    world.check();
    for (const key of Object.keys(total) as (keyof typeof total)[]) total[key] += world.counts[key];
  }
  expect(total.crashes).toBeGreaterThan(50);
}, 60_000);

test("a sender that was forgotten is not taken for a new one, however late its messages come", () => {
  const total = { signals: 0, refused: 0, results: 0, stale: 0, forgotten: 0, crashes: 0 };
  for (let seed = 1; seed <= 4; seed++) {
    const world = new World(seed, { lost: 100, twice: 100, ghost: 150, crash: seed % 2, longWait: 1 }, [250, 2]);
    for (let i = 0; i < 15_000; i++) world.once();
    world.heal();
    world.check();
    for (const key of Object.keys(total) as (keyof typeof total)[]) total[key] += world.counts[key];
  }
  expect(total.forgotten).toBeGreaterThan(20);
  expect(total.stale).toBeGreaterThan(20);
}, 60_000);

test("children: each start is taken once, its end is told, and none goes on against its parent's wish", () => {
  const total: Record<string, number> = {};
  for (let seed = 1; seed <= 12; seed++) {
    const faults = seed % 3 === 0 ? calm : { lost: 200, twice: 150, ghost: 60, crash: 6, longWait: 0 };
    const world = new World(seed, { ...faults, child: 600 }, [5, 5]);
    for (let i = 0; i < 3000; i++) world.once();
    world.heal();
    world.check();
    for (const [what, count] of Object.entries(world.children.counts)) total[what] = (total[what] ?? 0) + count;
  }
  for (const [what, count] of Object.entries(total)) expect([what, count > 5]).toEqual([what, true]);
}, 60_000);

test("idempotency keys: whoever crashes, each key is executed once, and all who claim it have the result", () => {
  const total: Record<string, number> = {};
  for (let seed = 1; seed <= 16; seed++) {
    const faults = seed % 4 === 0 ? calm : { lost: 200, twice: 150, ghost: 60, crash: 6, longWait: 0 };
    const world = new World(seed, { ...faults, keyed: 500 }, [5, 5]);
    for (let i = 0; i < 3000; i++) world.once();
    world.heal();
    world.check();
    for (const [what, count] of Object.entries(world.keys.counts)) total[what] = (total[what] ?? 0) + count;
  }
  for (const [what, count] of Object.entries(total)) expect([what, count > 5]).toEqual([what, true]);
}, 60_000);
