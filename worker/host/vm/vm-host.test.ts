import { readFileSync } from "node:fs";
import { join } from "node:path";
import { guestHostSuite } from "../guest-host.suite.ts";
import { buildOnce, TestBundles } from "../v8/v8-fixture.ts";
import { VmHost } from "./vm-host.ts";

const open = async () => {
  buildOnce();
  const bundles = new TestBundles();
  const bundle = await bundles.ofFile(join(import.meta.dir, "../v8/suite-workflows-fixture.ts"));
  const kernel = readFileSync(join(import.meta.dir, "../../../dist/v8/kernel.js"), "utf8");
  return { host: new VmHost({ source: bundles.source, kernel }), bundle };
};

guestHostSuite("node:vm host", open, { hasLimits: false });
