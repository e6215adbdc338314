import { describe, expect, test } from "bun:test";
import { join } from "node:path";

/** Runs the program from source, as its own process, with no server anywhere near. */
async function hop(args: readonly string[], input = ""): Promise<{ code: number; out: string; err: string }> {
  const env = { ...process.env, NO_COLOR: "1", HOP_SERVER: "127.0.0.1:1", HOP_NAMESPACE: "" };
  const child = Bun.spawn([process.execPath, join(import.meta.dir, "hop.ts"), ...args], {
    env,
    stdin: new Blob([input]),
    stdout: "pipe",
    stderr: "pipe",
  });
  const [out, err, code] = await Promise.all([child.stdout.text(), child.stderr.text(), child.exited]);
  return { code, out, err };
}

describe("a wrong command line ends with 2 and says what is wrong", () => {
  test.each([
    [["wrok"], "unknown command 'wrok'"],
    [["run"], "missing required argument 'type'"],
    [["run", "hello", "--nope"], "unknown option '--nope'"],
    [["run", "hello", "--input", "Ada"], 'Cannot read --input as JSON: line 1, column 1: got "A", want a value'],
    [["run", "hello", "--input", "@/none"], "Cannot read /none: there is no such file"],
    [["run", "hello", "--follow", "--detach"], "Cannot run with both --follow and --detach"],
    [["run", "hello", "--input", "1", "--input-lines", "-"], "Cannot run with both --input and --input-lines"],
    [["run", "hello", "--instance", "a", "--input-lines", "-"], "want --instance-field"],
    [["run", "hello", "--deadline", "5"], 'Cannot read --deadline "5", a unit is missing'],
    [["run", "hello", "--contention", "wait"], "Allowed choices are attach, reject, queue, supersede"],
    [["run", "hello", "--contention", "supersede"], "Cannot supersede a live run without --override-reason"],
    [["run", "hello", "--override-reason", "why"], "Cannot use --override-reason without --contention supersede"],
    [["run", "hello", "--contention", "queue", "--budget", "soon"], "--budget"],
    [["run", "hello", "-o", "xml"], "Allowed choices are table, json, jsonl, ids"],
    [["run", "hello", "--server", "nowhere"], 'Cannot use --server "nowhere": want host:port'],
    [["run", "hello", "--server", "h:70700"], "want host:port"],
    [["run", "hello", "-n", "a b"], 'Cannot use namespace "a b"'],
    [["workflow", "show", "default:"], "has a bad name: instance name is empty"],
    [["workflow", "show", "a b:c"], "has a bad name: namespace is not 1–63 letters"],
    [["workflow", "list", "--limit", "0"], 'Cannot use --limit "0": want a whole number from 1'],
    [["workflow", "list", "--status", "odd"], "Allowed choices are running"],
    [["workflow", "retry", "x", "--newest", "--bundle", "ab"], "Cannot retry with both --newest and --bundle"],
    [["workflow", "retry", "x", "--bundle", "ab"], "want a SHA-256 of 64 hex digits"],
    [["workflow", "cancel", "-"], "none were named on standard input"],
    [["run", "x", "--signal", "a", "--signal", "b"], "Cannot use --signal twice"],
    [["run", "x", "--signal", "a=nope"], "Cannot read --signal as JSON"],
    [["init", ""], "its name is empty"],
    [["testkit", "nowhere"], "there is no package.json"],
    [["audit"], "Cannot audit: no run was named"],
    [["audit", "x", "--seq", "1"], "Cannot use --seq without --proof"],
    [["audit", "verify", "/none"], "Cannot read /none: there is no such file"],
    [["completion", "tcsh"], "want bash, zsh or fish"],
    [["deploy", "/none.ts"], "there is no such file"],
    [["worker", "--mode", "wasm"], "wasm is not built into this version"],
    [["worker", "--mode", "advm"], "advm is not built into this version"],
    [["worker", "--timeout", "5s"], "unknown option '--timeout'"],
    [["--timeout", "5s", "worker"], "Cannot run a worker with --timeout"],
    [["run", "hello", "--server", "127.0.0.1:1,nowhere"], 'Cannot use --server "nowhere": want host:port'],
    [["server", "start", "--bootstrap", "--seed", "a:1"], "Cannot start with both --bootstrap and --seed"],
    [["server", "start", "--seed", "a:1,,b:1"], "want host:port, several with commas"],
    [["server", "start", "--peer-port", "x"], 'Cannot use --peer-port "x"'],
    [["server", "start", "--peer-ca", "a.pem"], "want all of --peer-ca, --peer-cert and --peer-key"],
    [["cluster", "leave", "node-1"], 'Cannot use node "node-1": want its number'],
    [["shard", "split", "0"], "Cannot split shard 0: it is placement"],
    [["shard", "split", "1", "--at", "half"], "want the first key of the new shard"],
    [["shard", "move", "1", "--from", "1"], "required option '--to <node>' not specified"],
    [["shard", "verify"], "want the number of a shard, or --all"],
    [["policy", "set", "x"], "want its value as --input"],
    [["help", "nonsense"], 'there is no command "nonsense"'],
    [["help", "workflow", "nonsense"], 'there is no command "workflow nonsense"'],
  ] as [string[], string][])("%j", async (args, says) => {
    const { code, out, err } = await hop(args);
    expect(err).toContain(says);
    expect({ code, out }).toEqual({ code: 2, out: "" });
  });
});

describe("without a server", () => {
  test.each([[["run", "hello"]], [["workflow", "list"]], [["workflow", "show", "x"]], [["audit", "x"]]] as [string[]][])(
    "%j ends with 6 and says what to do",
    async (args) => {
      const { code, out, err } = await hop(args);
      expect({ code, out }).toEqual({ code: 6, out: "" });
      expect(err).toBe("error: Cannot reach the server at 127.0.0.1:1: nothing listens there\n  next: start one with `hop dev`\n");
    },
  );

  test("a port that speaks something else is named at once, with 6", async () => {
    using http = Bun.serve({ port: 0, hostname: "127.0.0.1", fetch: () => new Response("metrics") });
    const { code, err } = await hop(["run", "hello", "--server", `127.0.0.1:${http.port}`]);
    expect(err).toContain("it does not speak gRPC: is this the --http address?");
    expect(code).toBe(6);
  });

  test("a program is told as JSON", async () => {
    const { code, err } = await hop(["workflow", "list", "-o", "json"]);
    expect(code).toBe(6);
    expect(JSON.parse(err)).toMatchObject({
      error: { exitCode: 6, message: "Cannot reach the server at 127.0.0.1:1: nothing listens there" },
    });
  });
});

describe("help and version", () => {
  test("go to standard output and end with 0", async () => {
    for (const args of [["--help"], ["help", "run"], ["workflow", "--help"], ["audit", "verify", "--help"]]) {
      const { code, out, err } = await hop(args);
      expect({ args, code, err }).toEqual({ args, code: 0, err: "" });
      expect(out).toContain("Usage: hop");
    }
  });

  test("help of a command below another is its own", async () => {
    expect((await hop(["help", "workflow", "signal"])).out).toStartWith("Usage: hop workflow signal ");
    expect((await hop(["help", "wf", "signal"])).out).toStartWith("Usage: hop workflow signal ");
    expect((await hop(["help"])).out).toBe((await hop(["--help"])).out);
  });

  test("the version is the same however it is asked for", async () => {
    const texts = await Promise.all([["--version"], ["-V"], ["version"], ["version", "--no-color"]].map((args) => hop(args)));
    expect(new Set(texts.map(({ out }) => out)).size).toBe(1);
    const { out } = await hop(["version", "-o", "json"]);
    expect(texts[0]?.out).toBe(`hop ${(JSON.parse(out) as { version: string }).version}\n`);
  });
});

test("options that all commands know may stand before the command, and those after it win", async () => {
  const { err } = await hop(["--server", "127.0.0.1:2", "workflow", "list"]);
  expect(err).toContain("Cannot reach the server at 127.0.0.1:2");
  const later = await hop(["--server", "127.0.0.1:2", "workflow", "list", "--server", "127.0.0.1:3"]);
  expect(later.err).toContain("Cannot reach the server at 127.0.0.1:3");
});
