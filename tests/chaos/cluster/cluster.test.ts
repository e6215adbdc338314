import { afterAll, describe, expect, test } from "bun:test";
import { whyNoFaketime, whyNoLoop } from "../host.ts";
import { whyNoStrace } from "../strace.ts";
import { badWeather, cutLeaders, killLeaders, pauseLeaders, splitUnderLoad, storm } from "./cluster-cases.ts";
import { type Proven, type Strike, struck } from "./cluster-proof.ts";
import { leadersDisk, powerLosses, wrongClocks } from "./host-cases.ts";
import { Machines } from "./machines.ts";
import { whyNoNet } from "./net.ts";

const noNet = whyNoNet();
const reasons = { faketime: whyNoFaketime(), loop: whyNoLoop(), strace: whyNoStrace() };
if (noNet !== undefined) console.error(`tests/chaos/cluster: skipped: ${noNet}`);
else
  for (const reason of Object.values(reasons)) if (reason !== undefined) console.error(`tests/chaos/cluster: cases are skipped: ${reason}`);

/** Nobody may be without an answer for longer than this in any of the cases: a failover on a busy machine, and more. */
const outageMsMax = 8000;

function expectLoad({ acks, reads }: Proven): void {
  expect(acks).toBeGreaterThan(50);
  expect(reads).toBeGreaterThan(20);
}

describe.skipIf(noNet !== undefined)("three machines under load [needs root and /dev/net/tun]", () => {
  let machines: Machines | undefined;
  const letGo = async (): Promise<void> => {
    await machines?.[Symbol.asyncDispose]();
    machines = undefined;
  };
  afterAll(letGo);

  /** A cluster on which a case failed may be beyond use: the next one has a new one. */
  async function hold(prefix: string, strike: Strike): Promise<void> {
    machines ??= await Machines.up();
    try {
      const proven = await struck(machines, { prefix }, strike);
      expectLoad(proven);
      expect(Math.max(...proven.outageMs)).toBeLessThan(outageMsMax);
    } catch (error) {
      await letGo();
      throw error;
    }
  }

  test("leaders killed with -9: what clients see is linearizable, nothing acknowledged is lost", async () => {
    await hold("killed", (machines, workload) => killLeaders(machines, workload, 2));
  }, 120_000);

  test("a leader stopped for longer than its lease does not answer from the past", async () => {
    await hold("stopped", (machines, workload) => pauseLeaders(machines, workload, [2000]));
  }, 120_000);

  test("a leader cut off in one direction or both is succeeded, and catches up", async () => {
    await hold("cut", (machines, workload) => cutLeaders(machines, workload, ["both ways", "is heard by nobody"], 2500));
  }, 120_000);

  test("delay, loss, duplicates and reordering on every link", async () => {
    await hold("storm", (machines, workload) => storm(machines, workload, badWeather, 3000));
  }, 120_000);

  test.skipIf(reasons.strace !== undefined)(
    "a leader whose disk fails is succeeded; a slow disk only delays [needs strace]",
    async () => {
      await hold("disk", (machines, workload) => leadersDisk(machines, workload, "EIO", 0));
      await hold("slow", (machines, workload) => leadersDisk(machines, workload, "slow", 1500));
    },
    120_000,
  );

  test("the shard is split, loses a leader, and is merged", async () => {
    await hold("split", splitUnderLoad);
  }, 120_000);
});

test.skipIf((noNet ?? reasons.faketime) !== undefined)(
  "wall clocks an hour apart, which jump while leaders are killed [needs root, /dev/net/tun and libfaketime]",
  async () => expectLoad(await wrongClocks(5, 1)),
  120_000,
);

test.skipIf((noNet ?? reasons.loop) !== undefined)(
  "all machines lose power at once: what was acknowledged is on their devices [needs root, /dev/net/tun and the right to mount]",
  async () => expectLoad(await powerLosses(["all"], 1)),
  120_000,
);
