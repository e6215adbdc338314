/** golem#3749: a crash after a result was stored and before the workflow saw it gave a result that counted as never seen. */
import { describe, expect, test } from "bun:test";
import type { RunId } from "#core/base";
import { isTerminal } from "#core/run";
import { EventKind } from "#proto";
import type { Node } from "../../sim/program.ts";
import { VirtualShard } from "./virtual-shard.ts";

const plan = { ms: 0, fails: 0, hangs: 0, isFatal: false, beatMs: 0 };
const call = (name: string): Node => ({ kind: "activity", name, plan, options: undefined });
const order: Node = {
  kind: "seq",
  of: [call("a0"), { kind: "all", of: [call("a1"), { kind: "signal", name: "s0" }] }, { kind: "sleep", ms: 100 }, call("a2")],
};

const run = "default:r" as RunId;

/** Brings the run to its end, whatever state it is in; activities whose result is durable are not asked for again. */
function bringHome(shard: VirtualShard): void {
  if (!shard.hasWorker) shard.join();
  for (let i = 0; i < 20; i++) {
    const [task] = shard.tasks;
    if (task !== undefined) shard.complete(task, task.token.op);
    else shard.advance(200);
  }
}

function live(): VirtualShard {
  const shard = new VirtualShard({ programs: { order } });
  shard.join();
  shard.start("r", "order");
  shard.command({ kind: "signal", run, name: "s0", payload: undefined, id: "one" });
  bringHome(shard);
  return shard;
}

const kinds = (shard: VirtualShard) => shard.events("r").map(({ event }) => event.kind);
const results = (shard: VirtualShard) =>
  shard.events("r").flatMap(({ event }) => (event.kind === EventKind.activityCompleted ? [event.body.op] : []));

const whole = live();

test("the undisturbed run completes", () => {
  expect(kinds(whole).at(-1)).toBe(EventKind.runCompleted);
  expect(whole.problems).toEqual([]);
});

describe("a crash behind each record", () => {
  // The first record says who leads.
  const cuts = Array.from({ length: whole.lastIndex - 1 }, (_, i) => i + 2);

  test.each(cuts)("record %p: what was durable stays, is delivered, and the run ends the same way once", (cut) => {
    const shard = live();
    const before = shard
      .events("r")
      .filter(({ index }) => index <= cut)
      .map(({ bytes }) => Buffer.from(bytes).toString("hex"));
    shard.crash(cut);
    // The signal may have been lost with what was not durable: its sender repeats it.
    const known = shard.describe("r");
    if (known !== undefined) shard.command({ kind: "signal", run, name: "s0", payload: undefined, id: "one" });
    bringHome(shard);
    expect(shard.problems).toEqual([]);
    expect(
      shard
        .events("r")
        .slice(0, before.length)
        .map(({ bytes }) => Buffer.from(bytes).toString("hex")),
    ).toEqual(before);
    expect(new Set(results(shard))).toEqual(new Set(results(whole)));
    expect(results(shard)).toHaveLength(3);
    expect(kinds(shard).filter(isTerminal)).toEqual([EventKind.runCompleted]);
    expect(kinds(shard).filter((kind) => kind === EventKind.signalReceived)).toHaveLength(1);
  });

  test.each(cuts.slice(0, -1))(
    "record %p, and a cancellation in the gap before anything is delivered: the run ends once, as told",
    (cut) => {
      const shard = live();
      shard.crash(cut);
      // No worker is there yet: the cancellation comes between what is durable and its delivery.
      const reply = shard.command({ kind: "cancel", run, reason: "no more" });
      bringHome(shard);
      expect(shard.problems).toEqual([]);
      const durable = whole.events("r").filter(({ index, event }) => index <= cut && event.kind === EventKind.activityCompleted).length;
      // With its last result durable there is nothing left that a cancellation could stop.
      const end = durable === 3 ? EventKind.runCompleted : EventKind.runCancelled;
      expect(kinds(shard).filter(isTerminal)).toEqual([end]);
      expect(reply).toEqual({ kind: "done" });
      expect(results(shard).length).toBeGreaterThanOrEqual(durable);
    },
  );
});
