import { expect, test } from "bun:test";
import { limits, runPartition } from "#core/base";
import { SessionCapacity } from "#core/dispatch";
import { Led, left, refusal } from "./led-fixture.ts";

test("a start that signals a run which is far behind is refused for now, as a signal is; one that it has already is not", () => {
  const led = new Led().lead();
  led.join(new SessionCapacity(10));
  // Its first activation is never answered.
  led.start(left);
  const signal = { name: "s", payload: undefined, id: "" };
  const order = { run: left, type: "t", bundle: new Uint8Array(32), input: undefined, idempotencyKey: "", deadlineMs: 0 };
  const start = (id: string) =>
    led.command({ kind: "start", ...order, contention: "attach", awaitResult: false, signal: { ...signal, id } });
  expect(refusal(start("first"))).toBeUndefined();
  for (let i = 1; i < limits.undeliveredMax; i++) led.command({ kind: "signal", run: left, ...signal });
  const { size } = led.machine.describe(runPartition(left)) ?? {};
  const full = { rejection: { reject: "BUFFER_FULL", retryAfterMs: 200 } };
  expect(refusal(led.command({ kind: "signal", run: left, ...signal }))).toMatchObject(full);
  expect(refusal(start("second"))).toMatchObject(full);
  expect(refusal(start("first"))).toBeUndefined();
  expect(led.machine.describe(runPartition(left))?.size).toBe(size);
});
