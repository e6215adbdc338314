/** sdk-typescript#1744, sdk-python#1573, on the real sandbox: combinators are replayed in the order in which they ran. */
import { afterAll, beforeAll, expect, test } from "bun:test";
import { until } from "#tests/cluster";
import { CaseServer } from "./case-fixture.ts";

let at: CaseServer;
beforeAll(async () => {
  at = await CaseServer.up();
});
afterAll(() => at[Symbol.asyncDispose]());

const seeds = Array.from({ length: 12 }, (_, i) => i * 7 + 1);
const orderOf = (seed: number) => at.client.query(`default:tree-${seed}`, { name: "order" }) as Promise<number[]>;
const rootOf = async (seed: number) => (JSON.parse(await at.ok(["audit", `tree-${seed}`, "-o", "json"])) as { root: string }).root;

test("trees of all, race, any and allSettled: killed and replayed, each is where it was, with the same history", async () => {
  for (const seed of seeds) await at.client.start("tree", seed, { instance: `tree-${seed}` });
  // All settle at the wait for their last signal.
  await until(async () => {
    const shown = await Promise.all(seeds.map((seed) => at.client.describe(`default:tree-${seed}`)));
    return shown.every(({ pending }) => pending.some(({ name }) => name === "end"));
  });
  const live = await Promise.all(seeds.map(orderOf));
  const roots = await Promise.all(seeds.map(rootOf));
  expect(live.some((order) => order.length > 5)).toBe(true);
  for (let kill = 0; kill < 2; kill++) {
    await at.server.kill();
    await at.again();
    expect(await Promise.all(seeds.map(orderOf))).toEqual(live);
    expect(await Promise.all(seeds.map(rootOf))).toEqual(roots);
  }
  for (const seed of seeds) await at.client.signal(`default:tree-${seed}`, { name: "end" });
  const results = await Promise.all(seeds.map(async (seed) => (await at.client.outcome(`default:tree-${seed}`)).value));
  expect(results).toEqual(live);
}, 60_000);
