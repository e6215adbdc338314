import { describe, expect, test } from "bun:test";
import { faultAtStart, fullByInjection, fullDisk, lyingDisk, powerLoss, stopWhileFull, tornWrite } from "./disk-cases.ts";
import { whyNoLoop, whyNoTmpfs } from "./host.ts";
import { Rig } from "./rig.ts";
import { whyNoStrace } from "./strace.ts";

const noStrace = whyNoStrace();
const noTmpfs = whyNoTmpfs();
const noLoop = whyNoLoop();
for (const reason of [noTmpfs, noLoop])
  if (reason !== undefined) console.error(`tests/chaos: cases with a disk of their own are skipped: ${reason}`);

describe.skipIf(noStrace !== undefined)("a disk that fails [needs strace]", () => {
  test("full for a while: requests are refused with NO_SPACE, reads go on, and it goes on by itself", async () => {
    await using rig = await Rig.up();
    const { refused } = await fullByInjection(rig);
    expect(refused).toBeGreaterThan(0);
  }, 30_000);

  test("full when the server is asked to stop: it stops, and what was promised is there at the next start", async () => {
    await using rig = await Rig.up();
    const { stopMs } = await stopWhileFull(rig);
    expect(stopMs).toBeLessThan(20_000);
  }, 30_000);

  test("lying about a write: the hole is found and named, never taken for a torn tail", async () => {
    await using rig = await Rig.up();
    expect(await lyingDisk(rig)).toMatch(/is damaged at byte \d+ \(record \d+ of shard \d\)/);
  }, 30_000);

  test.each(["error=EIO", "error=ENOSPC", "signal=KILL"])(
    "at the start, %s: it says so, and the next start is a good one",
    async (fault) => {
      const outcome = await faultAtStart({ calls: ["pwrite64"], fault, when: "1" }, "data");
      expect(outcome).toStartWith("code ");
    },
    30_000,
  );
});

test("a write that the disk takes half of, at any byte, leaves no promise broken", async () => {
  await using rig = await Rig.up();
  for (const intoWrite of [39, 7001]) await tornWrite(rig, intoWrite);
}, 30_000);

test.skipIf(noTmpfs !== undefined)(
  "a small disk that is really full refuses, reads, and goes on when it has grown [needs the right to mount]",
  async () => {
    const { refused, acks } = await fullDisk(100);
    expect(refused).toBeGreaterThan(0);
    expect(acks).toBeGreaterThan(1000);
  },
  60_000,
);

test.skipIf(noLoop !== undefined)(
  "a power cut: what was acknowledged is on the device [needs the right to mount]",
  async () => {
    const { acks } = await powerLoss(1);
    expect(Math.min(...acks)).toBeGreaterThan(0);
  },
  60_000,
);
