/** `hop schedule` through the compiled executable, and a server that is killed between instants. */
import { afterAll, beforeAll, expect, test } from "bun:test";
import { Cli } from "./cli-fixture.ts";
import { Cluster, until } from "./harness.ts";

let cluster: Cluster;
let cli: Cli;
beforeAll(async () => {
  cluster = new Cluster();
  cli = await Cli.start(cluster);
}, 60_000);
afterAll(() => cluster[Symbol.asyncDispose]());

interface Shown {
  readonly type: string;
  readonly paused: boolean;
  readonly next: string | null;
  readonly size: number;
  readonly counts: { readonly started: number; readonly skipped: number; readonly missed: number; readonly refused: number };
  readonly recent: readonly { readonly at: string; readonly instance: string; readonly what: string }[];
}

const show = (id: string) => cli.json<Shown>(["schedule", "show", id]);
const runsOf = async (id: string) =>
  (await cli.json<{ run: string; generation: number }[]>(["workflow", "list", "--all"])).filter(({ run }) =>
    run.startsWith(`default:${id}-`),
  );
/** Instants are seconds of the real clock: some are to pass while nobody leads. */
const secondsAfter = (fromMs: number, seconds: number) => until(async () => Date.now() >= fromMs + seconds * 1000);
const instantOf = (run: string) => Date.parse(run.slice(run.indexOf("-20") + 1));

test("every second has its run, over a kill: none is lost, none is doubled", async () => {
  const made = await cli.run(["schedule", "create", "tick", "echo", "--cron", "* * * * * *", "--overlap", "allow-all", "--input", "7"]);
  expect([made.code, made.stderr]).toEqual([0, expect.stringContaining("Created schedule default:tick; next at ")]);
  await until(async () => (await show("tick")).counts.started >= 3);
  await cli.server.kill();
  await secondsAfter(Date.now(), 3);
  await cli.server.restart();
  const before = (await show("tick")).counts.started;
  await until(async () => (await show("tick")).counts.started >= before + 5);
  await cli.ok(["schedule", "pause", "tick", "--reason", "enough"]);
  const { counts, paused } = await show("tick");
  expect([paused, counts.skipped, counts.missed, counts.refused]).toEqual([true, 0, 0, 0]);
  await until(async () => (await runsOf("tick")).length >= counts.started);
  const runs = await runsOf("tick");
  expect(runs.length).toBe(counts.started);
  expect(runs.every(({ generation }) => generation === 1)).toBe(true);
  const instants = runs.map(({ run }) => instantOf(run)).sort((a, b) => a - b);
  expect(instants).toEqual(instants.map((_, i) => (instants[0] as number) + i * 1000));
  const run = runs[0]?.run ?? "";
  expect(await cli.ok(["workflow", "result", run])).toBe("7\n");
  expect(await cli.ok(["audit", run])).toContain("default:tick@schedule");
}, 90_000);

test("a missed window is recorded as missed", async () => {
  await cli.ok(["schedule", "create", "brief", "echo", "--every", "1s", "--overlap", "allow-all", "--catch-up", "1s"]);
  await until(async () => (await show("brief")).counts.started >= 1);
  await cli.server.kill();
  await secondsAfter(Date.now(), 4);
  await cli.server.restart();
  await until(async () => (await show("brief")).counts.missed >= 2);
  await cli.ok(["schedule", "delete", "brief", "--reason", "done with"]);
  expect((await cli.run(["schedule", "show", "brief"])).stderr).toContain("SCHEDULE_NOT_FOUND");
  expect(await cli.ok(["audit", "--schedule", "brief"])).toContain("ScheduleDeleted");
}, 60_000);

test("create, update, list, trigger, backfill, pause, resume, delete and their refusals", async () => {
  await cli.ok(["schedule", "create", "nightly", "echo", "--cron", "30 2 * * *", "--zone", "Europe/Berlin", "--note", "reports"]);
  await cli.ok(["schedule", "update", "nightly", "--overlap", "buffer-all", "--input", '"x"']);
  const listed = await cli.json<{ schedule: string; overlap: string; times: { zone: string } }[]>(["schedule", "list"]);
  expect(listed.find(({ schedule }) => schedule === "default:nightly")).toMatchObject({
    overlap: "buffer-all",
    times: { zone: "Europe/Berlin" },
  });
  expect(await cli.ok(["schedule", "list"])).toContain("30 2 * * * in Europe/Berlin");
  expect(await cli.ok(["workflow", "list", "-o", "ids", "--all"])).not.toContain("default:nightly\n");

  const run = (await cli.ok(["schedule", "trigger", "nightly", "-o", "ids"])).trimEnd();
  expect(await cli.ok(["workflow", "result", run])).toBe('"x"\n');
  const filled = await cli.run(["schedule", "backfill", "nightly", "--from", "2026-03-28", "--to", "2026-03-31"]);
  expect([filled.code, filled.stderr]).toEqual([0, expect.stringContaining("3 instants")]);
  await until(async () => (await show("nightly")).counts.started === 4);
  expect(await cli.ok(["workflow", "result", "default:nightly-2026-03-29T01:00:00Z"])).toBe('"x"\n');
  expect(await cli.ok(["schedule", "show", "nightly"])).toContain("4 started");
  expect(await cli.ok(["audit", "--schedule", "nightly"])).toContain("ScheduleBackfilled");

  const refused = async (args: string[]) => (await cli.run(["schedule", ...args])).stderr;
  expect(await refused(["create", "nightly", "echo", "--every", "1h"])).toContain("SCHEDULE_EXISTS");
  expect(await refused(["create", "odd", "echo", "--cron", "61 * * * *"])).toContain('minute field "61" is out of 0–59');
  expect(await refused(["create", "odd", "echo", "--cron", "@daily", "--zone", "Mars/Olympus"])).toContain("no time zone Mars/Olympus");
  expect(await refused(["create", "odd", "echo"])).toContain("give a cron expression");
  expect(await refused(["pause", "nobody"])).toContain("SCHEDULE_NOT_FOUND");
  expect(await refused(["backfill", "nightly", "--from", "2100-01-01", "--to", "2100-02-01"])).toContain("ends in the future");
}, 60_000);

test("preview needs no server, and says what a change of clocks does", async () => {
  const preview = (...args: string[]) => cluster.run(["schedule", "preview", ...args], { server: { grpc: "127.0.0.1:1" } });
  const shown = await preview("--cron", "30 2 * * *", "--zone", "Europe/Berlin", "--after", "2026-03-28T12:00:00Z", "--count", "2");
  expect([shown.code, shown.stdout]).toEqual([0, expect.stringContaining("2026-03-29 03:00:00 +02:00")]);
  expect(shown.stdout).toContain("left out");
  expect((await preview()).stderr).toContain("want --cron");
  expect((await preview("--cron", "0 0 30 2 *")).stderr).toContain("never fires");
});
