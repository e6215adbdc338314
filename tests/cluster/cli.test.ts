/** Each command of the compiled executable, against a server of its own. */
import { afterAll, beforeAll, describe, expect, test } from "bun:test";
import { readFileSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { awkwardNames, Cli } from "./cli-fixture.ts";
import { Cluster, until } from "./harness.ts";

let cluster: Cluster;
let cli: Cli;
beforeAll(async () => {
  cluster = new Cluster();
  cli = await Cli.start(cluster);
}, 60_000);
afterAll(() => cluster[Symbol.asyncDispose]());

const path = (name: string) => join(cluster.folder, name);
interface RunShown {
  readonly run: string;
  readonly status: string;
  readonly type: string;
  readonly generation: number;
}

describe("hop run", () => {
  test("prints the id alone into a pipe and says on standard error what happened", async () => {
    const { code, stdout, stderr } = await cli.run(["run", "greet", "--input", '"Ada"']);
    expect(code).toBe(0);
    expect(stdout).toMatch(/^default:wf_[0-9a-z]+\n$/);
    expect(stderr).toBe(`▸ ${stdout.trimEnd()}  (started)\n`);
  });

  test("--follow prints the result as JSON, and nothing else on standard output", async () => {
    const { code, stdout, stderr } = await cli.run(["run", "greet", "--input", '"Ada"', "--follow"]);
    expect({ code, stdout }).toEqual({ code: 0, stdout: '"Hello, ADA!"\n' });
    expect(stderr).toMatch(/^▸ default:wf_[0-9a-z]+ {2}\(started\)\n$/);
  });

  test("--follow ends with 1 when the run fails, and says how", async () => {
    const { code, stdout, stderr } = await cli.run(["run", "fails", "--input", '"no such order"', "--follow"]);
    expect({ code, stdout }).toEqual({ code: 1, stdout: "" });
    expect(stderr).toContain("failed: RangeError: no such order");
    const ended = await cli.run(["run", "fails", "--input", '"x"', "--follow", "-o", "json"]);
    expect(ended.code).toBe(1);
    expect(JSON.parse(ended.stdout)).toMatchObject({ status: "failed", failure: { type: "RangeError", message: "x" } });
  });

  test("--follow waits through retries of an activity", async () => {
    expect(await cli.ok(["run", "insist", "--input", '"k"', "--follow"])).toBe("3\n");
  });

  test("takes input from a file and from standard input, unchanged", async () => {
    writeFileSync(path("in.json"), '{"a": [1, "é🦘", null]}\n');
    expect(await cli.ok(["run", "echo", "--input", "@in.json", "--follow"])).toBe('{"a":[1,"é🦘",null]}\n');
    expect(await cli.ok(["run", "echo", "--input", "-", "--follow"], { input: '{"b":2}' })).toBe('{"b":2}\n');
  });

  test("a workflow without a result gives null, a large one comes whole from the blob store", async () => {
    expect(await cli.ok(["run", "echo", "--follow"])).toBe("null\n");
    expect(await cli.ok(["run", "large", "--input", "200000", "--follow"])).toBe(`"${"x".repeat(200_000)}"\n`);
  });

  test("of a live instance attaches, or is refused with 5 when asked to", async () => {
    const id = await cli.started("naps", "--input", "3600000", "--instance", "nap-1");
    expect(id).toBe("default:nap-1");
    expect((await cli.run(["run", "naps", "--input", "3600000", "--instance", "nap-1"])).stderr).toContain("(attached to the live run)");
    const refused = await cli.run(["run", "naps", "--input", "1", "--instance", "nap-1", "--contention", "reject"]);
    expect({ code: refused.code, stdout: refused.stdout }).toEqual({ code: 5, stdout: "" });
    expect(refused.stderr).toContain("INSTANCE_LIVE");
  });

  test("with one idempotency key is one run, and a conflict with other arguments", async () => {
    const first = await cli.started("echo", "--input", "1", "--idempotency-key", "once");
    expect(await cli.started("echo", "--input", "1", "--idempotency-key", "once")).toBe(first);
    expect((await cli.run(["run", "echo", "--input", "2", "--idempotency-key", "once"])).code).toBe(5);
  });

  test("past its deadline has timed out", async () => {
    const { code, stderr } = await cli.run(["run", "naps", "--input", "3600000", "--deadline", "50ms", "--follow"]);
    expect(code).toBe(1);
    expect(stderr).toContain("ran out of time");
  });

  test("of what is not deployed ends with 4 and says what is", async () => {
    const { code, stderr } = await cli.run(["run", "nothing"]);
    expect(code).toBe(4);
    expect(stderr).toContain("WORKFLOW_NOT_DEPLOYED");
    expect(stderr).toContain("deployed are");
  });

  test("--follow --timeout gives up with 6 while the run goes on", async () => {
    const { code, stderr } = await cli.run(["run", "naps", "--input", "3600000", "--instance", "nap-2", "--follow", "--timeout", "100ms"]);
    expect(code).toBe(6);
    expect(stderr).toContain("has not ended after 100ms");
    expect(await cli.json<RunShown>(["workflow", "show", "nap-2"])).toMatchObject({ status: "running" });
  });

  test("--follow ends with 130 when it is interrupted, and the run goes on", async () => {
    const following = cluster.launch(["run", "naps", "--input", "3600000", "--instance", "nap-3", "--follow"], { server: cli.server });
    await following.line(/started/);
    following.signal("SIGINT");
    expect(await following.exited).toBe(130);
    expect(following.stderr).toContain("Stopped waiting; default:nap-3 goes on");
    expect(await cli.json<RunShown>(["workflow", "show", "nap-3"])).toMatchObject({ status: "running" });
  });
});

describe("hop run --input-lines", () => {
  test("starts a run for each line, reports each bad line and drops none", async () => {
    const lines = ['{"id":"l-1"}', "", "{bad", '{"id":"l-2"}', '{"no":"id"}', '"text"', '{"id":"l-3"}'].join("\n");
    const { code, stdout, stderr } = await cli.run(["run", "echo", "--input-lines", "-", "--instance-field", "id"], { input: lines });
    expect({ code, stdout }).toEqual({ code: 2, stdout: "default:l-1\ndefault:l-2\ndefault:l-3\n" });
    expect(stderr).toContain('line 3: Cannot read it as JSON: column 2: got "b"');
    expect(stderr).toContain('line 5: Cannot name the run: its field "id" is missing');
    expect(stderr).toContain("line 6: Cannot name the run");
    expect(stderr).toMatch(/Started 3 runs in .*: 3 lines with errors\n$/);
  });

  test("--follow gives each result, in the order of the lines", async () => {
    writeFileSync(path("many.jsonl"), Array.from({ length: 500 }, (_, i) => JSON.stringify({ i })).join("\n"));
    const out = await cli.json<{ line: number; status: string; result: unknown }[]>([
      "run",
      "echo",
      "--input-lines",
      "many.jsonl",
      "--follow",
    ]);
    expect(out.map(({ line, status, result }) => ({ line, status, result }))).toEqual(
      Array.from({ length: 500 }, (_, i) => ({ line: i + 1, status: "completed", result: { i } })),
    );
  });

  test("repeated with one key starts nothing new", async () => {
    const input = '"a"\n"b"\n';
    const ids = await cli.ok(["run", "echo", "--input-lines", "-", "--idempotency-key", "batch-1"], { input });
    expect(ids.trimEnd().split("\n")).toHaveLength(2);
    expect(await cli.ok(["run", "echo", "--input-lines", "-", "--idempotency-key", "batch-1"], { input })).toBe(ids);
  });

  test("ends with 1 when a run fails, and says which line", async () => {
    const { code, stderr } = await cli.run(["run", "fails", "--input-lines", "-", "--follow"], { input: '"first"\n"second"\n' });
    expect(code).toBe(1);
    expect(stderr).toContain("failed: RangeError: second");
    expect(stderr).toContain("line 2:");
  });

  test("a file that is not there is a usage error", async () => {
    expect((await cli.run(["run", "echo", "--input-lines", "none.jsonl"])).code).toBe(2);
  });
});

describe("hop workflow", () => {
  test("list filters by type and status, in all four forms", async () => {
    const id = await cli.started("tidies", "--instance", "list-me");
    const rows = await cli.json<RunShown[]>(["workflow", "list", "--type", "tidies", "--status", "running"]);
    expect(rows).toMatchObject([{ run: id, type: "tidies", status: "running", generation: 1 }]);
    expect(await cli.ok(["workflow", "list", "--type", "tidies", "-o", "ids"])).toBe(`${id}\n`);
    expect(JSON.parse(await cli.ok(["workflow", "list", "--type", "tidies", "-o", "jsonl"]))).toEqual(rows[0] as never);
    expect(await cli.ok(["workflow", "list", "--type", "tidies"])).toMatch(
      /^RUN +GEN +TYPE +STATUS +STARTED +TOOK +NOTE\ndefault:list-me +1 +tidies +running/,
    );
    expect(await cli.json(["workflow", "list", "--type", "none"])).toEqual([]);
  });

  test("list gives as many as are asked for, and says that there are more", async () => {
    await cli.ok(["run", "echo", "--input-lines", "-"], { input: Array.from({ length: 30 }, (_, i) => i).join("\n") });
    const { stdout, stderr } = await cli.run(["workflow", "list", "--type", "echo", "--limit", "7"]);
    expect(stdout.trimEnd().split("\n")).toHaveLength(8);
    expect(stderr).toContain("There are more");
    expect((await cli.ok(["workflow", "list", "--type", "echo", "--all", "-o", "ids"])).split("\n").length).toBeGreaterThan(30);
  });

  test("signal, query and result carry values in, out and back", async () => {
    await cli.started("collects", "--instance", "box");
    await cli.ok(["workflow", "signal", "box", "item", "--input", '{"n":1}']);
    const sent = await cli.run(["workflow", "signal", "default:box", "item"]);
    expect(sent.stderr).toContain("Sent signal item to default:box");
    await cli.ok(["workflow", "signal", "box", "item", "--input", '"twice"', "--id", "s1"]);
    await cli.ok(["workflow", "signal", "box", "item", "--input", '"twice"', "--id", "s1"]);
    expect(await cli.ok(["workflow", "query", "box", "seen"])).toBe('[{"n":1},null,"twice"]\n');
    expect(await cli.json(["workflow", "query", "box", "count", "--input", "10"])).toEqual({
      run: "default:box",
      query: "count",
      result: 30,
    });
    await cli.ok(["workflow", "signal", "box", "item", "--input", '{"stop":true}']);
    expect(await cli.ok(["workflow", "result", "box"])).toBe('[{"n":1},null,"twice"]\n');
    expect((await cli.run(["workflow", "signal", "box", "item"])).code).toBe(5);
  });

  test("query of an unknown name ends with 4 and names those that are declared", async () => {
    await cli.started("collects", "--instance", "ask");
    const { code, stderr } = await cli.run(["workflow", "query", "ask", "nope"]);
    expect(code).toBe(4);
    expect(stderr).toContain("seen");
  });

  test("show says what a run waits for", async () => {
    await cli.started("naps", "--input", "3600000", "--instance", "shown", "--deadline", "2h");
    await until(async () =>
      (await cli.json<{ pending: unknown[] }>(["workflow", "show", "shown"])).pending.length > 0 ? true : undefined,
    );
    const shown = await cli.json<{ pending: object[]; deadlineAt: string; size: number; root: string }>(["workflow", "show", "shown"]);
    expect(shown).toMatchObject({ run: "default:shown", status: "running", pending: [{ op: 1, kind: "TimerStarted" }], outcome: null });
    expect(shown.root).toMatch(/^[0-9a-f]{64}$/);
    expect(await cli.ok(["workflow", "show", "shown"])).toMatch(/status +running[\s\S]*OP +WAITS FOR/);
  });

  test("cancel lets a run clean up; terminate does not; many are named on standard input", async () => {
    for (const name of ["c-1", "c-2", "t-1"]) await cli.started("tidies", "--instance", name);
    await cli.ok(["workflow", "cancel", "-", "--reason", "not needed"], { input: "default:c-1\nc-2\n" });
    const result = await cli.run(["workflow", "result", "c-1"]);
    expect(result.code).toBe(1);
    expect(result.stderr).toContain("was cancelled");
    expect(await cli.ok(["audit", "c-1"])).toContain('ActivityScheduled  #2 upper "cleaned up"');
    await cli.ok(["workflow", "terminate", "t-1", "--reason", "gone wrong"]);
    expect((await cli.run(["workflow", "result", "t-1"])).stderr).toContain("was terminated");
    expect(await cli.ok(["audit", "t-1"])).toMatch(/RunTerminated +gone wrong/);
  });

  test("acts on the runs that it can and reports the others", async () => {
    await cli.started("tidies", "--instance", "real");
    const { code, stderr } = await cli.run(["workflow", "terminate", "missing", "real"]);
    expect(code).toBe(4);
    expect(stderr).toContain("Terminated default:real");
    expect(stderr).toContain("RUN_NOT_FOUND");
  });

  test.each([["show"], ["result"], ["signal"], ["query"], ["cancel"], ["terminate"], ["retry"]])(
    "%s of a run that is not there ends with 4",
    async (verb) => {
      const more = verb === "signal" || verb === "query" ? ["x"] : [];
      const { code, stdout, stderr } = await cli.run(["workflow", verb, "nobody", ...more]);
      expect({ verb, code, stdout }).toEqual({ verb, code: 4, stdout: "" });
      expect(stderr).toContain("RUN_NOT_FOUND");
    },
  );
});

describe("names that hold quotes, spaces, colons and more", () => {
  test.each(awkwardNames)("%s is carried through every command intact", async (name) => {
    const id = `default:${name}`;
    expect(await cli.started("collects", `--instance=${name}`)).toBe(id);
    await cli.ok(["workflow", "signal", "--input", "1", "--", id, "item"]);
    expect(await cli.ok(["workflow", "query", "--", id, "seen"])).toBe("[1]\n");
    expect(await cli.json<RunShown>(["workflow", "show", id])).toMatchObject({ run: id, status: "running" });
    expect((await cli.ok(["workflow", "list", "--type", "collects", "-o", "ids"])).split("\n")).toContain(id);
    await cli.ok(["audit", id, "--proof", "awkward.json"]);
    expect(JSON.parse(readFileSync(path("awkward.json"), "utf8"))).toMatchObject({ partition: `run/${id}` });
    await cli.ok(["audit", "verify", "awkward.json"]);
    await cli.ok(["workflow", "terminate", id]);
  });

  test.each([[""], ["a\u0007b"], ["x".repeat(10_000)]])("%j is refused with 2", async (name) => {
    const { code, stderr } = await cli.run(["workflow", "show", `default:${name}`]);
    expect(code).toBe(2);
    expect(stderr).not.toContain("\u0007");
  });
});

describe("hop audit", () => {
  test("says who did what when, and proves it offline", async () => {
    const id = await cli.started("large", "--input", "100000", "--instance", "audited");
    await cli.run(["workflow", "result", id]);
    const shown = await cli.ok(["audit", id, "--proof", "p.json", "--seq", "0", "--save-root", "root.json"]);
    expect(shown).toMatch(/SEQ +TIME +WHO +EVENT +SUMMARY\n +0 +\S+ +\S+ \(unverified\) +RunStarted +large 100000\n/);
    expect(shown).toContain("bytes, chain and Merkle range hold");
    expect(shown).toContain("2 blobs of");
    await cli.ok(["audit", id, "--root", "root.json"]);
    const verified = await cluster.run(["audit", "verify", "p.json", "--root", "root.json"]);
    expect({ code: verified.code, stderr: verified.stderr }).toEqual({ code: 0, stderr: "The proof holds\n" });
    const { events, root } = await cli.json<{ events: { hash: string }[]; root: string }>(["audit", id]);
    expect(root).toBe((JSON.parse(readFileSync(path("root.json"), "utf8")) as { root: string }).root);
    expect((await cli.ok(["audit", id, "-o", "ids"])).trimEnd().split("\n")).toEqual(events.map(({ hash }) => hash));
  });

  test("fails with 1 against the root of another history", async () => {
    const [one, two] = [await cli.started("echo", "--input", "1"), await cli.started("echo", "--input", "2")];
    await cli.ok(["audit", one, "--save-root", "other.json"]);
    const { code, stderr } = await cli.run(["audit", two, "--root", "other.json"]);
    expect(code).toBe(1);
    expect(stderr).toContain("is not the one whose root was kept in other.json");
  });

  test("of a proof that was changed fails with 1 and says why", async () => {
    const id = await cli.started("echo", "--input", "1");
    await cli.ok(["audit", id, "--proof", "changed.json"]);
    const proof = readFileSync(path("changed.json"), "utf8");
    writeFileSync(
      path("changed.json"),
      proof.replace(/"root": "./, (text) => text.slice(0, -1) + (text.endsWith("0") ? "1" : "0")),
    );
    const { code, stderr } = await cluster.run(["audit", "verify", "changed.json"]);
    expect(code).toBe(1);
    expect(stderr).toContain("does not hold");
  });

  test("of a run that is not there ends with 4, of an event that is not there with 2", async () => {
    expect((await cli.run(["audit", "nobody"])).code).toBe(4);
    const id = await cli.started("echo", "--input", "1");
    expect((await cli.run(["audit", id, "--proof", "x.json", "--seq", "99"])).code).toBe(2);
  });

  test("--data refuses a folder that a server uses", async () => {
    const { code, stderr } = await cluster.run(["audit", "--data", cli.server.data]);
    expect(code).toBe(6);
    expect(stderr).toContain("uses it");
  });
});

describe("hop deploy", () => {
  test("prints what it deployed; the same code again changes nothing", async () => {
    const deployed = await cli.json<{ type: string; version: number; bundle: string }[]>(["deploy", "project/workflows.ts"]);
    expect(deployed).toContainEqual(expect.objectContaining({ type: "collects", version: 1 }));
    expect(await cli.ok(["deploy", "project/workflows.ts"])).toMatch(/TYPE +VERSION +BUNDLE +BYTES +FILE\n[\s\S]*collects +1 /);
  });

  test("of code that can't run in the sandbox ends with 1 and names file, line and way out", async () => {
    writeFileSync(
      path("bad.ts"),
      'import fs from "node:fs";\nimport { durable } from "@hopskip/runtime";\nexport const bad = durable(async () => fs.readdirSync("."));\n',
    );
    const { code, stderr } = await cli.run(["deploy", "bad.ts"]);
    expect(code).toBe(1);
    expect(stderr).toContain("Cannot bundle bad.ts");
    expect(stderr).toContain("node:fs");
  });

  test("of a workflow that two files export is refused with 2", async () => {
    const code = 'import { durable } from "@hopskip/runtime";\nexport const same = durable(async () => 1);\n';
    writeFileSync(path("same-1.ts"), code);
    writeFileSync(path("same-2.ts"), code);
    const refused = await cli.run(["deploy", "same-1.ts", "same-2.ts"]);
    expect(refused.code).toBe(2);
    expect(refused.stderr).toContain("Cannot deploy workflow same twice");
  });
});

test("hop workflow retry lets a blocked run go on with new code", async () => {
  const file = path("breaks.ts");
  // The bundler looks at the code at time 0; a run has a later one.
  const code = (top: string) =>
    `import { durable, now } from "@hopskip/runtime";\n${top}\nexport const breaks = durable(async () => "fixed");\n`;
  writeFileSync(file, code('if (now() > 0) throw new Error("fails when it is loaded");'));
  await cli.ok(["deploy", "breaks.ts"]);
  await cli.started("breaks", "--instance", "stuck");
  const status = async () => (await cli.json<RunShown>(["workflow", "show", "stuck"])).status;
  await until(async () => ((await status()) === "blocked" ? true : undefined), { withinMs: 60_000, what: () => "the run to be blocked" });
  const waiting = await cli.run(["workflow", "result", "stuck"]);
  expect(waiting.code).toBe(5);
  expect(waiting.stderr).toContain("then `hop workflow retry RUN --newest`");
  writeFileSync(file, code(""));
  await cli.ok(["deploy", "breaks.ts"]);
  expect((await cli.run(["workflow", "retry", "stuck", "--newest"])).stderr).toContain("default:stuck goes on, on bundle");
  expect(await cli.ok(["workflow", "result", "stuck"])).toBe('"fixed"\n');
}, 90_000);
