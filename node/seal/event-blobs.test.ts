import { expect, test } from "bun:test";
import { toHex } from "#core/base";
import {
  EventKind,
  encodeEvent,
  encodeRecord,
  encodeRunStarted,
  encodeSignalQueued,
  encodeSignalReceived,
  encodeStartQueued,
  type StartQueuedInit,
  toBytes,
} from "#proto";
import { hasEvents, noteBlobs } from "./event-blobs.ts";

const hash = (fill: number) => new Uint8Array(32).fill(fill);
const eventOf = (kind: number, payload: Uint8Array, partition = "run/default:a") =>
  toBytes(encodeEvent, { partition, seq: 3, timeMs: 1_800_000_000_000, kind, payload, prevHash: hash(9) });
const recordOf = (...event: Uint8Array[]) => toBytes(encodeRecord, { event, previous: event.map(() => 1) });

function blobsIn(record: Uint8Array): string[] {
  const blobs = new Set<string>();
  noteBlobs(record, blobs);
  return [...blobs].sort();
}

test("payloads that are references, and code of runs that start, are named; nothing else is", () => {
  const inline = toBytes(encodeSignalReceived, { name: "go", payload: { data: new Uint8Array(100) } });
  const reference = toBytes(encodeSignalReceived, { name: "go", payload: { ref: { sha256: hash(1), size: 5 } } });
  const started = toBytes(encodeRunStarted, { type: "order", bundle: hash(2), input: { data: new Uint8Array(1) } });
  expect(blobsIn(recordOf(eventOf(EventKind.signalReceived, inline)))).toEqual([]);
  // A name of 32 bytes begins as a reference does.
  expect(blobsIn(recordOf(eventOf(EventKind.signalReceived, inline, "run/default:".padEnd(32, "x"))))).toEqual([]);
  expect(
    blobsIn(
      recordOf(
        eventOf(EventKind.signalReceived, inline),
        eventOf(EventKind.signalReceived, reference),
        eventOf(EventKind.runStarted, started),
      ),
    ),
  ).toEqual([toHex(hash(1)), toHex(hash(2))]);
});

test("a start that waits names its code and input, and a signal that waits with it its payload", () => {
  const input = { ref: { sha256: hash(1), size: 5 } };
  const queued = (init: StartQueuedInit) => recordOf(eventOf(EventKind.startQueued, toBytes(encodeStartQueued, init)));
  expect(blobsIn(queued({ type: "order", bundle: hash(2) }))).toEqual([toHex(hash(2))]);
  expect(blobsIn(queued({ type: "order", bundle: hash(2), input }))).toEqual([toHex(hash(1)), toHex(hash(2))]);
  const signal = toBytes(encodeSignalQueued, { ticket: 3, name: "go", payload: input });
  expect(blobsIn(recordOf(eventOf(EventKind.signalQueued, signal)))).toEqual([toHex(hash(1))]);
});

test("a record without an event has none, whatever else it says", () => {
  expect(hasEvents(recordOf(eventOf(EventKind.signalReceived, new Uint8Array(0))))).toBe(true);
  expect(hasEvents(toBytes(encodeRecord, { deliveredSeq: 4, lease: [{ partition: "run/default:a", op: 1 }] }))).toBe(false);
});
