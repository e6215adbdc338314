import { afterAll, beforeAll, describe, expect, test } from "bun:test";
import { cpSync, mkdirSync, mkdtempSync, rmSync, symlinkSync, unlinkSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { CommandKind } from "#proto";
import { decode, type SuiteBench, SuiteRun } from "../host/suite-run-fixture.ts";
import { openHost, projectFolder, TestBundles } from "../host/v8/v8-fixture.ts";
import { ArtefactError, decodeArtefact, encodeArtefact } from "./artefact.ts";
import { BundleError } from "./bundle-error.ts";
import { bundleWorkflows } from "./bundler.ts";

const folders: string[] = [];
function project(files: Record<string, string>): string {
  const folder = projectFolder(files);
  folders.push(folder);
  return folder;
}
afterAll(() => {
  for (const folder of folders) rmSync(folder, { recursive: true, force: true });
});

async function problemsOf(files: Record<string, string>, entries: readonly string[] = ["wf.ts"]): Promise<readonly string[]> {
  const folder = project(files);
  try {
    await bundleWorkflows({ files: entries.map((entry) => join(folder, entry)) });
  } catch (error) {
    if (error instanceof BundleError) return error.problems;
    throw error;
  }
  return [];
}

const order = {
  "package.json": '{ "type": "module" }',
  "wf.ts": `
import { activities, durable, sleep } from "@hopskip/runtime";
import type * as acts from "./activities.ts";
import { addDays, formatISO } from "date-fns";
import zod, { z } from "zod";
import { total } from "./lib/total.ts";
const Order = z.object({ id: z.string(), lines: zod.array(z.number()) });
const { charge } = activities<typeof acts>();
export const order = durable(async (input: unknown) => {
  const { id, lines } = Order.parse(input);
  await charge({ id, sum: total(lines) });
  await sleep(10);
  return { day: formatISO(addDays(new Date(), 1)), sum: total(lines) };
});
export const notOne = 5;
`,
  "lib/total.ts": "export const total = (lines: number[]): number => lines.reduce((a, b) => a + b, 0);",
  "activities.ts":
    'import { readFileSync } from "node:fs";\nexport async function charge(i: { id: string; sum: number }) { readFileSync; return i.sum; }',
};

test("a project with packages becomes one artefact that lists its workflows", async () => {
  const { bytes, hash, workflows } = await bundleWorkflows({ files: [join(project(order), "wf.ts")] });
  expect(workflows).toEqual(["order"]);
  expect(hash).toMatch(/^[0-9a-f]{64}$/);
  const artefact = decodeArtefact(bytes);
  expect(artefact.map.sources.toSorted()).toEqual(["lib/total.ts", "wf.ts"]);
  expect(Buffer.from(encodeArtefact(artefact)).equals(Buffer.from(bytes))).toBe(true);
});

test("the same files give the same bytes, in any folder, from any folder", async () => {
  const first = project(order);
  const elsewhere = mkdtempSync(join(tmpdir(), "hop-elsewhere-with-a-longer-name-"));
  folders.push(elsewhere);
  const second = join(elsewhere, "deep/er");
  mkdirSync(second, { recursive: true });
  cpSync(first, second, { recursive: true, verbatimSymlinks: true });
  const hashes = new Set<string>();
  for (const folder of [first, second]) {
    hashes.add((await bundleWorkflows({ files: [join(folder, "wf.ts")] })).hash);
    for (const cwd of ["/", folder, join(folder, "lib")]) {
      const run = Bun.spawnSync([process.execPath, join(import.meta.dir, "bundle-fixture.ts"), join(folder, "wf.ts")], {
        cwd,
        stderr: "inherit",
      });
      hashes.add(run.stdout.toString().trim());
    }
  }
  expect([...hashes]).toHaveLength(1);
  writeFileSync(join(second, "lib/total.ts"), `${order["lib/total.ts"]}\nexport const unused = 1;`);
  const { hash } = await bundleWorkflows({ files: [join(second, "wf.ts")] });
  writeFileSync(join(second, "lib/total.ts"), order["lib/total.ts"].replace("a + b", "a - b"));
  expect((await bundleWorkflows({ files: [join(second, "wf.ts")] })).hash).not.toBe(hash);
}, 60_000);

test("workflows of several files, under names of several kinds", async () => {
  const folder = project({
    "a.ts": 'import { durable } from "@hopskip/runtime"; export const a = durable(async () => 1); export default durable(async () => 2);',
    "flows/b.ts": 'import { durable } from "@hopskip/runtime"; const inner = durable(async () => 3); export { inner as b, inner as "c" };',
  });
  const { workflows } = await bundleWorkflows({ files: [join(folder, "a.ts"), join(folder, "flows/b.ts")] });
  expect(workflows).toEqual(["a", "b", "c", "default"]);
});

describe("what can't be bundled is refused with file and way out", () => {
  const imports = 'import { durable } from "@hopskip/runtime";\n';
  const workflow = "export const w = durable(async () => 1);\n";

  test("a module of Node", async () => {
    const [problem] = await problemsOf({
      "wf.ts": `${imports}${workflow}import { x } from "./lib/x.ts"; x;`,
      "lib/x.ts": '// reads\nimport { readFileSync } from "node:fs";\nexport const x = readFileSync;',
    });
    expect(problem).toBe(
      'lib/x.ts:2: it imports "node:fs": Node\'s modules do not exist in a workflow; move what needs it into an activity, and import activities by `import type`',
    );
    expect((await problemsOf({ "wf.ts": `${imports}${workflow}import fs from 'fs'; fs;` }))[0]).toStartWith(
      'wf.ts:3: it imports "fs": Node\'s modules',
    );
    expect((await problemsOf({ "wf.ts": `${imports}${workflow}import { sqlite } from "bun:sqlite"; sqlite;` }))[0]).toContain(
      "Bun's modules do not exist in a workflow",
    );
  });

  test("the packages of clients and activities", async () => {
    const [problem] = await problemsOf({ "wf.ts": `${imports}${workflow}import { Client } from "@hopskip/client"; Client;` });
    expect(problem).toStartWith('wf.ts:3: it imports "@hopskip/client": ');
  });

  test("activities as values", async () => {
    const acts = { "activities.ts": "export interface Input { n: number }\nexport async function work(i: Input) { return i.n; }\n" };
    const head = `${imports}import type * as acts from "./activities.ts";\n`;
    const body = "export const w = durable(async () => work({ n: 1 }) as unknown as typeof acts);";
    expect(await problemsOf({ ...acts, "wf.ts": `${head}import { work } from "./activities.ts";\n${body}` })).toEqual([
      'wf.ts:3: it imports "./activities.ts": activities called so would run inside the workflow, neither recorded nor retried; write `import type * as acts from "./activities.ts"` and `const { … } = activities<typeof acts>()`',
    ]);
    // By way of another module, without its extension, and for its effects.
    const way = { "lib/way.ts": 'export { work } from "../activities";' };
    expect((await problemsOf({ ...acts, ...way, "wf.ts": `${imports}import { work } from "./lib/way.ts";\n${body}` }))[0]).toStartWith(
      'lib/way.ts:1: it imports "../activities": ',
    );
    expect((await problemsOf({ ...acts, "wf.ts": `${imports}import "./activities.ts";\n${workflow}` }))[0]).toStartWith("wf.ts:2: ");
    // Types are welcome in each spelling.
    const types = 'import { type Input as A } from "./activities.ts";\nimport { Input } from "./activities.ts";\n';
    expect(
      await problemsOf({ ...acts, "wf.ts": `${head}${types}export const w = durable(async (i: Input & A) => i as typeof acts & A);` }),
    ).toEqual([]);
    const folder = project({ "work.ts": acts["activities.ts"], "wf.ts": `${imports}import { work } from "./work.ts";\n${body}` });
    const activityFiles = [join(folder, "work.ts")];
    await expect(bundleWorkflows({ files: [join(folder, "wf.ts")], activityFiles })).rejects.toThrow('wf.ts:2: it imports "./work.ts": ');
  });

  test("a syntax error", async () => {
    expect((await problemsOf({ "wf.ts": `${imports}${workflow}export const x = ;\n` }))[0]).toMatch(/^wf\.ts:3:18: /);
  });

  test("a package or file that is not there", async () => {
    expect((await problemsOf({ "wf.ts": `${imports}${workflow}import x from "not-installed-at-all"; x;` }))[0]).toMatch(
      /^wf\.ts:3:\d+: .*not-installed-at-all/,
    );
    expect((await problemsOf({ "wf.ts": `${imports}${workflow}import x from "./nowhere.ts"; x;` }))[0]).toMatch(/^wf\.ts:3:\d+: .*nowhere/);
  });

  test("a name that a package does not export", async () => {
    expect(
      (await problemsOf({ "wf.ts": `${imports}import { addDayz } from "date-fns";\nexport const w = durable(async () => addDayz());` }))[0],
    ).toContain("addDayz");
  });

  test("no workflow, or one name twice", async () => {
    expect(await problemsOf({ "wf.ts": "export const w = async () => 1;" })).toEqual([
      "wf.ts exports no workflow: export what durable() returns",
    ]);
    expect(await problemsOf({ "a.ts": imports + workflow, "b.ts": imports + workflow }, ["a.ts", "b.ts"])).toEqual([
      'a.ts and b.ts both export a workflow "w"',
    ]);
  });

  test("code that fails while it is loaded", async () => {
    expect(await problemsOf({ "wf.ts": `${imports}${workflow}throw new RangeError("at once");` })).toEqual([
      "the code fails while its modules are evaluated: RangeError: at once",
    ]);
    expect(
      (await problemsOf({ "wf.ts": `import { activity, durable } from "@hopskip/runtime";\n${workflow}await activity("x");` }))[0],
    ).toContain("wf.ts:3:");
    expect(
      (await problemsOf({ "wf.ts": `import { activity, durable } from "@hopskip/runtime";\n${workflow}activity("x");` }))[0],
    ).toContain("activity() here: it works only inside a workflow");
  });
});

test("bytes that are no artefact are refused", () => {
  for (const text of [
    "",
    "{}",
    "null",
    "[]",
    '{"format":"hopskip-v8/1"}',
    '{"format":"hopskip-v8/9","workflows":[],"dependencies":"","main":"","map":{"sources":[],"mappings":""}}',
    "\xff",
  ]) {
    expect(() => decodeArtefact(Buffer.from(text, "latin1"))).toThrow(ArtefactError);
  }
});

describe("bundles run", () => {
  const bundles = new TestBundles();
  const host = { host: undefined as unknown as SuiteBench["host"] };
  beforeAll(() => {
    host.host = openHost({}, bundles);
  });
  afterAll(() => host.host.close());
  const benchOf = async (files: Record<string, string>): Promise<SuiteBench> => ({ ...host, bundle: await bundles.ofText(files) });
  const resultOf = async (bench: SuiteBench, type: string, input?: unknown, seed = 1): Promise<unknown> => {
    const [command] = await new SuiteRun(bench, type, { seed }).start(input);
    if (command?.kind !== CommandKind.complete) throw new Error(JSON.stringify(command));
    return decode(command.payload?.data);
  };

  test("with zod and date-fns, and stacks that name the sources", async () => {
    const bench = await benchOf(order);
    const run = new SuiteRun(bench, "order");
    const [charge] = await run.deliver({ kind: "start", nowMs: Date.UTC(2026, 0, 1), input: Buffer.from('{"id":"o-1","lines":[1,2,3]}') });
    expect(decode(charge?.payload?.data)).toEqual({ id: "o-1", sum: 6 });
    await run.deliver({ kind: "resolve", nowMs: Date.UTC(2026, 0, 2), op: 1, value: Buffer.from("6") });
    const [end] = await run.deliver({ kind: "resolve", nowMs: Date.UTC(2026, 0, 3), op: 2, value: Buffer.from("") });
    expect(decode(end?.payload?.data)).toEqual({ day: "2026-01-04T00:00:00Z", sum: 6 });
    const [failed] = await new SuiteRun(bench, "order").start({ id: 1 });
    expect(failed?.failure).toMatchObject({ type: "ZodError" });
    expect(failed?.failure?.stack).toContain("wf.ts:10:");
    expect(failed?.failure?.stack).not.toContain("hop:kernel");
  });

  test("`using` is carried out", async () => {
    const bench = await benchOf({
      "wf.ts": `import { durable } from "@hopskip/runtime";
        export const w = durable(async () => { const seen: string[] = [];
          { using a = { [Symbol.dispose]() { seen.push("a"); } }; await using b = { async [Symbol.asyncDispose]() { seen.push("b"); } }; a; b; seen.push("body"); }
          return seen; });`,
    });
    expect(await resultOf(bench, "w")).toEqual(["body", "b", "a"]);
  });

  test("a package that keeps state can't carry it from one run into another", async () => {
    const folder = project({});
    unlinkSync(join(folder, "node_modules"));
    mkdirSync(join(folder, "node_modules/ticker"), { recursive: true });
    writeFileSync(join(folder, "node_modules/ticker/package.json"), '{ "name": "ticker", "main": "index.js" }');
    writeFileSync(
      join(folder, "node_modules/ticker/index.js"),
      "let n = 0; exports.tick = () => ++n; exports.unused = () => typeof process + typeof navigator;",
    );
    const text =
      'import { durable } from "@hopskip/runtime"; import ticker, { tick, unused } from "ticker";\nexport const w = durable(async () => [tick(), tick(), ticker.tick(), unused()]);';
    writeFileSync(join(folder, "wf.ts"), text);
    const apart = { ...host, bundle: await bundles.ofFile(join(folder, "wf.ts")) };
    for (let i = 0; i < 2; i++) expect(await resultOf(apart, "w")).toEqual([1, 2, 3, "undefinedundefined"]);
    // Declared to be shared, its exports are frozen, but what its functions remember is one for all.
    writeFileSync(join(folder, "package.json"), '{ "hopskip": { "shared": ["ticker"] } }');
    const shared = { ...host, bundle: await bundles.ofFile(join(folder, "wf.ts")) };
    expect(await resultOf(shared, "w")).toEqual([1, 2, 3, "undefinedundefined"]);
    expect(await resultOf(shared, "w")).toEqual([4, 5, 6, "undefinedundefined"]);
  });

  test("shared packages that need a run while they are loaded are evaluated for each", async () => {
    const folder = project({ "package.json": '{ "hopskip": { "shared": ["dated"] } }' });
    unlinkSync(join(folder, "node_modules"));
    mkdirSync(join(folder, "node_modules/dated"), { recursive: true });
    symlinkSync(join(import.meta.dir, "../../node_modules/zod"), join(folder, "node_modules/zod"));
    writeFileSync(join(folder, "node_modules/dated/package.json"), '{ "name": "dated", "type": "module", "exports": "./index.js" }');
    writeFileSync(join(folder, "node_modules/dated/index.js"), "const at = Date.now(); export default () => at;");
    writeFileSync(
      join(folder, "wf.ts"),
      'import { durable } from "@hopskip/runtime"; import at from "dated";\nexport const w = durable(async () => at());',
    );
    const bench = { ...host, bundle: await bundles.ofFile(join(folder, "wf.ts")) };
    const [command] = await new SuiteRun(bench, "w").deliver({ kind: "start", nowMs: 77, input: new Uint8Array() });
    expect(decode(command?.payload?.data)).toBe(77);
  });

  test("own modules see no module of Node, packages do without", async () => {
    const bench = await benchOf({
      "wf.ts":
        'import { durable } from "@hopskip/runtime";\nexport const w = durable(async () => [import.meta.url, __dirname, process.env.NODE_ENV]);',
    });
    expect(await resultOf(bench, "w")).toEqual(["file:///workflow.js", "/workflow.js", "production"]);
  });
});
