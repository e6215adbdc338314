/** The order's workflow in the test kit: no server, no shop, and every place where a crash could be. */
import { expect, test } from "bun:test";
import { type MockContext, TestEnvironment } from "#sdk/testing";
import { buildOnce } from "../../worker/host/v8/v8-fixture.ts";
import type { Order } from "./order.ts";

buildOnce();

const shop = () => ({
  reserve: () => ({ reserved: 1 }),
  release: () => ({ released: true }),
  charge: ({ card }: { card: string }) => {
    if (card === "empty") throw Object.assign(new Error("no money"), { name: "CardDeclined" });
    return { charge: `ch_${card}` };
  },
  // The carrier is flaky and slow.
  ship: async (_: unknown, { attempt, sleep }: MockContext) => {
    await sleep("2s");
    if (attempt < 3) throw new Error("no answer");
    return { tracking: "tr_1" };
  },
  sendEmail: () => ({ sent: true }),
});

const environment = () =>
  TestEnvironment.create<typeof import("./workflow.ts")>({
    workflows: new URL("./workflow.ts", import.meta.url),
    activities: shop,
  });

const order = (card: string): Order => ({
  ...{ id: "o1", customer: "Ada", email: "ada@example.com", sku: "book", quantity: 1, totalCents: 1200, currency: "EUR", note: "" },
  card,
});

test("an order is charged, held back for its grace, shipped and announced", async () => {
  const env = await environment();
  const begun = env.now;
  expect(await env.run("order", order("visa"))).toEqual({ status: "shipped", charge: "ch_visa", tracking: "tr_1" });
  expect(env.now - begun).toBeGreaterThan(9000);
  expect(env.calls().map(({ activity }) => activity)).toEqual(["reserve", "charge", "ship", "ship", "ship", "sendEmail"]);
});

test("a declined card releases the goods, and says so", async () => {
  const env = await environment();
  expect(await env.run("order", order("empty"))).toMatchObject({ status: "declined" });
  expect(env.calls("sendEmail").map(({ input }) => input)).toEqual([{ order: "o1", to: "ada@example.com", template: "declined" }]);
});

test("a crash changes neither what becomes of an order nor its history", async () => {
  const env = await environment();
  const { coreCrashes } = await env.crashEverywhere(async (each) => [
    await each.run("order", order("visa")),
    await each.run("order", order("empty")),
  ]);
  expect(coreCrashes).toBeGreaterThan(15);
});
