/** What starts of a live name do, through the compiled executable: queue, supersede, budgets, and a server that is killed. */
import { afterAll, beforeAll, expect, test } from "bun:test";
import { Cli } from "./cli-fixture.ts";
import { Cluster } from "./harness.ts";

let cluster: Cluster;
let cli: Cli;
beforeAll(async () => {
  cluster = new Cluster();
  cli = await Cli.start(cluster);
}, 60_000);
afterAll(() => cluster[Symbol.asyncDispose]());

interface Shown {
  readonly run: string;
  readonly status: string;
  readonly generation: number;
  readonly note: string;
  readonly queue: readonly { readonly ticket: number; readonly signals: number }[];
}

const show = (run: string) => cli.json<Shown>(["workflow", "show", run]);
const named = (name: string, ...more: string[]) => ["--instance", name, "--contention", "queue", ...more];
const signal = (run: string, value: string) => cli.ok(["workflow", "signal", run, "item", "--input", value]);
const history = (name: string) => cli.ok(["audit", `default:${name}`]);

test("queued starts have their ids at once, are awaited, signalled and cancelled by them, and run in order over a kill", async () => {
  const live = await cli.started("collects", ...named("acct-77"));
  expect(live).toBe("default:acct-77");
  const said = await cli.run(["run", "collects", ...named("acct-77")]);
  const [second = ""] = said.stdout.split("\n");
  expect(second).toMatch(/^[1-9][0-9]*@default:acct-77$/);
  expect(said.stderr).toContain(`${second}  (queued: it is next)`);
  const third = await cli.started("collects", ...named("acct-77"));
  const fourth = await cli.json<{ run: string; place: number; generation: number }>(["run", "echo", ...named("acct-77"), "--input", "4"]);
  expect(fourth).toMatchObject({ place: 3, generation: 0 });

  await signal(second, '"early"');
  const awaited = cli.run(["workflow", "result", second]);
  expect(await show(second)).toMatchObject({ run: second, status: "queued", generation: 0, note: "place 1 of the queue" });
  expect((await cli.run(["workflow", "query", second, "seen"])).stderr).toContain("RUN_QUEUED");
  expect((await show(live)).queue.map(({ signals }) => signals)).toEqual([1, 0, 0]);

  await cli.ok(["workflow", "cancel", third, "--reason", "not needed"]);
  const left = await cli.run(["workflow", "result", third]);
  expect([left.code, left.stderr]).toEqual([1, expect.stringContaining("was cancelled in the queue: not needed")]);

  await cli.server.kill();
  await cli.server.restart();
  await signal(live, '{"stop":true}');
  // By the bare name it might still be for the run before: that is live until it has ended.
  await signal(second, '{"stop":true}');
  expect((await awaited).stdout).toBe('["early"]\n');
  expect(await cli.ok(["workflow", "result", fourth.run])).toBe("4\n");
  expect(await cli.ok(["workflow", "result", second])).toBe('["early"]\n');
  expect(await show(second)).toMatchObject({ run: second, status: "completed", generation: 2 });
  expect(await show("default:acct-77")).toMatchObject({ status: "completed", generation: 3, queue: [] });
  const told = await history("acct-77");
  for (const kind of ["StartQueued", "SignalQueued", "StartCancelled"]) expect(told).toContain(kind);
}, 60_000);

test("a start that waits longer than its budget fails, and those behind it move up", async () => {
  const live = await cli.started("naps", "--input", "3600000", ...named("acct-78"));
  const ended = cli.run(["run", "echo", "--input", "1", ...named("acct-78", "--budget", "300ms", "--follow")]);
  const { code, stderr } = await ended;
  expect([code, stderr]).toEqual([6, expect.stringContaining("BUDGET_EXPIRED")]);
  const patient = cli.run(["run", "echo", "--input", "2", ...named("acct-78", "--budget", "1h", "--follow")]);
  for (;;) if ((await show(live)).queue.length === 1) break;
  await cli.ok(["workflow", "terminate", live]);
  expect(await patient).toMatchObject({ code: 0, stdout: "2\n" });
  expect(await history("acct-78")).toContain("not begun within 300ms");
}, 60_000);

test("only a start with a reason supersedes, and the reason and its giver are in the ended run's history before its end", async () => {
  const name = "customer-1234-onboarding";
  await cli.started("naps", "--input", "3600000", "--instance", name);
  const superseding = ["run", "echo", "--input", '"new"', "--instance", name, "--contention", "supersede"];
  expect((await cli.run(superseding)).code).toBe(2);
  expect((await cli.run([...superseding, "--override-reason", " "])).code).toBe(2);
  expect((await cli.run(["run", "echo", "--instance", name, "--override-reason", "why"])).code).toBe(2);
  const reason = "incident-4711: run wedged on a dead vendor";
  expect(await cli.ok([...superseding, "--override-reason", reason, "--follow"])).toBe('"new"\n');
  const lines = (await history(name)).split("\n");
  const at = (kind: string) => lines.findIndex((line) => line.includes(kind));
  expect(lines[at("SupersedeRequested")]).toContain(reason);
  expect(lines[at("SupersedeRequested")]).toMatch(/ \S+ \(unverified\) +SupersedeRequested/);
  expect(lines[at("RunTerminated")]).toContain("core after 3");
  expect(
    at("SupersedeRequested") < at("RunTerminated") && at("RunTerminated") < lines.findLastIndex((line) => line.includes("RunStarted")),
  ).toBe(true);
}, 60_000);

test("a repeated start with one key meets its place in the queue, and another input is a conflict", async () => {
  const live = await cli.started("naps", "--input", "3600000", ...named("acct-79"));
  const queued = () => cli.started("echo", "--input", "1", ...named("acct-79", "--idempotency-key", "k"));
  const first = await queued();
  expect(await queued()).toBe(first);
  expect((await cli.run(["run", "echo", "--input", "2", ...named("acct-79", "--idempotency-key", "k")])).code).toBe(5);
  await cli.ok(["workflow", "terminate", live]);
  expect(await cli.ok(["workflow", "result", first])).toBe("1\n");
  expect(await queued()).toBe(first);
}, 60_000);
