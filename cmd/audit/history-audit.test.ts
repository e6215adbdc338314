import { expect, test } from "bun:test";
import { toHex } from "#core/base";
import { type AuditedEvent, auditHistory } from "./history-audit.ts";
import { makeHistory, sourceOf } from "./history-fixture.ts";

async function audited(made: ReturnType<typeof makeHistory>): Promise<{ events: AuditedEvent[]; problem: string | undefined }> {
  const events: AuditedEvent[] = [];
  try {
    await auditHistory(sourceOf(made), (event) => events.push(event));
    return { events, problem: undefined };
  } catch (error) {
    return { events, problem: (error as Error).message };
  }
}

test("an untouched history passes, with its root and its blobs", async () => {
  const made = makeHistory();
  const history = await auditHistory(sourceOf(made), () => {});
  expect(history.head.size).toBe(4);
  expect(toHex(history.head.lastHash)).toBe(toHex(made.head.lastHash));
  expect(history.blobCount).toBe(2);
  expect((await audited(made)).events.map((event) => event.described.name)).toEqual([
    "RunStarted",
    "ActivityScheduled",
    "ActivityCompleted",
    "RunCompleted",
  ]);
});

test("every flipped bit of every event is found, and the event is named", async () => {
  const wrong: string[] = [];
  for (const [seq, event] of makeHistory().events.entries()) {
    for (let at = 0; at < event.length; at++) {
      for (const bit of [1, 128]) {
        const made = makeHistory();
        (made.events[seq] as Uint8Array)[at] = (event[at] as number) ^ bit;
        const { problem } = await audited(made);
        if (!/^(Event|Blob)/.test(problem ?? "") || !problem?.includes(`vent ${seq} `))
          wrong.push(`event ${seq}, byte ${at}, bit ${bit}: ${problem}`);
      }
    }
  }
  expect(wrong).toEqual([]);
});

test("every flipped byte of a blob is found, and the blob is named", async () => {
  for (const [name, bytes] of makeHistory().blobs) {
    for (let at = 0; at < bytes.length; at++) {
      const made = makeHistory();
      const copy = bytes.slice();
      copy[at] = (copy[at] as number) ^ 1;
      made.blobs.set(name, copy);
      expect((await audited(made)).problem).toStartWith(`Blob ${name}, named by event`);
    }
  }
});

test("a missing blob, a missing event and a history cut short are found", async () => {
  const withoutBlob = makeHistory();
  withoutBlob.blobs.clear();
  expect((await audited(withoutBlob)).problem).toContain("is not what was recorded: there is no such blob");
  const withoutEvent = makeHistory();
  withoutEvent.events.splice(1, 1);
  expect((await audited(withoutEvent)).problem).toStartWith("Event 1 of run/default:order-1 is not what was recorded");
  const cut = makeHistory();
  cut.events.pop();
  expect((await audited(cut)).problem).toStartWith("Event 3 of run/default:order-1 is not what was recorded: size is 3, want 4");
});

test("a failing connection is no verdict on the history", async () => {
  const source = sourceOf(makeHistory());
  const broken = { ...source, blob: () => Promise.reject(Object.assign(new Error("cannot reach"), { reason: "STORE_UNAVAILABLE" })) };
  await expect(auditHistory(broken, () => {})).rejects.toThrow("cannot reach");
});

test("peaks that the events do not come to are refused", async () => {
  const source = sourceOf(makeHistory());
  const claimed = { size: 4, peaks: new Uint8Array(32) };
  await expect(auditHistory({ ...source, claimed: () => Promise.resolve(claimed) }, () => {})).rejects.toThrow(
    "The Merkle peaks of run/default:order-1 are not those of its 4 events",
  );
});
