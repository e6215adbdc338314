import { expect, test } from "bun:test";
import {
  CodecError,
  CommandKind,
  EventKind,
  encodeActivityFailed,
  encodeResultReceived,
  encodeRunResumed,
  encodeSignalReceived,
  encodeSignalSettled,
} from "#proto";
import { EventLog, json } from "./event-fixture.ts";
import { markReplay, readHistory } from "./history.ts";

test("readHistory() tells the guest what is for it, at the event's time, in order", () => {
  const log = new EventLog();
  log.started("order", { id: 1 });
  log.completed(1, "ok");
  log.failed(2, { type: "Broken", message: "no" });
  log.fired(3);
  log.signalled("paid", 9);
  log.cancelRequested("stop");
  log.add(EventKind.signalSettled, encodeSignalSettled, { op: 4 });
  log.add(EventKind.signalSettled, encodeSignalSettled, { op: 5, failure: { type: "RunClosedError", message: "ended" } });
  log.add(EventKind.resultReceived, encodeResultReceived, { op: 6, from: "run/a:b", number: 1, result: { data: json(7) } });
  log.add(EventKind.resultReceived, encodeResultReceived, { op: 8, failure: { type: "Broken", message: "no" } });
  const { deliveries, missing, started } = readHistory(log.events);
  const t = 1_700_000_000_000;
  expect(
    JSON.parse(JSON.stringify(deliveries, (_, v: unknown) => (v instanceof Uint8Array ? Buffer.from(v).toString() : v))),
  ).toMatchObject([
    { kind: "start", nowMs: t + 1, input: '{"id":1}' },
    { kind: "resolve", nowMs: t + 2, op: 1, value: '"ok"' },
    { kind: "reject", nowMs: t + 3, op: 2, attempts: 1, failure: { type: "Broken", message: "no" } },
    { kind: "resolve", nowMs: t + 4, op: 3, value: "" },
    { kind: "signal", nowMs: t + 5, name: "paid", value: "9" },
    { kind: "cancel", nowMs: t + 6, reason: "stop" },
    { kind: "resolve", nowMs: t + 7, op: 4, value: "" },
    { kind: "reject", nowMs: t + 8, op: 5, failure: { type: "RunClosedError", message: "ended" } },
    { kind: "resolve", nowMs: t + 9, op: 6, value: "7" },
    { kind: "reject", nowMs: t + 10, op: 8, failure: { type: "Broken", message: "no" } },
  ]);
  expect(missing).toEqual([]);
  expect(started).toMatchObject({ generation: 1, type: "order", seed: 7 });
});

test("readHistory() leaves out what neither the guest asked for nor is told", () => {
  const log = new EventLog();
  log.add(EventKind.runResumed, encodeRunResumed, {});
  log.add(4711, encodeRunResumed, {});
  expect(readHistory(log.events)).toEqual({ deliveries: [], recorded: [], missing: [], toldCount: 0, started: undefined });
});

test("readHistory() names the payloads that are in storage, those of a failure's causes included", () => {
  const log = new EventLog();
  const ref = (byte: number) => ({ ref: { sha256: new Uint8Array(32).fill(byte), size: 3 } });
  log.add(EventKind.signalReceived, encodeSignalReceived, { name: "s", payload: ref(1) });
  log.add(EventKind.activityFailed, encodeActivityFailed, { op: 1, failure: { cause: { details: ref(2) } } });
  const { deliveries, missing } = readHistory(log.events);
  expect(missing.map(({ ref: { sha256 } }) => sha256[0])).toEqual([1, 2]);
  for (const blob of missing) blob.put(json(blob.ref.sha256[0]));
  const [signal, reject] = deliveries;
  expect(signal).toMatchObject({ value: json(1) });
  expect(reject?.kind === "reject" && reject.failure.cause?.details).toEqual({ data: json(2), ref: undefined });
});

test("readHistory() refuses events that can't be read", () => {
  const log = new EventLog();
  const bytes = log.started("order", 1);
  expect(() => readHistory([bytes.subarray(0, 10)])).toThrow(CodecError);
});

test("markReplay() marks what the guest was told before its last recorded operation", () => {
  const log = new EventLog();
  log.started("order", 1);
  log.record({ kind: CommandKind.activity, op: 1, name: "a" }, new Set());
  log.completed(1, "ok");
  log.record({ kind: CommandKind.timer, op: 2, durationMs: 5 }, new Set());
  log.fired(2);
  const history = readHistory(log.events);
  markReplay(history, history.toldCount);
  expect(history.deliveries.map(({ kind, replay }) => [kind, replay ?? false])).toEqual([
    ["start", true],
    ["resolve", true],
    ["resolve", false],
  ]);
});
