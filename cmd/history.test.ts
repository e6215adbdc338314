import { expect, test } from "bun:test";
import { blobsOf } from "#core/run";
import { type Event, EventKind, encodeActivityFailed, encodeSignalReceived, type Identity, toBytes } from "#proto";
import { payloadText, timeText } from "./event-text.ts";
import { describe, whoText } from "./history.ts";

const bytes = (text: string) => new TextEncoder().encode(text);
const event = (kind: number, payload: Uint8Array): Event => ({
  partition: "run/default:a",
  seq: 0,
  timeMs: 0,
  logical: 0,
  kind,
  schemaId: 1,
  identity: undefined,
  payload,
  prevHash: new Uint8Array(32),
});

test("every kind of event has a name", () => {
  for (const [name, kind] of Object.entries(EventKind)) {
    if (kind === EventKind.unspecified) continue;
    expect(describe(event(kind, new Uint8Array(0))).name.toLowerCase()).toBe(name.toLowerCase());
  }
});

test("an event of a kind that is not known is shown with its number", () => {
  expect(describe(event(999, bytes("abc")))).toEqual({ name: "kind 999", summary: "3 bytes", message: undefined });
});

test("a failure is told with its causes, and the blobs within it are found", () => {
  const sha256 = new Uint8Array(32).fill(7);
  const failure = { type: "Declined", message: "no", cause: { type: "", message: "card expired", details: { ref: { sha256, size: 99 } } } };
  const described = describe(event(EventKind.activityFailed, toBytes(encodeActivityFailed, { op: 3, attempt: 2, failure, worker: "w1" })));
  expect(described.summary).toBe("#3 Declined: no, caused by card expired attempt 2 by w1");
  expect(blobsOf(described.message)).toEqual([{ sha256, size: 99 }]);
});

test("a payload is shown as it is when short, cut when long, and by its size when it is no text", () => {
  expect(payloadText({ data: bytes('{"a":1}'), ref: undefined })).toBe('{"a":1}');
  expect(payloadText({ data: bytes("x".repeat(1000)), ref: undefined })).toBe(`${"x".repeat(200)}… (1000 bytes)`);
  expect(payloadText({ data: bytes("€".repeat(1000)), ref: undefined })).toEndWith("… (3000 bytes)");
  expect(payloadText({ data: new Uint8Array([255, 254]), ref: undefined })).toBe("2 bytes");
  const signal = describe(
    event(EventKind.signalReceived, toBytes(encodeSignalReceived, { name: "go", payload: { data: bytes("1") }, id: "s" })),
  );
  expect(signal.summary).toBe("go 1 id s");
});

test.each([
  [{ issuer: "local", subject: "ada", verified: false, causeSeq: 0 }, "ada (unverified)"],
  [{ issuer: "https://id.example", subject: "ada", verified: true, causeSeq: 0 }, "ada@https://id.example"],
  [{ issuer: "core", subject: "", verified: false, causeSeq: 7 }, "core after 7"],
] as [Identity, string][])("%j is shown as %s", (identity, text) => {
  expect(whoText(identity)).toBe(text);
});

test("a time beyond the calendar is shown in milliseconds", () => {
  expect(timeText(0)).toBe("1970-01-01T00:00:00.000Z");
  expect(timeText(9e15)).toBe("9000000000000000 ms");
});
