/** Methods, signals and queries through the compiled executable, over a server that is killed. */
import { afterAll, beforeAll, expect, test } from "bun:test";
import { until } from "../until.ts";
import { Cli } from "./cli-fixture.ts";
import { Cluster } from "./harness.ts";

let cluster: Cluster;
let cli: Cli;
beforeAll(async () => {
  cluster = new Cluster();
  cli = await Cli.start(cluster);
}, 60_000);
afterAll(() => cluster[Symbol.asyncDispose]());

test("a run is called, refuses what does not pass, and answers a call once over a kill", async () => {
  const run = await cli.started("account", "--instance", "acct-1", "--input", "500");
  expect(await cli.ok(["call", run, "withdraw", "--input", "200", "--id", "w-1"])).toBe('{"cents":300}\n');
  expect(await cli.ok(["call", run, "withdraw", "--input", "200", "--id", "w-1"])).toBe('{"cents":300}\n');
  const refused = await cli.run(["call", run, "withdraw", "--input", "900"]);
  expect([refused.code, refused.stdout]).toEqual([1, ""]);
  expect(refused.stderr).toContain("withdraw of default:acct-1 did not take its input: RangeError: There are 300 cents");
  const data = await cli.run(["call", run, "withdraw", "--input", "900", "-o", "json"]);
  expect([data.code, JSON.parse(data.stdout)]).toEqual([1, expect.objectContaining({ rejected: true, method: "withdraw" })]);

  const held = cli.run(["call", run, "hold", "--id", "h-1"]);
  await until(async () => (await cli.ok(["query", run, "held"])) === "1\n");
  await cli.server.kill();
  await cli.server.restart();
  await cli.ok(["signal", run, "release", "--input", '"now"']);
  expect((await held).stdout).toBe('"now"\n');
  expect(await cli.ok(["call", run, "hold", "--id", "h-1"])).toBe('"now"\n');
  expect(await cli.ok(["query", run, "cents"])).toBe("300\n");

  expect(await cli.ok(["run", "pays", "--input", '"acct-1"', "--follow"])).toBe('{"cents":250}\n');
  await cli.ok(["signal", run, "close"]);
  expect(await cli.ok(["workflow", "result", run])).toBe("250\n");
  const late = await cli.run(["call", run, "withdraw", "--input", "1"]);
  expect([late.code, late.stderr]).toEqual([5, expect.stringContaining("RUN_CLOSED")]);
  const told = await cli.ok(["audit", run]);
  for (const kind of ["MethodCalled", "MethodAnswered"]) expect(told).toContain(kind);
}, 60_000);

test("a start that signals is one step", async () => {
  const args = ["run", "collects", "--instance", "basket", "--signal", 'item="pen"'];
  await cli.ok(args);
  await cli.ok([...args.slice(0, -1), 'item="ink"']);
  await cli.ok([...args.slice(0, -1), 'item={"stop":true}']);
  expect(await cli.ok(["workflow", "result", "default:basket"])).toBe('["pen","ink"]\n');
}, 60_000);
