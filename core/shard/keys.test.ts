/** Where an activity's idempotency key is. */
import { expect, test } from "bun:test";
import { type Partition, parseRunId, type RunId, runOf } from "#core/base";
import { SessionCapacity } from "#core/dispatch";
import { decodeBody } from "#core/run";
import { CommandKind, decodeEvent, decodeRecord, EventKind, fromBytes } from "#proto";
import { Led } from "./led-fixture.ts";

const run = "n:r" as RunId;

const eventsOf = (led: Led) =>
  led.log.records.flatMap((body) =>
    fromBytes(decodeRecord, body).event.flatMap((bytes) => {
      const { kind, payload } = fromBytes(decodeEvent, bytes);
      return decodeBody(kind, payload) ?? [];
    }),
  );

/** The partition that a call claims. */
function claimed(name: string, idempotencyKey: string): string {
  const led = new Led().lead();
  led.join(new SessionCapacity(10));
  led.answer(led.start(run), { kind: CommandKind.activity, op: 1, name, options: { idempotencyKey } });
  const event = eventsOf(led).find(({ kind }) => kind === EventKind.activityScheduled);
  return event?.kind === EventKind.activityScheduled ? (event.body.claim?.to ?? "") : "";
}

test("a key's partition is named by namespace, activity and key; what is no name, or would be read in two ways, by a hash", () => {
  expect(claimed("charge", "o-1")).toBe("key/n:charge:o-1");
  expect(claimed("charge", "a:b")).toBe("key/n:charge:a:b");
  expect(claimed("charge", "")).toBe("");
  const hashed = [
    ["a:b", "c"],
    ["a", "b\n"],
    ["a", "x".repeat(255)],
    ["a", "y".repeat(255)],
    ["a:b:", "c"],
  ].map(([name = "", key = ""]) => claimed(name, key));
  for (const partition of hashed) {
    expect(partition).toMatch(/^key\/n:[0-9a-f]{64}$/);
    expect(parseRunId(runOf(partition as Partition))).toBe(runOf(partition as Partition));
  }
  expect(new Set(hashed).size).toBe(hashed.length);
});
