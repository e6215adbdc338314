/**
 * The guide's example of runs that signal each other, as it stands there: its code in real V8,
 * a shard that decides, and everything that Core asks for done by this test.
 */
import { afterAll, beforeAll, expect, test } from "bun:test";
import { fromHex, type RunId } from "#core/base";
import { openHost, TestBundles } from "../worker/host/v8/v8-fixture.ts";
import type { V8Host } from "../worker/host/v8/v8-host.ts";
import { RunRig } from "./run-rig.ts";
import { readSource } from "./sources.ts";
import { until } from "./until.ts";

const bundles = new TestBundles();
let host: V8Host;
let bundle: Uint8Array;

beforeAll(async () => {
  const guide = await readSource("docs/GUIDE.md");
  const code = [...guide.matchAll(/^```ts\n([\s\S]*?)^```/gm)].map(([, text = ""]) => text).find((text) => text.includes("sendSignal("));
  host = openHost({ limits: { deliveryMs: 5000 } }, bundles);
  await host.start();
  bundle = fromHex(await bundles.ofText({ "wf.ts": code ?? "" })) as Uint8Array;
}, 60_000);
afterAll(() => host.close());

test("lines of an order reach their parcel, and get what became of it", async () => {
  const rig = new RunRig({ host, bundle });
  const parcel = rig.result("p-1", "parcel", { size: 3 });
  const lines = await Promise.all(["pen", "ink", "paper"].map((item, i) => rig.result(`line-${i}`, "line", { item, parcel: "p-1" })));
  const packed = { items: ["pen", "ink", "paper"] };
  expect(await parcel).toEqual(packed);
  expect(lines).toEqual([packed, packed, packed]);
  expect(rig.kindsOf("line-0")).toEqual(["runStarted", "signalSent", "signalSettled", "resultAwaited", "resultReceived", "runCompleted"]);
});

test("an address in another namespace, one that is nobody's, and a parcel that has gone", async () => {
  const rig = new RunRig({ host, bundle });
  expect(await rig.result("line-1", "line", { item: "pen", parcel: "nowhere:p-9" })).toEqual({ items: [] });
  expect(await rig.result("p-1", "parcel", { size: 0 })).toEqual({ items: [] });
  expect(await rig.result("line-2", "line", { item: "pen", parcel: "shop:p-1" })).toMatchObject({
    type: "RunError",
    message: "Cannot signal shop:p-1: it has ended",
    cause: { type: "RunClosedError" },
  });
});

test("a run that is terminated ends the waits for it", async () => {
  const rig = new RunRig({ host, bundle });
  const parcel = rig.result("p-1", "parcel", { size: 2 });
  const line = rig.result("line-1", "line", { item: "pen", parcel: "p-1" });
  await until(() => rig.kindsOf("line-1").includes("resultAwaited"));
  await rig.command({ kind: "terminate", run: "shop:p-1" as RunId, reason: "no stock" });
  expect(await line).toMatchObject({ type: "RunError", message: 'Run "shop:p-1" did not complete: Run shop:p-1 was terminated: no stock' });
  expect(await parcel).toMatchObject({ type: "TerminatedError" });
});
