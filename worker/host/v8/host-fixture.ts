/** A worker for tests that kill it: runs a workflow, says which process holds V8, and stays. */
import { join } from "node:path";
import { openHost, TestBundles } from "./v8-fixture.ts";

const bundles = new TestBundles();
const bundle = await bundles.ofFile(join(import.meta.dir, "suite-workflows-fixture.ts"));
const host = openHost({ limits: { deliveryMs: 600_000 } }, bundles);
await host.start();
const type = process.argv[2] ?? "spin";
host.open({ key: 1, run: "ns:a", generation: 1, type, bundle, seed: 1 });
const activation = host.activate(1, [{ kind: "start", nowMs: 1, input: new Uint8Array() }]);
if (type !== "spin") await activation;
console.log(host.pid);
await new Promise(() => setInterval(() => {}, 1000));
