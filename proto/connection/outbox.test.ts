import { expect, test } from "bun:test";
import { fromBytes } from "../codec/messages.ts";
import { decodeWorkerFrame, encodeWorkerItem, type WorkerItem, type WorkerItemInit } from "../gen/codec.ts";
import { Outbox } from "./outbox.ts";

const bounds = { frameBytesSoft: 100, frameBytesMax: 1000, bufferedBytesMax: 10_000 };
const problem = (text: string): WorkerItemInit => ({ kind: "activated", value: { problem: text } });

function framesOf(outbox: Outbox<WorkerItemInit>): Uint8Array[] {
  const frames: Uint8Array[] = [];
  for (let frame = outbox.next(0); frame !== undefined; frame = outbox.next(0)) frames.push(frame);
  return frames;
}

function lengthOf(item: WorkerItem): number | undefined {
  if (item.kind === "activated") return item.value.problem.length;
  return item.kind === "taskDone" ? item.value.result?.data.length : undefined;
}

const lengthsOf = (frames: Uint8Array[]) => frames.map((frame) => fromBytes(decodeWorkerFrame, frame).item.map(lengthOf));

test("next() gives the items of a tick as one frame", () => {
  const outbox = new Outbox(encodeWorkerItem, bounds);
  for (const length of [1, 2, 3]) outbox.add(problem("a".repeat(length)));
  expect(lengthsOf(framesOf(outbox))).toEqual([[1, 2, 3]]);
  expect(outbox.bytes).toBe(0);
});

test("a frame is cut before the item that would take it above the soft bound", () => {
  const outbox = new Outbox(encodeWorkerItem, bounds);
  for (const length of [40, 40, 40, 500, 10, 10]) outbox.add(problem("a".repeat(length)));
  expect(lengthsOf(framesOf(outbox))).toEqual([[40, 40], [40], [500], [10, 10]]);
});

test("items added while frames wait keep their order, also after the buffer is compacted", () => {
  const outbox = new Outbox(encodeWorkerItem, { frameBytesSoft: 1 << 20, frameBytesMax: 1 << 24, bufferedBytesMax: 1 << 28 });
  const lengths: number[] = [];
  const got: (number | undefined)[] = [];
  for (let round = 0; round < 60; round++) {
    for (let i = 0; i < 3; i++) {
      const length = 400_000 + round * 10 + i;
      lengths.push(length);
      outbox.add({ kind: "taskDone", value: { result: { data: new Uint8Array(length) } } });
    }
    got.push(...lengthsOf([outbox.next(0) as Uint8Array]).flat());
  }
  got.push(...lengthsOf(framesOf(outbox)).flat());
  expect(got).toEqual(lengths);
});

test("next() leaves the headroom free in front of the frame", () => {
  const outbox = new Outbox(encodeWorkerItem, bounds);
  outbox.add(problem("abc"));
  const frame = outbox.next(4) as Uint8Array;
  expect(lengthsOf([frame.subarray(4)])).toEqual([[3]]);
});

test("an item that is too large or fails to encode leaves the outbox as it was", () => {
  const outbox = new Outbox<WorkerItemInit>((writer, item) => {
    encodeWorkerItem(writer, item);
    if (item.kind === "draining") throw new Error("no");
  }, bounds);
  outbox.add(problem("ab"));
  expect(() => outbox.add(problem("a".repeat(1000)))).toThrow("Cannot send an item: it has 1009 bytes, at most 1000 are allowed");
  expect(() => outbox.add({ kind: "draining", value: {} })).toThrow("no");
  outbox.add(problem("abc"));
  expect(lengthsOf(framesOf(outbox))).toEqual([[2, 3]]);
});
