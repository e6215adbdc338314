import { expect, test } from "bun:test";
import { asSessionId, runPartition, type TaskEffect } from "#core/base";
import { SessionCapacity } from "#core/dispatch";
import { joining, StateTable, soleShard } from "../../tests/shard-maker.ts";
import { Led, left, session } from "./led-fixture.ts";

const pause = (led: Led) => led.command({ kind: "pause", run: left, reason: "" });
const unpause = (led: Led) => led.command({ kind: "unpause", run: left, reason: "" });
const waitsFor = (led: Led) => led.machine.describe(runPartition(left))?.pending.map((one) => one.waitsFor);

test("a task that its worker claims while the run is paused stays that worker's when the run goes on", () => {
  const table = new StateTable();
  const before = new Led({ table }).lead();
  before.join(new SessionCapacity(10));
  const task = before.busy(left) as TaskEffect;
  table.checkpoint(soleShard, before.machine);

  const led = new Led({ table, log: before.log }).lead(2);
  led.nowMs = before.nowMs;
  // Nobody claims it in time: whoever is free would have it now.
  led.advance(10_000);
  expect(waitsFor(led)).toEqual(["a worker that offers a"]);
  pause(led);
  expect(waitsFor(led)).toEqual(["the run to be unpaused"]);
  led.step({ ...joining(session, led.nowMs, { activitySlots: 10, held: [task.token] }), capacity: new SessionCapacity(10) });
  expect(waitsFor(led)).toEqual(["worker w"]);
  const effects = [...unpause(led), ...led.join(new SessionCapacity(10), asSessionId(2))];
  expect(effects.filter(({ kind }) => kind === "task")).toEqual([]);
  led.done({ ...task, session });
  expect(waitsFor(led)).toEqual([]);
});

test("a query that waits for its run to be built is answered though the run is paused meanwhile", () => {
  const led = new Led().lead();
  led.join(new SessionCapacity(10));
  led.busy(left);
  const [live] = [...led.machine.liveRuns()];
  led.step({ kind: "evicted", session, handle: live?.handle ?? 0 });
  const asked = led.command({ kind: "query", run: left, name: "q", input: undefined });
  expect(asked.map(({ kind }) => kind)).toContain("replay");
  const paused = pause(led);
  expect(paused.map(({ kind }) => kind)).toEqual(expect.arrayContaining(["drop", "replay"]));
  expect(led.answer(paused).map(({ kind }) => kind)).toContain("query");
});
