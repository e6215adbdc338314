import { join } from "node:path";
import { guestHostSuite } from "../guest-host.suite.ts";
import { openHost, TestBundles } from "./v8-fixture.ts";

const limits = { deliveryMs: 200, denseHeapMb: 48, isolateHeapMb: 32 };

for (const lane of ["dense", "isolate"] as const) {
  guestHostSuite(`V8 host, ${lane} lane`, async () => {
    const bundles = new TestBundles();
    const bundle = await bundles.ofFile(join(import.meta.dir, "suite-workflows-fixture.ts"));
    return { host: openHost({ lane, limits }, bundles), bundle };
  });
}
