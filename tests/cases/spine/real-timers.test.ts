/** vercel/workflow#823, medusa#16280, once more on real timers: what is longer than a 32-bit timer does not fire at once. */
import { afterAll, beforeAll, expect, test } from "bun:test";
import { CaseServer } from "./case-fixture.ts";

let at: CaseServer;
beforeAll(async () => {
  at = await CaseServer.up();
});
afterAll(() => at[Symbol.asyncDispose]());

const yearMs = 365.25 * 86_400_000;
const long: number[] = [2 ** 31 - 1, 2 ** 31, 2 ** 31 + 1, 30 * 86_400_000, yearMs, 100 * yearMs];

/** Kind and time of each event that a run has. */
async function events(run: string): Promise<{ event: string; time: string }[]> {
  return (JSON.parse(await at.ok(["audit", run, "-o", "json"])) as { events: { event: string; time: string }[] }).events;
}

test("long sleeps do not fire, over restarts too; a short one fires once and not early", async () => {
  for (const ms of long) await at.client.start("nap", ms, { instance: `nap-${ms}` });
  const begun = performance.now();
  expect(await at.client.execute("nap", 400, { instance: "short" })).toBe("awake");
  expect(performance.now() - begun).toBeGreaterThanOrEqual(399);
  for (let restart = 0; restart < 2; restart++) {
    await at.server.kill();
    await at.again();
    // What would fire at once has fired when this has been slept.
    expect(await at.client.execute("nap", 300, { instance: `short-${restart}` })).toBe("awake");
  }
  for (const ms of long) {
    const known = (await events(`nap-${ms}`)).map(({ event }) => event);
    expect([ms, known]).toEqual([ms, ["RunStarted", "TimerStarted"]]);
  }
  const short = await events("short");
  expect(short.filter(({ event }) => event === "TimerFired")).toHaveLength(1);
  const timeOf = (name: string) => Date.parse(short.find(({ event }) => event === name)?.time ?? "");
  expect(timeOf("TimerFired") - timeOf("TimerStarted")).toBeGreaterThanOrEqual(400);
}, 60_000);

test("NaN, an infinite time and more than a century are errors at the call; less than nothing and the past are 0 ms", async () => {
  const told = await at.client.execute("oddSleeps");
  expect(told).toEqual({
    NaN: "TypeError",
    Infinity: "RangeError",
    "-1": "slept",
    past: "slept",
    "no date": "TypeError",
    century: "RangeError",
  });
}, 30_000);
