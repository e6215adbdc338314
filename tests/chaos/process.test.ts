import { afterAll, beforeAll, describe, expect, test } from "bun:test";
import { whyNoFaketime } from "./host.ts";
import { clockJumps, killUnderLoad, restarts, stopServer, stopWorker, twoServers, victims } from "./process-cases.ts";
import { Rig } from "./rig.ts";

describe("processes that are killed or stopped under load", () => {
  let rig: Rig;
  beforeAll(async () => {
    rig = await Rig.up();
  });
  afterAll(() => rig[Symbol.asyncDispose]());

  for (const victim of victims) {
    test(`the ${victim} killed with -9: each run comes to its one result`, async () => {
      const { runs } = await killUnderLoad(rig, victim, { times: 1, seed: 7 });
      expect(runs).toBe(8);
    }, 30_000);
  }

  test("a stopped worker keeps nobody from signalling, and goes on when it is let go", async () => {
    const { acks } = await stopWorker(rig);
    expect(acks).toBeGreaterThan(0);
  }, 30_000);

  test("a server stopped for a moment goes on where it was", async () => {
    const { acks } = await stopServer(rig, 300);
    expect(acks).toBeGreaterThan(0);
  }, 30_000);

  test("a second server on the same folder is refused by the folder's name, and the first goes on", async () => {
    expect(await twoServers(rig)).toContain("uses it");
  }, 30_000);
});

test("stopped, killed, moved to another port and address: ready within two seconds each time, and a waiting run goes on", async () => {
  const figures = await restarts();
  expect(Object.keys(figures)).toEqual(["first", "stop", "kill", "port", "address"]);
}, 60_000);

const noFaketime = whyNoFaketime();
test.skipIf(noFaketime !== undefined)(
  "the wall clock jumps by hours and seconds while a run sleeps: it wakes once [needs libfaketime]",
  async () => {
    const { wokeMs } = await clockJumps(1500);
    expect(wokeMs).toBeGreaterThan(0);
  },
  30_000,
);
