/** temporal features#624, sdk-python#235: an answer above 4 MB could not be sent, and was tried again for ever. */
import { afterAll, beforeAll, describe, expect, test } from "bun:test";
import { type HopError, WorkflowFailedError } from "#sdk/client";
import { CaseServer } from "./case-fixture.ts";

let at: CaseServer;
beforeAll(async () => {
  at = await CaseServer.up();
});
afterAll(() => at[Symbol.asyncDispose]());

const MiB = 1 << 20;
const sizes: [string, number][] = [
  ["64 KiB", 64 << 10],
  ["64 KiB + 1", (64 << 10) + 1],
  ["4 MiB − 1", 4 * MiB - 1],
  ["4 MiB", 4 * MiB],
  ["4 MiB + 1", 4 * MiB + 1],
  ["32 MiB, the limit", 32 * MiB],
];

/** A value whose JSON has so many bytes. */
const value = (bytes: number) => "x".repeat(bytes - 2);

describe.each(sizes)("%s", (_, bytes) => {
  test("as an activity's result and the next one's input passes whole", async () => {
    expect(await at.client.execute("pass", bytes)).toBe(bytes - 2);
  }, 60_000);

  test("as a signal passes whole", async () => {
    const handle = await at.client.start("lengths");
    await handle.signal("item", value(bytes));
    await handle.signal("item", "");
    expect(await handle.result()).toEqual([bytes - 2]);
  }, 60_000);
});

describe("above the limit", () => {
  test.each([
    ["32 MiB + 1", 32 * MiB + 1],
    ["64 MiB", 64 * MiB],
  ])(
    "%s as an input or a signal is refused at the call, once",
    async (_, bytes) => {
      const input = await at.client.start("collect", value(bytes)).catch((error: unknown) => error);
      expect([(input as HopError).name, (input as HopError).reason]).toEqual(["HopError", "PAYLOAD_TOO_LARGE"]);
      const handle = await at.client.start("collect");
      const signal = await handle.signal("item", value(bytes)).catch((error: unknown) => error);
      expect((signal as HopError).reason).toBe("PAYLOAD_TOO_LARGE");
    },
    60_000,
  );

  test("64 MiB as an activity's result fails the activity for good, with the size in its message", async () => {
    const error = await at.client.execute("pass", 64 * MiB).catch((e: unknown) => e);
    expect(error).toBeInstanceOf(WorkflowFailedError);
    expect(JSON.stringify((error as WorkflowFailedError).failure)).toContain(`${64 * MiB}`);
  }, 60_000);
});

test("many small values that add up to far more than a message are carried together", async () => {
  expect(await at.client.execute("passMany", { count: 500, bytes: 60_000 })).toBe(500 * 59_998);
  const handle = await at.client.start("collect");
  await Promise.all(Array.from({ length: 300 }, () => handle.signal("item", value(60_000))));
  await at.server.kill();
  await at.again();
  const again = at.client.handle<string[]>(handle.id);
  await again.signal("item", { stop: true });
  const seen = await again.result();
  expect([seen.length, seen.every(({ length }) => length === 59_998)]).toEqual([300, true]);
}, 60_000);
