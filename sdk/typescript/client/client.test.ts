/** The client against a real node that goes away and comes back. */
import { describe, expect, test } from "bun:test";
import { TestNode } from "../../../node/node-fixture.ts";
import { until } from "../../../tests/until.ts";
import { type HopClient, HopError, UnavailableError, type Workflow } from "./index.ts";
import { fromPayload, toPayload } from "./payload.ts";
import { typeName } from "./workflow.ts";

describe("an outage", () => {
  test("open waits, starts and signals survive a restart and happen once", async () => {
    await using test = await TestNode.start();
    await test.deploy();
    const client = test.client();
    const handle = await client.start("hold", 1);
    const result = handle.result();
    const during: Promise<{ id: string }>[] = [];
    const restarting = test.restart();
    for (let i = 0; i < 20; i++) during.push(client.start("hold", i), client.start("hold", i, { instance: `named-${i}` }));
    await restarting;
    const started = await Promise.all(during);
    expect(new Set(started.map(({ id }) => id)).size).toBe(40);
    expect((await client.list({ limit: 1000 })).run).toHaveLength(41);
    await test.worker();
    await handle.signal("go", "late");
    expect(await result).toBe("late");
  });

  test("that lasts longer than allowed is told with the address", async () => {
    const test = await TestNode.start();
    await test.deploy();
    const client = test.client({ retryMs: 150 });
    const handle = await client.start("hold");
    const result = handle.result().catch((error: unknown) => error);
    await test.node.close();
    const error = (await result) as UnavailableError;
    expect(error).toBeInstanceOf(UnavailableError);
    expect(error.message).toMatch(/127\.0\.0\.1:\d+|shutting down|has stopped/);
    expect(await client.describe(handle.id).catch((cause: unknown) => cause)).toBeInstanceOf(UnavailableError);
    await test[Symbol.asyncDispose]();
  });

  test("a closed client fails what is open, and what comes after", async () => {
    await using test = await TestNode.start();
    await test.deploy();
    const client = test.client();
    const handle = await client.start("hold");
    const open = handle.result().catch((error: unknown) => error);
    client.close();
    expect(await open).toBeInstanceOf(UnavailableError);
    expect(await client.start("hold").catch((error: unknown) => (error as Error).message)).toBe("The client is closed");
  });

  test("a follower goes on where it stopped", async () => {
    await using test = await TestNode.start();
    await test.deploy();
    const handle = await test.client().start("hold");
    let count = 0;
    const following = (async () => {
      for await (const chunk of handle.history({ follow: true })) count += chunk.event.length;
    })();
    await until(() => count > 0);
    await test.restart();
    await test.worker();
    await handle.signal("go", 1);
    await following;
    expect(count).toBe((await handle.describe()).size);
  });
});

describe("values", () => {
  const none = () => Promise.reject(new Error("not a blob"));

  test("what JSON has no form for is refused where it is made", () => {
    expect(() => toPayload(() => {})).toThrow("JSON has no form for it");
    expect(() => toPayload(Symbol("x"))).toThrow(TypeError);
    expect(() => toPayload(1n)).toThrow(TypeError);
    expect(toPayload(undefined)).toBeUndefined();
    expect(() => toPayload("x".repeat(32 * 1024 * 1024))).toThrow(HopError);
  });

  test("an absent and an empty payload are undefined", async () => {
    expect(await fromPayload(undefined, none)).toBeUndefined();
    expect(await fromPayload({ data: new Uint8Array(0), ref: undefined }, none)).toBeUndefined();
  });
});

describe("a workflow", () => {
  test("is named by its function, by its export, or outright", () => {
    async function order(input: { sku: string }): Promise<number> {
      return Promise.resolve(input.sku.length);
    }
    const bare = [(): Promise<number> => Promise.resolve(1)][0] as () => Promise<number>;
    Object.defineProperty(bare, "name", { value: "" });
    expect([typeName("x"), typeName(order), typeName({ bare })]).toEqual(["x", "order", "bare"]);
    expect(() => typeName(bare)).toThrow("pass it as { trialReminder }");
    expect(() => typeName({ order, bare })).toThrow("want one");
  });

  test("gives its types to those who start it", () => {
    const order = ((input: { sku: string }) => Promise.resolve(input.sku.length)) satisfies Workflow<{ sku: string }, number>;
    // Compiled, not run: the wrong input is an error, and the result has the workflow's type.
    const typed = async (client: HopClient): Promise<number> => {
      // @ts-expect-error: `sku` is a string
      await client.execute(order, { sku: 1 });
      // @ts-expect-error: `sku` is a string
      await client.execute({ order }, { sku: 1 });
      const handle = await client.start({ order }, { sku: "a" });
      const named: unknown = await client.execute("order", { any: true });
      return (await handle.result()) + (await client.execute(order, { sku: "b" })) + Number(named);
    };
    expect(typed).toBeFunction();
  });
});

test("durations that are none are refused before anything is sent", async () => {
  await using test = await TestNode.start();
  await test.deploy();
  const client = test.client();
  const refused = (work: () => Promise<unknown>) => expect(work()).rejects.toThrow(RangeError);
  for (const wrong of [-1, Number.NaN, Number.POSITIVE_INFINITY]) {
    await refused(() => client.start("hold", 1, { deadlineMs: wrong }));
    await refused(() => client.start("hold", 1, { instance: "b", contention: "queue", budgetMs: wrong }));
    await refused(() => client.outcome("default:b", { waitMs: wrong }));
    await refused(() => client.schedules.create("s", { workflow: "hold", everyMs: 1000, jitterMs: wrong }));
    await refused(() => client.channels.open("c", { expireMs: wrong }));
  }
  expect((await client.list()).run).toHaveLength(0);
});
