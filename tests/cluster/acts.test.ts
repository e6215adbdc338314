/** What operators do to runs, by name and by filter, with the compiled executable. */
import { afterAll, beforeAll, describe, expect, test } from "bun:test";
import { Cli } from "./cli-fixture.ts";
import { Cluster, until } from "./harness.ts";

let cluster: Cluster;
let cli: Cli;
beforeAll(async () => {
  cluster = new Cluster();
  cli = await Cli.start(cluster);
}, 60_000);
afterAll(() => cluster[Symbol.asyncDispose]());

const statusOf = async (run: string) => (await cli.json<{ status: string }>(["workflow", "show", run])).status;
const kindsOf = async (run: string): Promise<string[]> =>
  (await cli.ok(["audit", run])).match(/\b(?:Run|Activity|Timer|Signal|Cancel)[A-Z]\w+/g) ?? [];

describe("a paused run", () => {
  test("takes what reaches it, does nothing of its own, and goes on when it is unpaused", async () => {
    await cli.started("collects", "--instance", "held");
    await until(async () => ((await kindsOf("held")).includes("SignalAwaited") ? true : undefined));
    expect((await cli.run(["workflow", "pause", "held", "--reason", "incident 12"])).stderr).toBe("Paused default:held\n");
    await cli.ok(["workflow", "signal", "held", "item", "--input", "1"]);
    await cli.ok(["workflow", "signal", "held", "item", "--input", '{"stop":true}']);
    expect(await statusOf("held")).toBe("paused");
    expect(await cli.ok(["workflow", "list", "--status", "paused", "-o", "ids"])).toBe("default:held\n");
    // Read from its history, all of it.
    expect(await cli.ok(["workflow", "query", "held", "seen"])).toBe("[1]\n");
    const late = await cli.run(["workflow", "result", "held", "--timeout", "300ms"]);
    expect(late.code).not.toBe(0);
    expect(late.stderr).toContain("default:held is paused: incident 12");
    expect((await kindsOf("held")).filter((kind) => kind === "SignalAwaited")).toHaveLength(1);
    await cli.ok(["workflow", "resume", "held", "--reason", "over"]);
    expect(await cli.ok(["workflow", "result", "held"])).toBe("[1]\n");
    expect(await cli.ok(["audit", "held"])).toMatch(/RunPaused +incident 12[\s\S]*RunUnpaused +over/);
    const ended = await cli.run(["workflow", "pause", "held"]);
    expect([ended.code, ended.stderr]).toEqual([5, expect.stringContaining("it has ended")]);
  });

  test("is told of its cancellation when it goes on, and can be terminated at once", async () => {
    for (const name of ["p-1", "p-2"]) await cli.started("tidies", "--instance", name);
    await cli.ok(["workflow", "pause", "p-1", "p-2"]);
    await cli.ok(["workflow", "cancel", "p-1"]);
    await cli.ok(["workflow", "terminate", "p-2", "--reason", "not needed"]);
    expect([await statusOf("p-1"), await statusOf("p-2")]).toEqual(["paused", "terminated"]);
    await cli.ok(["workflow", "unpause", "p-1"]);
    expect((await cli.run(["workflow", "result", "p-1"])).stderr).toContain("was cancelled");
  });
});

describe("acts by filter", () => {
  test("say how many runs they are for, and do nothing without --yes where nobody can be asked", async () => {
    for (let i = 0; i < 12; i++) await cli.started("naps", "--input", "3600000", "--instance", `nap-${i}`);
    await cli.started("tidies", "--instance", "other");
    const count = async (status: string) =>
      (await cli.ok(["workflow", "list", "--all", "--type", "naps", "--status", status, "-o", "ids"])).split("\n").length - 1;
    await until(async () => ((await count("running")) === 12 ? true : undefined));
    const asked = await cli.run(["workflow", "pause", "--type", "naps"]);
    expect(asked.code).toBe(2);
    expect(asked.stderr).toContain("Pause 12 runs of naps in namespace default that are running?");
    expect(asked.stderr).toContain("--yes");
    expect(await count("paused")).toBe(0);

    const paused = await cli.ok(["workflow", "pause", "--type", "naps", "--yes", "--reason", "vendor down", "-o", "ids"]);
    expect(paused.trimEnd().split("\n").sort()).toEqual(Array.from({ length: 12 }, (_, i) => `default:nap-${i}`).sort());
    await until(async () => ((await count("paused")) === 12 ? true : undefined));
    expect(await statusOf("other")).toBe("running");
    expect(await cli.ok(["audit", "nap-7"])).toMatch(/RunPaused +vendor down/);

    await cli.ok(["workflow", "unpause", "--status", "paused", "--yes"]);
    await until(async () => ((await count("running")) === 12 ? true : undefined));
    await cli.ok(["workflow", "terminate", "--type", "naps", "--yes", "--reason", "clean up"]);
    await until(async () => ((await count("terminated")) === 12 ? true : undefined));
    expect((await cli.run(["workflow", "terminate", "--type", "naps", "--yes"])).stderr).toContain("No runs of naps");
    await cli.ok(["workflow", "terminate", "other"]);
  }, 60_000);

  test("a signal goes to all that a filter chooses, once each", async () => {
    for (let i = 0; i < 3; i++) await cli.started("collects", "--instance", `box-${i}`);
    const listed = async () =>
      (await cli.ok(["workflow", "list", "--type", "collects", "--status", "running", "-o", "ids"])).trimEnd().split("\n");
    await until(async () => ((await listed()).length === 3 ? true : undefined));
    const asked = await cli.run(["signal", "item", "--type", "collects"]);
    expect([asked.code, asked.stderr]).toEqual([2, expect.stringContaining("Signal 3 runs of collects in namespace default that are")]);
    const send = (input: string, id: string) =>
      cli.ok(["signal", "item", "--type", "collects", "--yes", "--input", input, "--id", id, "-o", "ids"]);
    expect((await send("7", "all")).trimEnd().split("\n").sort()).toEqual(["default:box-0", "default:box-1", "default:box-2"]);
    await send("7", "all");
    await send('{"stop":true}', "end");
    for (let i = 0; i < 3; i++) expect(await cli.ok(["workflow", "result", `box-${i}`])).toBe("[7]\n");
    const nameless = await cli.run(["signal", "box-0"]);
    expect([nameless.code, nameless.stderr]).toEqual([2, expect.stringContaining("the signal's name is missing")]);
  }, 60_000);

  test("refuse what is unclear", async () => {
    const said = async (...args: string[]) => {
      const { code, stderr } = await cli.run(["workflow", ...args]);
      expect(code).toBe(2);
      return stderr;
    };
    expect(await said("cancel")).toContain("none are named");
    expect(await said("cancel", "a", "--type", "naps")).toContain("by --type: want one of both");
    expect(await said("unpause", "--status", "running", "--yes")).toContain("want a --status of paused");
    // A variable that is not set must not choose every run there is.
    expect(await said("terminate", "--query", "", "--yes")).toContain("--query is empty");
    expect(await said("cancel", "--type", " ", "--yes")).toContain("--type is empty");
  });
});

describe("what workflows make searchable", () => {
  test("finds runs, live and ended, in lists and for acts", async () => {
    const orders = [
      { customer: "ann", total: 120, paid: "2026-01-31T08:00:00Z" },
      { customer: "O'Hara", total: 99.5 },
      { customer: "ann", total: 10 },
    ];
    for (const [i, order] of orders.entries()) await cli.started("orders", "--input", JSON.stringify(order), "--instance", `o-${i}`);
    const found = async (filter: string) =>
      (await cli.ok(["workflow", "list", "--query", filter, "-o", "ids"])).trimEnd().split("\n").sort();
    await until(async () => ((await found("paid >= '2026-01-31' AND type = 'orders'")).join() === "default:o-0" ? true : undefined));
    expect(await found("customer = 'ann'")).toEqual(["default:o-0", "default:o-2"]);
    expect(await found("customer = 'ann' AND total > 100")).toEqual(["default:o-0"]);
    expect(await found("customer LIKE 'O''%' OR total < 50")).toEqual(["default:o-1", "default:o-2"]);
    expect(await cli.json<{ searchable: unknown }>(["workflow", "show", "o-0"])).toMatchObject({
      searchable: { customer: "ann", total: 120, paid: "2026-01-31T08:00:00.000Z" },
    });
    expect(await cli.ok(["audit", "o-1"])).toContain("SearchableSet");
    await cli.ok(["workflow", "terminate", "--query", "customer = 'ann'", "--yes", "--reason", "moved away"]);
    await until(async () => ((await found("customer = 'ann' AND status = 'terminated'")).length === 2 ? true : undefined));
    expect(await found("customer = 'ann' AND status = 'running'")).toEqual([""]);
    expect((await cli.run(["workflow", "list", "--query", "customer = ann"])).stderr).toContain("at character 12: want a value");
    await cli.ok(["workflow", "terminate", "o-1"]);
  });
});

describe("hop deployment", () => {
  test("holds, ramps, promotes, rolls back and drains versions; live runs stay where they are", async () => {
    const write = (version: number) =>
      Bun.write(
        `${cluster.folder}/project/versions.ts`,
        `import { durable, signal } from "@hopskip/runtime";
export const staged = durable(async () => { await signal("go"); return ${version}; });`,
      );
    await write(1);
    await cli.ok(["deploy", "project/versions.ts"]);
    await cli.started("staged", "--instance", "old");
    await write(2);
    await cli.ok(["deploy", "project/versions.ts", "--hold"]);
    type Version = { readonly version: number; readonly starts: string; readonly bundle: string };
    const versions = async () => cli.json<Version[]>(["deployment", "list", "staged"]);
    const [held, current] = (await versions()) as [Version, Version];
    expect([held.starts, current.starts]).toEqual(["", "current"]);
    const bundleOf = async (name: string) => {
      await cli.started("staged", "--instance", name);
      return (await cli.json<{ bundle: string }>(["workflow", "show", name])).bundle;
    };
    expect(await bundleOf("held")).toBe(current.bundle);

    const ramped = await cli.run(["deployment", "ramp", "staged", String(held.version), "50%", "--reason", "try it"]);
    expect(ramped.stderr).toContain(`50 % start on version ${held.version}, 50 % on version ${current.version}`);
    const seen = new Set<string>();
    for (let i = 0; i < 12; i++) seen.add(await bundleOf(`ramp-${i}`));
    expect(seen).toEqual(new Set([held.bundle, current.bundle]));

    await cli.ok(["deployment", "promote", "staged", String(held.version)]);
    expect((await versions()).map((one) => one.starts)).toEqual(["current", "previous"]);
    expect(await bundleOf("promoted")).toBe(held.bundle);
    expect((await cli.json<{ bundle: string }>(["workflow", "show", "old"])).bundle).toBe(current.bundle);

    const late = await cli.run(["deployment", "drain", "staged", String(current.version), "--timeout", "1s"]);
    expect(late.code).not.toBe(0);
    expect(late.stderr).toMatch(/\d+ live runs are on version/);
    await cli.ok(["workflow", "terminate", "--type", "staged", "--query", `bundle = '${current.bundle}'`, "--yes", "--reason", "done"]);
    expect((await cli.run(["deployment", "drain", "staged", String(current.version), "--timeout", "20s"])).stderr).toContain(
      "No live run is on version",
    );

    await cli.ok(["deployment", "rollback", "staged", "--reason", "it was better"]);
    expect(await bundleOf("rolled-back")).toBe(current.bundle);
    expect((await cli.run(["deployment", "rollback", "staged"])).stderr).toContain("it may have been rolled back already");
    expect((await cli.run(["deployment", "ramp", "staged", String(held.version), "100"])).stderr).toContain("hop deployment promote");
    expect((await cli.run(["deployment", "drain", "staged", String(current.version)])).stderr).toContain("new runs start on it");
    expect((await cli.run(["deployment", "promote", "staged", "99999"])).stderr).toContain("the versions of it that are known are");
    expect((await cli.run(["deployment", "list", "nothing"])).code).toBe(4);
    await cli.ok(["workflow", "terminate", "--type", "staged", "--yes", "--reason", "done"]);
  }, 120_000);
});
