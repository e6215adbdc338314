import { afterAll, beforeAll, describe, expect, test } from "bun:test";
import { Rig } from "./rig.ts";
import { whyNoStrace } from "./strace.ts";
import { type Fault, faults, writeFault } from "./write-faults.ts";

const reason = whyNoStrace();
if (reason !== undefined) console.error(`tests/chaos: faults in system calls are skipped: ${reason}`);

/** One write of the log for each fault; `npm run chaos` strikes at each of the first forty. */
const sample: Readonly<Record<Fault, number>> = { kill: 4, EIO: 2, ENOSPC: 3, short: 5, delay: 3, "delay+kill": 6 };

describe.skipIf(reason !== undefined)("a write of the log is struck under load [needs strace]", () => {
  let rig: Rig;
  beforeAll(async () => {
    rig = await Rig.up();
  });
  afterAll(() => rig[Symbol.asyncDispose]());

  for (const fault of faults) {
    test(`${fault}: no promise is broken, no run ends twice, and the server is back at once`, async () => {
      const { struckAt, acks } = await writeFault(rig, fault, sample[fault]);
      expect(struckAt).toBeGreaterThan(0);
      expect(acks).toBeGreaterThan(0);
    }, 30_000);
  }
});
