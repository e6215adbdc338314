/** Life and death of the process that holds V8. */
import { afterEach, expect, test } from "bun:test";
import { existsSync, mkdirSync, mkdtempSync, readdirSync, readFileSync, rmdirSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { until } from "../../../tests/until.ts";
import { brief, type SuiteBench, SuiteRun } from "../suite-run-fixture.ts";
import { developmentAssets } from "./assets.ts";
import { buildOnce, openHost, TestBundles } from "./v8-fixture.ts";
import type { V8Host, V8HostOptions } from "./v8-host.ts";

const bundles = new TestBundles();
const bundle = await bundles.ofFile(join(import.meta.dir, "suite-workflows-fixture.ts"));
const open: V8Host[] = [];

function bench(options: Omit<V8HostOptions, "source"> = {}): SuiteBench & { host: V8Host } {
  const host = openHost(options, bundles);
  open.push(host);
  return { host, bundle };
}

afterEach(async () => {
  await Promise.all(open.splice(0).map((host) => host.close()));
});

const isAlive = (pid: number): boolean => {
  try {
    return !readFileSync(`/proc/${pid}/stat`, "utf8").includes(") Z ");
  } catch {
    return false;
  }
};

test("a killed process loses its runs, is started again, and runs come back by replay", async () => {
  const problems: string[] = [];
  const at = bench({ onProblem: (message) => problems.push(message) });
  const runs = Array.from({ length: 20 }, () => new SuiteRun(at, "steps"));
  await Promise.all(runs.map((run) => run.start({ n: 2 })));
  const first = at.host.pid!;
  process.kill(first, "SIGKILL");
  await until(() => at.host.pid !== undefined && at.host.pid !== first);
  expect(problems).toEqual([expect.stringContaining("The V8 process ended with SIGKILL")]);
  for (const run of runs) {
    expect(at.host.has(run.run.key)).toBe(false);
    at.host.open(run.run);
    await run.deliver(...run.history.splice(0));
    expect((await run.deliver(run.resolved(1, "a"))).map(brief)).toEqual([["activity", 2, "step", { i: 1 }]]);
  }
});

test("an activation under way when the process dies is lost", async () => {
  const at = bench({ limits: { deliveryMs: 600_000 } });
  await at.host.start();
  const spin = new SuiteRun(at, "spin");
  const neighbour = new SuiteRun(at, "echo");
  const under = [spin.activate(spin.starting()), neighbour.activate(neighbour.starting(1))];
  // Both are sent at the end of this tick; the first never ends.
  await until(() => readFileSync(`/proc/${at.host.pid}/stat`, "utf8").includes(") R "));
  process.kill(at.host.pid!, "SIGKILL");
  const message = expect.stringContaining("SIGKILL");
  expect(await Promise.all(under)).toEqual([
    { kind: "lost", message },
    { kind: "lost", message },
  ]);
});

test("code that kills the process while it is loaded is broken after two deaths", async () => {
  const folderBundle = await bundles.ofText({
    "package.json": '{ "hopskip": { "shared": ["zod"] } }',
    "wf.ts": `import { durable } from "@hopskip/runtime";
      export const w = durable(async () => 1);
      if (!("performance" in globalThis && performance.now() > 1e6)) { /* harmless where the bundler looks at it */ }`,
  });
  const { artefactHash, decodeArtefact, encodeArtefact } = await import("../../bundle/artefact.ts");
  const artefact = decodeArtefact(await bundles.source(folderBundle));
  const deadly = `({shared:function(){"ab".repeat(2**27).replace(/a/g,"c")},perRun:function(){},open:[]})`;
  const bytes = encodeArtefact({ ...artefact, dependencies: deadly });
  const at = { ...bench({ limits: { denseHeapMb: 32 } }), bundle: bundles.add(bytes, artefactHash(bytes)) };
  const kinds: string[] = [];
  for (let i = 0; i < 3; i++) {
    const run = new SuiteRun(at, "w");
    kinds.push((await run.activate(run.starting())).kind);
  }
  expect(kinds).toEqual(["lost", "broken", "broken"]);
}, 30_000);

test("bytes that are not the bundle's are not run", async () => {
  const other = "ab".repeat(32);
  bundles.add(await bundles.source(bundle), other);
  const at = { ...bench(), bundle: other };
  const run = new SuiteRun(at, "echo");
  expect(await run.activate(run.starting(1))).toMatchObject({ kind: "lost", message: expect.stringContaining("hash") });
});

test("nothing of the worker's environment, and no file, is left to the process", async () => {
  const before = process.env.TMPDIR;
  const folder = mkdtempSync(join(tmpdir(), "hop-test-"));
  process.env.TMPDIR = folder;
  process.env.HOP_TEST_SECRET = "do not tell";
  const at = bench();
  await at.host.start();
  if (before === undefined) delete process.env.TMPDIR;
  else process.env.TMPDIR = before;
  const environment = readFileSync(`/proc/${at.host.pid}/environ`, "utf8")
    .split("\0")
    .filter((entry) => entry !== "");
  delete process.env.HOP_TEST_SECRET;
  expect(environment.sort()).toEqual(["LC_ALL=en_US.UTF-8", "TZ=UTC"]);
  expect(readdirSync(folder)).toEqual([]);
  rmdirSync(folder);
});

test("close() ends the process and loses what was under way", async () => {
  const at = bench({ limits: { deliveryMs: 600_000 } });
  await at.host.start();
  const spin = new SuiteRun(at, "spin");
  const under = spin.activate(spin.starting());
  const { pid } = at.host;
  await at.host.close();
  expect(await under).toMatchObject({ kind: "lost" });
  expect(isAlive(pid!)).toBe(false);
  const late = new SuiteRun(at, "echo");
  expect(await late.activate(late.starting())).toMatchObject({ kind: "lost", message: "The V8 host is closed" });
}, 20_000);

test.each(["spin", "waiter"])(
  "no process outlives a killed worker: %s",
  async (type) => {
    const worker = Bun.spawn([process.execPath, join(import.meta.dir, "host-fixture.ts"), type], { stdout: "pipe", stderr: "inherit" });
    const reader = worker.stdout.getReader();
    const pid = Number(new TextDecoder().decode((await reader.read()).value));
    expect(isAlive(pid)).toBe(true);
    worker.kill("SIGKILL");
    await worker.exited;
    await until(() => !isAlive(pid));
  },
  30_000,
);

test("a process that can't start is reported, and the run lost", async () => {
  buildOnce();
  const at = bench({ assets: { ...developmentAssets(), addon: "/nowhere/hopv8.node" } });
  const run = new SuiteRun(at, "echo");
  expect(await run.activate(run.starting(1))).toMatchObject({
    kind: "lost",
    message: expect.stringMatching(/^Cannot start the V8 process .*nowhere/s),
  });
  expect(existsSync("/nowhere")).toBe(false);
});

test("a realm that fills up takes no newcomers, and its runs live on", async () => {
  const at = bench({ limits: { denseHeapMb: 64 } });
  const big = "x".repeat(500_000);
  const runs: SuiteRun[] = [];
  for (let i = 0; i < 200; i++) {
    const run = new SuiteRun(at, "steps");
    await run.start({ n: 2 });
    // Kept by the workflow until it ends: 100 MB over all of them.
    await run.deliver(run.resolved(1, `${i}${big}`));
    runs.push(run);
  }
  for (const run of runs) expect((await run.deliver(run.resolved(2))).map(({ kind }) => kind)).toEqual([5]);
}, 30_000);

test("a folder that a killed worker left is removed by whoever starts next, one in use is not", async () => {
  const before = process.env.TMPDIR;
  const folder = mkdtempSync(join(tmpdir(), "hop-test-"));
  const gone = Bun.spawn(["true"]);
  await gone.exited;
  const used = join(folder, `hop-v8-${process.pid}-x`);
  mkdirSync(join(folder, `hop-v8-${gone.pid}-x`));
  mkdirSync(used);
  process.env.TMPDIR = folder;
  await bench().host.start();
  if (before === undefined) delete process.env.TMPDIR;
  else process.env.TMPDIR = before;
  expect(readdirSync(folder)).toEqual([`hop-v8-${process.pid}-x`]);
  rmdirSync(used);
  rmdirSync(folder);
});

test("a run that V8 can't stop gets its limit at the first death, and is not executed again at once", async () => {
  const huge = await bundles.ofText({
    "wf.ts": `import { durable } from "@hopskip/runtime";
      export const w = durable(async () => new Array(2 ** 28).fill(0).length);`,
  });
  const problems: string[] = [];
  const at = bench({ limits: { deliveryMs: 200 }, onProblem: (message) => problems.push(message) });
  const activate = async (): Promise<unknown> => {
    const run = new SuiteRun({ host: at.host, bundle: huge }, "w", { name: "suite:huge" });
    return await run.activate(run.starting());
  };
  const limit = { kind: "limit", message: expect.stringContaining("memory") };
  expect(await activate()).toEqual(limit);
  expect(await activate()).toEqual(limit);
  expect(problems).toEqual([expect.stringContaining("it was executing run suite:huge")]);
  const other = new SuiteRun(at, "echo");
  expect((await other.start(1)).map(brief)).toEqual([["complete", 1]]);
}, 30_000);
