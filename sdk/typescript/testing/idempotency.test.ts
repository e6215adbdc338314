/** Idempotency keys of activities in the test kit, which has Core's. */
import { expect, test } from "bun:test";
import { buildOnce } from "../../../worker/host/v8/v8-fixture.ts";
import { type MockContext, TestEnvironment } from "./index.ts";

buildOnce();
const workflows = new URL("./keys-fixture.ts", import.meta.url);

async function environment() {
  let charges = 0;
  const charge = async (_input: unknown, { sleep, idempotencyKey }: MockContext) => {
    await sleep(1000);
    return { id: `${idempotencyKey}/${++charges}` };
  };
  return TestEnvironment.create<typeof import("./keys-fixture.ts")>({ workflows, activities: { charge } });
}

test("runs that call an activity with one key get one execution's result, those that wait for it too", async () => {
  const env = await environment();
  const [one, two] = [await env.start("chargeOnce", { order: "o-1", cents: 5 }), await env.start("chargeOnce", { order: "o-1", cents: 5 })];
  expect([await one.result(), await two.result()]).toEqual(["o-1/1", "o-1/1"]);
  expect(await env.run("chargeOnce", { order: "o-1", cents: 5 })).toBe("o-1/1");
  expect(await env.run("chargeOnce", { order: "o-2", cents: 5 })).toBe("o-2/2");
  expect(env.calls("charge")).toHaveLength(2);
});

test("a key with other arguments is refused, and says so", async () => {
  const env = await environment();
  await env.run("chargeOnce", { order: "o-1", cents: 5 });
  await expect(env.run("chargeOnce", { order: "o-1", cents: 6 })).rejects.toThrow(
    'Cannot execute activity charge with idempotency key "o-1": that key was used with other arguments',
  );
  expect(env.calls("charge")).toHaveLength(1);
});

test("after a week a key is forgotten", async () => {
  const env = await environment();
  expect(await env.run("chargeOnce", { order: "o-1", cents: 5 })).toBe("o-1/1");
  await env.advance("6d");
  expect(await env.run("chargeOnce", { order: "o-1", cents: 5 })).toBe("o-1/1");
  await env.advance("1d1h");
  expect(await env.run("chargeOnce", { order: "o-1", cents: 6 })).toBe("o-1/2");
});
