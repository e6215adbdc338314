/** As many random programs as a test run bears: `npm run sim -- --programs N` tries more. */
import { expect, test } from "bun:test";
import { bun, capture } from "../../scripts/command.ts";
import { checkPrograms } from "../../scripts/programs.ts";
import { buildOnce } from "../../worker/host/v8/v8-fixture.ts";
import { programBugs } from "./bugs.ts";

buildOnce();

const sim = (...args: string[]) => capture([bun, "scripts/sim.ts", ...args]);

test("2,000 programs: live, replayed and resumed behind every event are one history", async () => {
  const { programs, failures, events, crashes } = await checkPrograms(1, 2000);
  expect(failures).toEqual([]);
  expect(programs).toBe(2000);
  expect(events).toBeGreaterThan(20_000);
  expect(crashes).toBeGreaterThan(20_000);
}, 900_000);

test.each(programBugs.map((bug) => [bug.name, bug] as const))(
  "bug %s is found",
  async (name, { shows }) => {
    const planted = [bun, "--preload", "./tests/programs/plant.ts", "scripts/sim.ts", "--programs", "20"];
    const { ok, output } = await capture(["env", `HOP_PLANT=${name}`, ...planted]);
    expect({ ok, output }).toEqual({ ok: false, output: expect.stringContaining(shows) });
    expect(output).toMatch(/ {2}npm run sim -- --programs 1 --from \d+\n/);
  },
  120_000,
);

test("one program is tried by its seed, with every crash alone", async () => {
  const { ok, output } = await sim("--programs", "1", "--from", "7");
  expect(ok ? "ok" : output).toBe("ok");
  expect(output).toMatch(/^1 programs in .* events, each history replayed and executed again with \d\d crashes and evictions/m);
}, 60_000);
