/** cadence#8339: a history that could not be read counted as missing, and a second run took its place. */
import { describe, expect, test } from "bun:test";
import type { RunId, StateReader } from "#core/base";
import type { Command } from "#core/shard";
import { soleShard } from "../../shard-maker.ts";
import { VirtualShard } from "./virtual-shard.ts";

const run = "default:r" as RunId;
const commands: Command[] = [
  {
    kind: "start",
    run,
    type: "nap",
    bundle: new Uint8Array(0),
    input: undefined,
    contention: "attach",
    idempotencyKey: "",
    deadlineMs: 0,
    awaitResult: false,
  },
  { kind: "signal", run, name: "go", payload: undefined, id: "1" },
  { kind: "cancel", run, reason: "" },
  { kind: "terminate", run, reason: "" },
  { kind: "await-result", run },
];

const faults: Record<string, StateReader["load"]> = {
  "the disk fails": () => {
    throw Object.assign(new Error("EIO: i/o error, read"), { code: "EIO" });
  },
  "the read takes too long": () => {
    throw new Error("the read timed out");
  },
  "the bytes are too few": () => ({ state: Uint8Array.of(10, 200), shard: soleShard }),
};

describe.each(Object.entries(faults))("while %s, a state out of memory is never taken for none", (_, load) => {
  test.each(commands.map((command) => [command.kind, command] as const))("by %s", (_kind, command) => {
    const states: StateReader = { load, dueBefore: () => [] };
    const shard = new VirtualShard({ programs: {}, states });
    expect(() => shard.command(command)).toThrow();
    // Nothing was decided: no refusal that says "not found", and no first generation of a run that has one.
    expect(shard.replies).toEqual([]);
    expect(shard.events()).toEqual([]);
  });
});
