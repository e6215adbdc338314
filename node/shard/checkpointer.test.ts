/** When a checkpointer saves, and that it does one thing at a time. */
import { expect, test } from "bun:test";
import type { Checkpoint } from "#core/shard";
import { VirtualTiming } from "../cluster/virtual-timing-fixture.ts";
import { Checkpointer } from "./checkpointer.ts";

function begun() {
  const timing = new VirtualTiming();
  const town = { timing, captured: 0, saved: 0, isSettled: true, checkpointer: undefined as unknown as Checkpointer };
  const capture = (): Checkpoint => {
    const index = ++town.captured;
    return { rows: [], appliedIndex: index, durableIndex: index, header: new Uint8Array(), headerIndex: index };
  };
  town.checkpointer = new Checkpointer({
    machine: { figures: () => ({ dirtyRuns: 1 }), capture, saved: () => {}, putBack: () => {} },
    timing,
    note: () => {},
    isSettled: () => town.isSettled,
    hurry: () => {},
    save: () => void town.saved++,
    evict: () => {},
  });
  return town;
}

test("a flush that is asked for by one that ended leaves one timer", () => {
  const town = begun();
  let ended = 0;
  town.checkpointer.flush(
    () => true,
    () =>
      town.checkpointer.flush(
        () => true,
        () => ended++,
      ),
  );
  expect([ended, town.saved]).toEqual([1, 2]);
  // What is captured now takes longer than any timer that was left over.
  town.isSettled = false;
  town.timing.pass(1000);
  expect([town.captured, town.saved]).toEqual([3, 2]);
  town.isSettled = true;
  town.timing.pass(32);
  expect(town.saved).toBe(3);
});
